"""Small models that read documents: GLM-OCR and PaddleOCR-VL.

Sources: glm_ocr.py and paddleocr_vl.py of vLLM 0.33.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import column_linear, norm, row_linear
from planner.families.composite import Tower, assemble, part_of, renamed, text_model
from planner.families.multimodal import fixed_size_facts
from planner.families.qwen_vision import qwen_encoder_facts, vision_rotary_cache
from planner.families.vision_towers import EncoderStack, plain_linear, siglip_tower, vision_tensor
from planner.inventory import Buffer, Module

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


BUILDERS: dict[str, Builder] = {
    "GlmOcrForConditionalGeneration": build_glm_ocr,
    "PaddleOCRVLForConditionalGeneration": build_paddleocr_vl,
}
