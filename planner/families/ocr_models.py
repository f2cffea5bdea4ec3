"""Small models that read documents (GLM-OCR and PaddleOCR-VL), and GLM-4V-9B.

Sources: glm_ocr.py, paddleocr_vl.py and glm4v.py of vLLM 0.33.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import column_linear, norm, replicated_linear, row_linear
from planner.families.composite import Tower, assemble, part_of, renamed, text_model
from planner.families.multimodal import fixed_size_facts
from planner.families.qwen_vision import qwen_encoder_facts, vision_rotary_cache
from planner.families.vision_towers import EncoderStack, plain_linear, siglip_tower, vision_tensor
from planner.inventory import Buffer, EncoderFacts, Module

_FIRST_MINOR_ON_TRANSFORMERS_5 = 24


def _glm_ocr_tower(view: ConfigView, text: ConfigView) -> tuple[Module, ...]:
    """GLM-4.1V's blocks with biases and norms of Q and K, no learned positions; the merger is as wide as the text's MLP."""
    hidden, heads, out = view.integer("hidden_size"), view.integer("num_heads"), view.integer("out_hidden_size")
    merge, wide = view.integer("spatial_merge_size", default=2) ** 2, text.integer("intermediate_size")
    stack = EncoderStack(
        depth=view.integer("depth"),
        hidden_size=hidden,
        intermediate_size=view.integer("intermediate_size"),
        num_heads=heads,
        prefix="blocks",
        qkv="attn.qkv",
        output="attn.proj",
        up="mlp.up_proj",
        gate="mlp.gate_proj",
        down="mlp.down_proj",
        norms=("norm1", "norm2"),
        norms_have_bias=False,
        extras=(*norm("attn.q_norm", hidden // heads), *norm("attn.k_norm", hidden // heads)),
    )
    frames, channels = view.integer("temporal_patch_size", default=2), view.integer("in_channels", default=3)
    return (
        vision_tensor("patch_embed.proj", hidden, channels * frames * view.integer("patch_size") ** 2),
        vision_tensor("patch_embed.proj.bias", hidden),
        *stack.modules(),
        column_linear("merger.proj", out, out, role="projector"),
        *norm("merger.post_projection_norm", out, has_bias=True),
        column_linear("merger.gate_up_proj", out, wide, wide, role="projector"),
        row_linear("merger.down_proj", wide, out, role="projector"),
        *norm("post_layernorm", hidden),
        vision_tensor("downsample", out, hidden * merge),
        vision_tensor("downsample.bias", out),
        vision_rotary_cache(hidden // heads),
    )


def build_glm_ocr(given: FamilyInput) -> Built:
    """GLM-OCR: its tower and a GLM-4 language model."""
    vision = part_of(given, "vision_config")
    language = renamed(text_model(given, architecture="Glm4ForCausalLM"), "model.", "model.language_model.")
    facts = qwen_encoder_facts(vision, is_qwen3=False)
    tower = Tower(prefix="model.visual", modules=_glm_ocr_tower(vision, given.text), facts=facts)
    return assemble(given, language, [tower])


def _paddle_text(given: FamilyInput) -> ConfigView:
    """The text config, told whether the tables are tied: where the config is flat its class ties them whatever it says."""
    text = given.text
    if given.vllm_minor < _FIRST_MINOR_ON_TRANSFORMERS_5:
        return text
    is_flat = given.root.has("num_hidden_layers")
    is_tied = is_flat or given.root.flag("tie_word_embeddings", True) or text.flag("tie_word_embeddings", True)
    return ConfigView({**text.values, "tie_word_embeddings": is_tied}, text.path)


def build_paddleocr_vl(given: FamilyInput) -> Built:
    """PaddleOCR-VL: SigLIP with rotary positions as well, merged patches through two linears, ERNIE 4.5."""
    vision, view = part_of(given, "vision_config"), _paddle_text(given)
    hidden, text = vision.integer("hidden_size"), view.integer("hidden_size")
    merge = vision.integer("spatial_merge_size", default=2) ** 2
    rotary = hidden // vision.integer("num_attention_heads") // 4  # a quarter of a head: half of it, in pairs
    tower = (
        *siglip_tower(vision, has_last_norm=True),
        Buffer(name="encoder.rotary_pos_emb.inv_freq", shape=(rotary,), dtype="float32"),
    )
    link: tuple[Module, ...] = (
        *norm("pre_norm", hidden, has_bias=True),
        *plain_linear("linear_1", hidden * merge, hidden * merge),
        *plain_linear("linear_2", hidden * merge, text),
    )
    facts = fixed_size_facts(vision)
    towers = [
        Tower(prefix="visual.vision_model", modules=tower, modalities=("image",), facts=facts),
        Tower(prefix="mlp_AR", modules=link, modalities=("image",)),
    ]
    root = ConfigView(
        {**given.root.values, "tie_word_embeddings": view.flag("tie_word_embeddings", True)}, given.root.path
    )
    language = text_model(replace(given, root=root), architecture="Ernie4_5ForCausalLM", text=view)
    return assemble(given, renamed(language, "model.", "language_model.model."), towers)


def build_glm4v_chat(given: FamilyInput) -> Built:
    """GLM-4V-9B: EVA-2 CLIP, a convolution that folds four patches into one, a gated projector, ChatGLM."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    hidden, wide = vision.integer("hidden_size"), given.text.integer("ffn_hidden_size")
    stack = EncoderStack(
        depth=vision.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=vision.integer("intermediate_size"),
        num_heads=vision.integer("num_heads"),
        prefix="transformer.layers",
        qkv="attention.query_key_value",
        output="attention.dense",
        norms=("input_layernorm", "post_attention_layernorm"),
    )
    channels = vision.integer("in_channels", default=3) * vision.integer("patch_size") ** 2
    positions = vision.integer("num_positions")
    modules: tuple[Module, ...] = (
        *plain_linear("patch_embedding.proj", channels, hidden, role="vision"),
        vision_tensor("patch_embedding.cls_embedding", hidden),
        vision_tensor("patch_embedding.position_embedding", positions, hidden),
        *stack.modules(),
        *plain_linear("conv", hidden * 4, text),
        replicated_linear("linear_proj.linear_proj", text, text, role="projector"),
        *norm("linear_proj.norm1", text, has_bias=True),
        column_linear("linear_proj.merged_proj", text, wide, wide, role="projector"),
        row_linear("linear_proj.dense_4h_to_h", wide, text, role="projector"),
        vision_tensor("boi", text, role="projector"),
        vision_tensor("eoi", text, role="projector"),
    )
    facts = EncoderFacts(
        modality="image",
        hidden_size=hidden,
        intermediate_size=stack.intermediate_size,
        num_layers=stack.depth,
        num_heads=stack.num_heads,
        patch_tokens_per_item=positions - 1,
        output_tokens_per_item=(positions - 1) // 4,
    )
    tower = Tower(prefix="transformer.vision", modules=modules, modalities=("image",), facts=facts)
    return assemble(given, text_model(given, architecture="ChatGLMModel"), [tower])


BUILDERS: dict[str, Builder] = {
    "GLM4VForCausalLM": build_glm4v_chat,
    "GlmOcrForConditionalGeneration": build_glm_ocr,
    "PaddleOCRVLForConditionalGeneration": build_paddleocr_vl,
}
