"""Multimodal models with towers of their own: MiniCPM-V, Molmo, Phi-3-vision, dots.ocr, DeepSeek-OCR, LFM2-VL.

Sources: minicpmv.py, molmo.py, phi3v.py, dots_ocr.py, deepseek_ocr.py and lfm2_vl.py of vLLM 0.33.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import column_linear, norm, row_linear
from planner.families.composite import Tower, assemble, part_of, renamed, text_model
from planner.families.multimodal import fixed_size_facts
from planner.families.vision_towers import (
    EncoderStack,
    clip_tower,
    patch_count,
    plain_linear,
    repeated,
    siglip_tower,
    vision_tensor,
)
from planner.inventory import Buffer, Embedding, EncoderFacts, Linear, Module, Part

_RESAMPLER_GRID = 70  # patches a side that MiniCPM-V's position table covers
_RESAMPLER_FRAMES = 36_000  # moments in time that 4.5's second table covers


def _facts(view: ConfigView, patches: int, tokens: int) -> EncoderFacts:
    return EncoderFacts(
        modality="image",
        hidden_size=view.integer("embed_dim", "hidden_size"),
        intermediate_size=view.integer("intermediate_size"),
        num_layers=view.integer("num_hidden_layers"),
        num_heads=view.integer("num_attention_heads"),
        patch_tokens_per_item=patches,
        output_tokens_per_item=tokens,
    )


def _minicpm_version(root: ConfigView) -> float:
    """The version that picks the class, a number or a text; a config from before there was one means 2.5."""
    value = root.values.get("version")
    if not isinstance(value, str):
        return root.number("version", 2.5)
    try:
        return float(value)
    except ValueError:
        raise PlanError("version", value, f"config.json: version {value!r:.40} is no number such as 2.6.") from None


def build_minicpmv(given: FamilyInput) -> Built:
    """MiniCPM-V 2.5 to 4.5: SigLIP, a resampler with learned queries, a Llama (2.5, 4.0), Qwen2 or Qwen3 language model."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    queries, hidden = given.root.integer("query_num", default=64), vision.integer("hidden_size")
    version = _minicpm_version(given.root)
    resampler: tuple[Module, ...] = (
        vision_tensor("query", queries, text, role="projector"),
        vision_tensor("proj", text, text, role="projector"),
        *plain_linear("kv_proj", hidden, text, has_bias=False),
        *plain_linear("attn.in_proj", text, 3 * text),
        *plain_linear("attn.out_proj", text, text),
        *norm("ln_q", text, has_bias=True),
        *norm("ln_kv", text, has_bias=True),
        *norm("ln_post", text, has_bias=True),
        Buffer(name="pos_embed", shape=(_RESAMPLER_GRID, _RESAMPLER_GRID, text)),
        *(Buffer(name="temporal_pos_embed", shape=(_RESAMPLER_FRAMES, text)) for _ in range(version >= 4.5)),
    )
    depth = -2 if given.root.flag("drop_vision_last_layer", False) else None
    tower = siglip_tower(vision, depth, has_last_norm=True, has_position_ids=False)
    towers = [
        Tower(prefix="vpm", modules=tower, facts=_facts(vision, patch_count(vision), queries)),
        Tower(prefix="resampler", modules=resampler),
    ]
    name = "LlamaForCausalLM" if version in {2.5, 4.0} else "Qwen3ForCausalLM" if version >= 4.5 else "Qwen2ForCausalLM"
    return assemble(given, renamed(text_model(given, architecture=name), "model.", "llm.model."), towers)


# Molmo's tower and pooling are fixed in its class (OpenAI's CLIP ViT-L/14 at 336 pixels, two of whose layers are read).
_MOLMO_WIDTH, _MOLMO_HEADS, _MOLMO_DEPTH, _MOLMO_POSITIONS, _MOLMO_PATCH = 1024, 16, 23, 577, 14
_MOLMO_EXTRA_ROWS = 128  # special tokens beside the vocabulary


def _molmo_tower() -> tuple[Module, ...]:
    stack = EncoderStack(
        depth=_MOLMO_DEPTH,
        hidden_size=_MOLMO_WIDTH,
        intermediate_size=4 * _MOLMO_WIDTH,
        num_heads=_MOLMO_HEADS,
        prefix="transformer.resblocks",
        qkv="attention.wqkv",
        projections=tuple(f"attention.w{name}" for name in "qkv"),
        output="attention.wo",
        up="feed_forward.w1",
        down="feed_forward.w2",
        norms=("attention_norm", "ffn_norm"),
    )
    return (
        vision_tensor("class_embedding", _MOLMO_WIDTH),
        vision_tensor("positional_embedding", _MOLMO_POSITIONS, _MOLMO_WIDTH),
        *plain_linear("patch_embedding", 3 * _MOLMO_PATCH**2, _MOLMO_WIDTH, role="vision", has_bias=False),
        *norm("pre_ln", _MOLMO_WIDTH, has_bias=True),
        *stack.modules(),
    )


def _molmo_link(text: int, wide: int) -> tuple[Module, ...]:
    read = 2 * _MOLMO_WIDTH  # two layers side by side
    pooled = ("image_pooling_2d.wq", "image_pooling_2d.wk", "image_pooling_2d.wv")
    return (
        vision_tensor("pad_embed", 2, read),
        *(column_linear(name, read, _MOLMO_WIDTH, role="projector", has_bias=True) for name in pooled),
        row_linear("image_pooling_2d.wo", _MOLMO_WIDTH, _MOLMO_WIDTH, role="projector", has_bias=True),
        column_linear("image_projector.merged_linear", _MOLMO_WIDTH, wide, wide, role="projector"),
        row_linear("image_projector.down_proj", wide, text, role="projector"),
    )


def build_molmo(given: FamilyInput) -> Built:
    """Molmo: its own CLIP, attention pooling, and a language model whose `intermediate_size` counts gate and up together."""
    view = given.text
    text, wide = view.integer("hidden_size"), view.integer("intermediate_size") // 2
    values = {**view.values, "intermediate_size": wide, "attention_bias": view.flag("qkv_bias", False)}
    language = text_model(given, architecture="Qwen2ForCausalLM", text=ConfigView(values, view.path))
    parts = tuple(_with_more_rows(part) for part in language.parts)
    facts = EncoderFacts(
        modality="image",
        hidden_size=_MOLMO_WIDTH,
        intermediate_size=4 * _MOLMO_WIDTH,
        num_layers=_MOLMO_DEPTH,
        num_heads=_MOLMO_HEADS,
        patch_tokens_per_item=_MOLMO_POSITIONS - 1,
        output_tokens_per_item=(_MOLMO_POSITIONS - 1) // 4,
    )
    towers = [
        Tower(prefix="vision_backbone.image_vit", modules=_molmo_tower(), modalities=("image",), facts=facts),
        Tower(prefix="vision_backbone", modules=_molmo_link(text, wide), modalities=("image",)),
    ]
    return assemble(given, replace(language, parts=parts), towers)


def _with_more_rows(part: Part) -> Part:
    """A part whose input table has Molmo's special tokens too; every pipeline stage builds the parts around the layers."""
    modules = tuple(
        replace(module, num_rows=module.num_rows + _MOLMO_EXTRA_ROWS)
        if isinstance(module, Embedding) and module.role == "embedding"
        else module
        for module in part.modules
    )
    return replace(part, modules=modules, stage="every")


# Phi-3-vision: OpenAI's CLIP ViT-L/14 at 336 pixels, whose sizes the config does not repeat.
_PHI3V_CLIP = {
    "hidden_size": 1024,
    "image_size": 336,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
}


def build_phi3v(given: FamilyInput) -> Built:
    """Phi-3-vision and Phi-3.5-vision; the input table is there twice, for text alone and inside the language model."""
    view = given.text
    text, vision = view.integer("hidden_size"), ConfigView(_PHI3V_CLIP, "img_processor.")
    width = 4 * vision.integer("hidden_size")
    link: tuple[Module, ...] = (
        vision_tensor("glb_GN", width, role="projector"),
        vision_tensor("sub_GN", width, role="projector"),
        *plain_linear("img_projection.0", width, text),
        *plain_linear("img_projection.2", text, text),
    )
    prefix = "model.vision_embed_tokens"
    towers = [
        Tower(
            prefix=f"{prefix}.img_processor.vision_model",
            modules=clip_tower(vision, -2),
            modalities=("image",),
            facts=_facts(vision, patch_count(vision), patch_count(vision) // 4),
        ),
        Tower(prefix=prefix, modules=link, modalities=("image",)),
    ]
    table = Embedding(name="embed_tokens", role="embedding", num_rows=view.integer("vocab_size"), dim=text)
    language = text_model(given, architecture="LlamaForCausalLM")
    own = Part(prefix="", stage="every", modules=(table,))
    return assemble(given, replace(language, parts=(own, *language.parts)), towers)


def build_dots_ocr(given: FamilyInput) -> Built:
    """dots.ocr: a vision transformer with gated blocks, a merger, Qwen2."""
    vision = part_of(given, "vision_config")
    hidden, merge = vision.integer("embed_dim"), vision.integer("spatial_merge_size", default=2) ** 2
    has_bias = vision.flag("use_bias", False)
    stack = EncoderStack(
        depth=vision.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=vision.integer("intermediate_size"),
        num_heads=vision.integer("num_attention_heads"),
        prefix="blocks",
        qkv="attn.qkv",
        output="attn.proj",
        up="mlp.fc3",
        gate="mlp.fc1",
        down="mlp.fc2",
        norms=("norm1", "norm2"),
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        has_mlp_bias=has_bias,
        norms_have_bias=False,
    )
    head = hidden // vision.integer("num_attention_heads")
    patch = vision.integer("patch_size") ** 2
    modules = (
        vision_tensor("patch_embed.patchifier.proj", hidden, vision.integer("num_channels", default=3) * patch + 1),
        *norm("patch_embed.patchifier.norm", hidden),
        *stack.modules(),
        *(norm("post_trunk_norm", hidden) if vision.flag("post_norm", True) else ()),
        *norm("merger.ln_q", hidden, has_bias=True),
        *_unquantised(
            column_linear("merger.mlp.0", hidden * merge, hidden * merge, role="projector", has_bias=True),
            row_linear("merger.mlp.2", hidden * merge, vision.integer("hidden_size"), role="projector", has_bias=True),
        ),
        Buffer(name="rotary_pos_emb.inv_freq", shape=(head // 4,), dtype="float32"),
    )
    patches = 11_289_600 // patch  # the published processor's pixel limit
    tower = Tower(
        prefix="vision_tower", modules=modules, modalities=("image",), facts=_facts(vision, patches, patches // merge)
    )
    language = renamed(text_model(given, architecture="Qwen2ForCausalLM"), "model.", "language_model.model.")
    return assemble(given, language, [tower])


# DeepSeek-OCR: SAM's ViT-B, then CLIP ViT-L on its features; both are fixed in the class (deepencoder.py).
_SAM_WIDTH, _SAM_DEPTH, _SAM_GLOBAL_LAYERS, _SAM_GRID, _SAM_WINDOW, _SAM_HEAD, _SAM_OUT = 768, 12, 4, 64, 14, 64, 256
_OCR_CLIP = {
    "hidden_size": 1024,
    "image_size": 224,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
}
_OCR_TOKENS = 273  # of one 1024-pixel view: 16 rows of 16 with a line break each, and a separator


def _sam() -> tuple[Module, ...]:
    width, wide = _SAM_WIDTH, 4 * _SAM_WIDTH
    block: tuple[Module, ...] = (
        *plain_linear("attn.qkv", width, 3 * width, role="vision"),
        *plain_linear("attn.proj", width, width, role="vision"),
        *plain_linear("mlp.lin1", width, wide, role="vision"),
        *plain_linear("mlp.lin2", wide, width, role="vision"),
        *norm("norm1", width, has_bias=True),
        *norm("norm2", width, has_bias=True),
    )
    places = {_SAM_GRID: _SAM_GLOBAL_LAYERS, _SAM_WINDOW: _SAM_DEPTH - _SAM_GLOBAL_LAYERS}
    return (
        vision_tensor("patch_embed.proj", width, 3 * 16 * 16 + 1),
        vision_tensor("pos_embed", _SAM_GRID, _SAM_GRID, width),
        *repeated("blocks", _SAM_DEPTH, block),
        *(
            vision_tensor(f"rel_pos_{size}", 2 * (2 * size - 1), _SAM_HEAD, repeat=count)
            for size, count in places.items()
        ),
        vision_tensor("neck.0", _SAM_OUT, width),
        vision_tensor("neck.2", _SAM_OUT, _SAM_OUT * 9),
        vision_tensor("neck.norms", 4, _SAM_OUT),
        vision_tensor("net_2", 2 * _SAM_OUT, _SAM_OUT * 9),
        vision_tensor("net_3", 4 * _SAM_OUT, 2 * _SAM_OUT * 9),
    )


def build_deepseek_ocr(given: FamilyInput) -> Built:
    """DeepSeek-OCR: two vision towers in a row, one linear, DeepSeek-V2 without latent attention."""
    projector, clip = part_of(given, "projector_config"), ConfigView(_OCR_CLIP, "vision_config.")
    size_in, size_out = projector.integer("input_dim", default=2048), projector.integer("n_embed", default=1280)
    kind = projector.text("projector_type", "linear")
    if kind != "linear":
        raise PlanError(
            "projector_config.projector_type", kind, f"config.json: the projector {kind!r} is not known here."
        )
    link: tuple[Module, ...] = (
        *plain_linear("layers", size_in, size_out),
        vision_tensor("image_newline", size_out),
        vision_tensor("view_seperator", size_out),
    )
    facts = _facts(clip, _SAM_GRID**2, _OCR_TOKENS)
    towers = [
        Tower(prefix="model.sam_model", modules=_sam(), modalities=("image",)),
        Tower(prefix="model.vision_model", modules=clip_tower(clip), modalities=("image",), facts=facts),
        Tower(prefix="model.projector", modules=link, modalities=("image",)),
    ]
    return assemble(given, text_model(given), towers)


def build_lfm2_vl(given: FamilyInput) -> Built:
    """LFM2-VL: SigLIP 2 with patches by one linear, pixels shuffled into wider vectors, LFM2."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    hidden, factor = vision.integer("hidden_size"), given.root.integer("downsample_factor", default=2) ** 2
    patch = vision.integer("num_channels", default=3) * vision.integer("patch_size") ** 2
    positions, wide = (
        vision.integer("num_patches", default=256),
        given.root.integer("projector_hidden_size", default=2560),
    )
    stack = EncoderStack(
        depth=vision.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=vision.integer("intermediate_size"),
        num_heads=vision.integer("num_attention_heads"),
        prefix="encoder.layers",
        projections=tuple(f"self_attn.{name}_proj" for name in "qkv"),
    )
    tower = (
        *plain_linear("embeddings.patch_embedding", patch, hidden, role="vision"),
        vision_tensor("embeddings.position_embedding", positions, hidden),
        *stack.modules(),
        *norm("post_layernorm", hidden, has_bias=True),
    )
    has_bias = given.root.flag("projector_bias", True)
    with_norm = given.root.flag("projector_use_layernorm", True)
    link: tuple[Module, ...] = (
        *(norm("layer_norm", hidden * factor, has_bias=True) if with_norm else ()),
        *plain_linear("linear_1", hidden * factor, wide, has_bias=has_bias),
        *plain_linear("linear_2", wide, text, has_bias=has_bias),
    )
    prefix = "model.vision_tower.vision_model"
    facts = _facts(vision, positions, positions // factor)
    towers = [
        Tower(prefix=prefix, modules=tower, modalities=("image",), facts=facts),
        Tower(prefix="model.multi_modal_projector", modules=link, modalities=("image",)),
    ]
    return assemble(given, renamed(text_model(given), "model.", "model.language_model."), towers)


def _unquantised(*linears: Linear) -> tuple[Linear, ...]:
    return tuple(replace(linear, quantizable=False) for linear in linears)


def build_cohere2_vision(given: FamilyInput) -> Built:
    """Command A Vision: SigLIP, patches folded together, a gated projector that is never quantised, Command R7B's decoder."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    folded = vision.integer("hidden_size") * given.root.integer("downsample_factor", default=2) ** 2
    width = given.root.integer("alignment_intermediate_size", default=36864) // 2
    projector = _unquantised(
        column_linear("linear_1", folded, width, width, role="projector", has_bias=True),
        row_linear("linear_2", width, text, role="projector", has_bias=True),
    )
    tower = siglip_tower(vision, has_last_norm=True)
    towers = [
        Tower(prefix="vision_tower.vision_model", modules=tower, modalities=("image",), facts=fixed_size_facts(vision)),
        Tower(prefix="multi_modal_projector", modules=projector, modalities=("image",)),
    ]
    return assemble(given, renamed(text_model(given), "model.", "language_model.model."), towers)


BUILDERS: dict[str, Builder] = {
    "Cohere2VisionForConditionalGeneration": build_cohere2_vision,
    "DeepseekOCRForCausalLM": build_deepseek_ocr,
    "DotsOCRForCausalLM": build_dots_ocr,
    "Lfm2VlForConditionalGeneration": build_lfm2_vl,
    "MiniCPMV": build_minicpmv,
    "MolmoForCausalLM": build_molmo,
    "Phi3VForCausalLM": build_phi3v,
}
