"""Gemma 4 with its vision and audio towers, which are transformers' own: whole on every rank, never quantised.

Sources: gemma4_mm.py of vLLM 0.33 and the Gemma 4 classes of transformers 5.
"""

from __future__ import annotations

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import replicated_linear
from planner.families.composite import Tower, assemble, renamed, text_model
from planner.families.vision_towers import plain_linear, repeated, vision_tensor
from planner.inventory import Buffer, EncoderFacts, Module, Role

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


BUILDERS: dict[str, Builder] = {"Gemma4ForConditionalGeneration": build_gemma4}
