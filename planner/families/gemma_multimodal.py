"""Gemma 3n and Gemma 4 with their vision and audio towers, which are transformers' own: whole on every rank, never quantised.

Sources: gemma3n_mm.py and gemma4_mm.py of vLLM 0.33 and the classes of the same names in transformers 5.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import replicated_linear, row_linear
from planner.families.composite import Tower, assemble, part_of, renamed, text_model
from planner.families.vision_towers import plain_linear, repeated, vision_tensor
from planner.inventory import Buffer, Embedding, EncoderFacts, Module, Part, Role

# Parameters of timm's mobilenetv5_300m_enc: the published totals of gemma-3n E2B and E4B less all their other tensors; both
# leave this number.
_MOBILENET_V5_PARAMETERS = 294_126_912
_CLIP_BOUNDS = 4  # least and greatest input and output of a clipped linear, one value each


def _linears(sizes: dict[str, tuple[int, int]], role: Role, *, is_clipped: bool) -> list[Module]:
    modules: list[Module] = []
    for name, (size_in, size_out) in sizes.items():
        modules += plain_linear(name, size_in, size_out, role=role, has_bias=False)
        if is_clipped:
            modules.append(Buffer(name=f"{name}.bounds", shape=(), repeat=_CLIP_BOUNDS))
    return modules


def gemma4_vision(view: ConfigView) -> tuple[Module, ...]:
    """The vision tower: patches by one linear, a learned table for each axis, gated blocks with four norms."""
    hidden, wide = view.integer("hidden_size"), view.integer("intermediate_size")
    heads, size = view.integer("num_attention_heads"), view.integer("head_dim", default=64)
    query, key = heads * size, view.integer("num_key_value_heads", default=heads) * size
    sizes = {
        "self_attn.q_proj": (hidden, query),
        "self_attn.k_proj": (hidden, key),
        "self_attn.v_proj": (hidden, key),
        "self_attn.o_proj": (query, hidden),
        "mlp.gate_proj": (hidden, wide),
        "mlp.up_proj": (hidden, wide),
        "mlp.down_proj": (wide, hidden),
    }
    norms = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    block = [
        *_linears(sizes, "vision", is_clipped=view.flag("use_clipped_linears", False)),
        *(vision_tensor(f"self_attn.{name}_norm", size) for name in "qk"),
        *(vision_tensor(name, hidden) for name in norms),
    ]
    standard = (Buffer(name="std", shape=(hidden,), repeat=2),) if view.flag("standardize", False) else ()
    return (
        vision_tensor("patch_embedder.position_embedding_table", 2, view.integer("position_embedding_size"), hidden),
        vision_tensor("patch_embedder.input_proj", hidden, 3 * view.integer("patch_size") ** 2),
        *repeated("encoder.layers", view.integer("num_hidden_layers"), block),
        Buffer(name="encoder.rotary_emb.inv_freq", shape=(size // 4,), dtype="float32", repeat=2),
        *standard,
    )


def gemma4_audio(view: ConfigView) -> tuple[Module, ...]:
    """The audio tower: two convolutions, conformer blocks, one linear out."""
    hidden, kernel = view.integer("hidden_size"), view.integer("conv_kernel_size", default=5)
    channels = view.items("subsampling_conv_channels") or [128, 32]
    first, second = (
        ConfigView({"subsampling_conv_channels": value}).integer("subsampling_conv_channels") for value in channels[:2]
    )
    sizes = {f"feed_forward{part}.ffw_layer_1": (hidden, 4 * hidden) for part in (1, 2)}
    sizes |= {f"feed_forward{part}.ffw_layer_2": (4 * hidden, hidden) for part in (1, 2)}
    sizes |= {f"self_attn.{name}": (hidden, hidden) for name in ("q_proj", "k_proj", "v_proj", "post")}
    sizes |= {"lconv1d.linear_start": (hidden, 2 * hidden), "lconv1d.linear_end": (hidden, hidden)}
    norms: tuple[str, ...] = (
        "feed_forward1.pre",
        "feed_forward1.post",
        "feed_forward2.pre",
        "feed_forward2.post",
        "lconv1d.pre",
    )
    norms += ("lconv1d.conv_norm", "norm_pre_attn", "norm_post_attn", "norm_out")
    head = hidden // view.integer("num_attention_heads", default=8)
    block = [
        *_linears(sizes, "audio", is_clipped=view.flag("use_clipped_linears", True)),
        *plain_linear("self_attn.relative_k_proj", hidden, hidden, role="audio", has_bias=False),
        vision_tensor("self_attn.per_dim_scale", head, role="audio"),
        Buffer(name="self_attn.softcap", shape=()),
        vision_tensor("lconv1d.depthwise_conv1d", hidden, kernel, role="audio"),
        *(vision_tensor(name, hidden, role="audio") for name in norms),
    ]
    out = view.integer("output_proj_dims", default=1536)
    bins = 128 // 4  # mel bins after two convolutions of stride two
    return (
        vision_tensor("subsample_conv_projection.layer0.conv", first, 9, role="audio"),
        vision_tensor("subsample_conv_projection.layer0.norm", first, role="audio"),
        vision_tensor("subsample_conv_projection.layer1.conv", second, first * 9, role="audio"),
        vision_tensor("subsample_conv_projection.layer1.norm", second, role="audio"),
        *plain_linear(
            "subsample_conv_projection.input_proj_linear", second * bins, hidden, role="audio", has_bias=False
        ),
        Buffer(name="rel_pos_enc.inv_timescales", shape=(hidden // 2,)),
        *repeated("layers", view.integer("num_hidden_layers"), block),
        *plain_linear("output_proj", hidden, out, role="audio"),
    )


def build_gemma4(given: FamilyInput) -> Built:
    """Gemma 4 as a multimodal model."""
    text = given.text.integer("hidden_size")
    towers = [*_vision(given, text), *_audio(given, text)]
    language = text_model(given, architecture="Gemma4ForCausalLM")
    language = replace(language, parts=(*language.parts, *_per_layer_inputs(given)))
    return assemble(given, renamed(language, "model.", "model.language_model."), towers)


def _vision(given: FamilyInput, text: int) -> list[Tower]:
    view = given.root.section("vision_config")
    if view is None:
        return []
    hidden, pool = view.integer("hidden_size"), view.integer("pooling_kernel_size", default=3)
    tokens = view.integer("default_output_length", default=280)
    facts = EncoderFacts(
        modality="image",
        hidden_size=hidden,
        intermediate_size=view.integer("intermediate_size"),
        num_layers=view.integer("num_hidden_layers"),
        num_heads=view.integer("num_attention_heads"),
        patch_tokens_per_item=tokens * pool**2,
        output_tokens_per_item=tokens,
    )
    link = (replicated_linear("embedding_projection", hidden, text, role="projector"),)
    return [
        Tower(prefix="model.vision_tower", modules=gemma4_vision(view), facts=facts),
        Tower(prefix="model.embed_vision", modules=link),
    ]


def _audio(given: FamilyInput, text: int) -> list[Tower]:
    view = given.root.section("audio_config")
    if view is None:
        return []
    link = (
        replicated_linear(
            "embedding_projection", view.integer("output_proj_dims", default=1536), text, role="projector"
        ),
    )
    return [
        Tower(prefix="model.audio_tower", modules=gemma4_audio(view), modalities=("audio",)),
        Tower(prefix="model.embed_audio", modules=link, modalities=("audio",)),
    ]


def _per_layer_inputs(given: FamilyInput) -> tuple[Part, ...]:
    """The per-layer embeddings of one batch, which Gemma 3n and the small Gemma 4 keep beside the model."""
    width = given.text.integer("hidden_size_per_layer_input", default=0, least=0)
    if not width:
        return ()
    shape = (given.text.integer("num_hidden_layers"), width)
    table = Buffer(name="per_layer_embeddings", shape=shape, is_per_batched_token=True)
    return (Part(prefix="", stage="every", modules=(table,)),)


def gemma3n_audio(view: ConfigView) -> tuple[Module, ...]:
    """Gemma 3n's audio tower: two convolutions and conformer blocks."""
    hidden, kernel = view.integer("hidden_size"), view.integer("conf_conv_kernel_size", default=5)
    channels = view.items("sscp_conv_channel_size") or [128, 32]
    first, second = (
        ConfigView({"sscp_conv_channel_size": value}).integer("sscp_conv_channel_size") for value in channels[:2]
    )
    sizes = {f"ffw_layer_{place}.ffw_layer_1": (hidden, 4 * hidden) for place in ("start", "end")}
    sizes |= {f"ffw_layer_{place}.ffw_layer_2": (4 * hidden, hidden) for place in ("start", "end")}
    sizes |= {f"attention.{name}": (hidden, hidden) for name in ("q_proj", "k_proj", "v_proj", "post", "pos_proj")}
    sizes |= {"lconv1d.linear_start": (hidden, 2 * hidden), "lconv1d.linear_end": (hidden, hidden)}
    norms: tuple[str, ...] = ("ffw_layer_start.pre", "ffw_layer_start.post", "ffw_layer_end.pre", "ffw_layer_end.post")
    norms += ("attention.pre", "attention.post", "lconv1d.pre", "lconv1d.conv", "norm")
    block = [
        *_linears(sizes, "audio", is_clipped=False),
        vision_tensor(
            "attention.per_dim_scale", hidden // view.integer("conf_num_attention_heads", default=8), role="audio"
        ),
        vision_tensor("lconv1d.depthwise_conv1d", hidden, kernel, role="audio"),
        *(vision_tensor(f"{name}_norm", hidden, role="audio") for name in norms),
    ]
    bins = view.integer("input_feat_size", default=128) // 4  # after two convolutions of stride two
    return (
        vision_tensor("subsample_conv_projection.conv_0", first, 9 + 1, role="audio"),
        vision_tensor("subsample_conv_projection.conv_1", second, first * 9 + 1, role="audio"),
        *plain_linear(
            "subsample_conv_projection.input_proj_linear", second * bins, hidden, role="audio", has_bias=False
        ),
        *repeated("conformer", view.integer("conf_num_hidden_layers", default=12), block),
    )


def _soft_and_hard_tokens(view: ConfigView, text: int) -> tuple[Module, ...]:
    """Gemma 3n's embedder of one modality: a small table of its own, two norms, a projection."""
    hidden = view.integer("hidden_size")
    table = Embedding(name="embedding", role="projector", num_rows=view.integer("vocab_size", default=128), dim=hidden)
    norms = (vision_tensor(f"{kind}_embedding_norm", hidden, role="projector") for kind in ("hard", "soft"))
    projection = row_linear("embedding_projection", hidden, text, role="projector")
    return (table, *norms, replace(projection, quantizable=False))


def build_gemma3n(given: FamilyInput) -> Built:
    """Gemma 3n as a multimodal model; its vision tower comes from timm, whose size is known as a whole only."""
    vision, audio = part_of(given, "vision_config"), part_of(given, "audio_config")
    kind = vision.text("architecture", "mobilenetv5_300m_enc")
    if kind != "mobilenetv5_300m_enc":
        raise PlanError(
            "vision_config.architecture",
            kind,
            f"config.json: the vision tower {kind!r} is not known; it cannot be sized.",
        )
    text = given.text.integer("hidden_size")
    mobilenet = (vision_tensor("timm_model", _MOBILENET_V5_PARAMETERS),)
    towers = [
        Tower(prefix="model.vision_tower", modules=mobilenet, modalities=("image",)),
        Tower(prefix="model.embed_vision", modules=_soft_and_hard_tokens(vision, text), modalities=("image",)),
        Tower(prefix="model.audio_tower", modules=gemma3n_audio(audio), modalities=("audio",)),
        Tower(prefix="model.embed_audio", modules=_soft_and_hard_tokens(audio, text), modalities=("audio",)),
    ]
    language = text_model(given, architecture="Gemma3nForCausalLM")
    language = replace(language, parts=(*language.parts, *_per_layer_inputs(given)))
    return assemble(given, renamed(language, "model.", "model.language_model."), towers)


BUILDERS: dict[str, Builder] = {
    "Gemma3nForConditionalGeneration": build_gemma3n,
    "Gemma4ForConditionalGeneration": build_gemma4,
}
