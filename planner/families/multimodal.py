"""Models that read pictures: Qwen-VL, Gemma 3, Llama 4, Llava and its kin, Kimi-VL, GLM-4V, Idefics, PaliGemma.

Sources: the modules of the same names in vLLM 0.33. Those that read sound are in `audio_models`.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import column_linear, norm, replicated_linear, row_linear
from planner.families.composite import Tower, assemble, part_of, renamed, text_model
from planner.families.image_tiles import tiled_facts
from planner.families.qwen_vision import (
    glm4v_tower,
    qwen2_vl_tower,
    qwen3_vl_tower,
    qwen25_vl_tower,
    qwen_encoder_facts,
)
from planner.families.vision_towers import (
    EncoderStack,
    clip_tower,
    moonvit_tower,
    patch_count,
    pixtral_tower,
    plain_linear,
    siglip_tower,
    vision_tensor,
)
from planner.inventory import Buffer, EncoderFacts, Linear, Module

_FIRST_MINOR_WITH_SINGLE_MROPE = 32


def single_mrope(given: FamilyInput) -> ConfigView:
    """The text config without its multimodal rotary section, whose fourfold cache Qwen3-VL gave up in vLLM 0.32."""
    if given.vllm_minor < _FIRST_MINOR_WITH_SINGLE_MROPE:
        return given.text
    values = dict(given.text.values)
    for name in ("rope_scaling", "rope_parameters"):
        if isinstance(values.get(name), dict):
            values[name] = {key: value for key, value in values[name].items() if key != "mrope_section"}
    return ConfigView(values, given.text.path)


def build_qwen2_vl(given: FamilyInput) -> Built:
    """Qwen2-VL or Qwen2.5-VL: its tower and a Qwen2 language model."""
    vision = part_of(given, "vision_config")
    is_first = given.architecture.startswith("Qwen2VL")
    tower = Tower(
        prefix="visual",
        modules=qwen2_vl_tower(vision) if is_first else qwen25_vl_tower(vision),
        facts=qwen_encoder_facts(vision, is_qwen3=False),
    )
    language = renamed(text_model(given, architecture="Qwen2ForCausalLM"), "model.", "language_model.model.")
    return assemble(given, language, [tower])


def build_exaone45(given: FamilyInput) -> Built:
    """EXAONE 4.5: a tower like Qwen2.5-VL's and EXAONE 4."""
    vision = part_of(given, "vision_config")
    facts = qwen_encoder_facts(vision, is_qwen3=False)
    tower = Tower(prefix="visual", modules=qwen25_vl_tower(vision), facts=facts)
    language = renamed(text_model(given, architecture="Exaone4ForCausalLM"), "model.", "language_model.model.")
    return assemble(given, language, [tower])


def build_qwen3_vl(given: FamilyInput) -> Built:
    """Qwen3-VL, dense or with experts."""
    vision = part_of(given, "vision_config")
    name = "Qwen3MoeForCausalLM" if "Moe" in given.architecture else "Qwen3ForCausalLM"
    language = text_model(given, architecture=name, text=single_mrope(given))
    return assemble(given, renamed(language, "model.", "model.language_model."), [_qwen3_tower(vision)])


def _qwen3_tower(vision: ConfigView) -> Tower:
    facts = qwen_encoder_facts(vision, is_qwen3=True)
    return Tower(prefix="model.visual", modules=qwen3_vl_tower(vision), facts=facts)


def build_qwen35(given: FamilyInput) -> Built:
    """Qwen3.5 with its tower; the later checkpoints of the line use the same classes."""
    name = "Qwen3_5MoeForCausalLM" if "Moe" in given.architecture else "Qwen3_5ForCausalLM"
    language = renamed(text_model(given, architecture=name), "model.", "model.language_model.")
    return assemble(given, language, [_qwen3_tower(part_of(given, "vision_config"))])


def build_glm4v(given: FamilyInput) -> Built:
    """GLM-4.1V and GLM-4.5V."""
    vision = part_of(given, "vision_config")
    name = "Glm4MoeForCausalLM" if "Moe" in given.architecture else "Glm4ForCausalLM"
    language = renamed(text_model(given, architecture=name), "model.", "model.language_model.")
    facts = qwen_encoder_facts(vision, is_qwen3=False)
    facts = replace(facts, intermediate_size=vision.integer("out_hidden_size"))
    return assemble(given, language, [Tower(prefix="model.visual", modules=glm4v_tower(vision), facts=facts)])


# Llava and its kin: a CLIP, SigLIP or Pixtral tower, a projector of two linears, any language model.


def fixed_size_facts(view: ConfigView, output_tokens: int | None = None) -> EncoderFacts:
    """The sizes of a tower that takes square images of one size."""
    patches = patch_count(view)
    return EncoderFacts(
        modality="image",
        hidden_size=view.integer("hidden_size"),
        intermediate_size=view.integer("intermediate_size"),
        num_layers=view.integer("num_hidden_layers"),
        num_heads=view.integer("num_attention_heads"),
        patch_tokens_per_item=patches,
        output_tokens_per_item=output_tokens or patches,
    )


def _feature_layers(given: FamilyInput) -> object:
    return given.root.values.get("vision_feature_layer", -2)


def _llava_tower(given: FamilyInput, vision: ConfigView) -> tuple[Module, ...]:
    kind, layers = vision.text("model_type"), _feature_layers(given)
    if kind == "clip_vision_model":
        return clip_tower(vision, layers)
    if kind == "siglip_vision_model":
        return siglip_tower(vision, layers)
    if kind == "pixtral":
        return pixtral_tower(vision, layers)
    raise PlanError(
        "vision_config.model_type", kind, f"config.json: the vision tower {kind!r} is not one that Llava takes."
    )


def projector_pair(size_in: int, size_out: int, *, has_bias: bool, is_sharded: bool = True) -> tuple[Module, ...]:
    """A projector of two linears, divided by TP or whole on every rank."""
    if not is_sharded:
        first = plain_linear("linear_1", size_in, size_out, has_bias=has_bias)
        return (*first, *plain_linear("linear_2", size_out, size_out, has_bias=has_bias))
    return (
        column_linear("linear_1", size_in, size_out, role="projector", has_bias=has_bias),
        row_linear("linear_2", size_out, size_out, role="projector", has_bias=has_bias),
    )


def build_llava(given: FamilyInput) -> Built:
    """Llava, Llava-NeXT, Llava-OneVision, and Pixtral in its Hugging Face form."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    layers = _feature_layers(given)
    width = vision.integer("hidden_size") * (len(layers) if isinstance(layers, list) else 1)
    has_bias = given.root.flag("multimodal_projector_bias", True)
    is_onevision = given.architecture.startswith("LlavaOnevision")
    newline = () if given.architecture == "LlavaForConditionalGeneration" else (vision_tensor("image_newline", text),)
    tower = Tower(
        prefix="vision_tower.vision_model",
        modules=_llava_tower(given, vision),
        modalities=("image", "video") if is_onevision else ("image",),
        facts=tiled_facts(given, vision, fixed_size_facts(vision)),
    )
    projector = projector_pair(width, text, has_bias=has_bias, is_sharded=not is_onevision)
    link = Tower(prefix="multi_modal_projector", modules=(*projector, *newline), modalities=tower.modalities)
    language = renamed(text_model(given), "model.", "language_model.model.")
    return assemble(given, language, [tower, link])


def build_mistral3(given: FamilyInput) -> Built:
    """Mistral Small 3.1 and its kin: a Pixtral tower, a patch merger, a Mistral language model."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    width, merge = vision.integer("hidden_size"), given.root.integer("spatial_merge_size", default=2)
    layers = given.root.values.get("vision_feature_layer", -1)
    has_bias = given.root.flag("multimodal_projector_bias", False)
    projector = (
        *norm("norm", width),
        *plain_linear("patch_merger.merging_layer", width * merge**2, width, has_bias=False),
        *projector_pair(width * (len(layers) if isinstance(layers, list) else 1), text, has_bias=has_bias),
    )
    facts = fixed_size_facts(vision, patch_count(vision) // merge**2)
    towers = [
        Tower(prefix="vision_tower", modules=pixtral_tower(vision, layers), modalities=("image",), facts=facts),
        Tower(prefix="multi_modal_projector", modules=projector, modalities=("image",)),
    ]
    return assemble(given, renamed(text_model(given), "model.", "language_model.model."), towers)


def build_gemma3(given: FamilyInput) -> Built:
    """Gemma 3 with its SigLIP tower and a bare projection."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    width = vision.integer("hidden_size")
    projector = (
        vision_tensor("mm_input_projection_weight", width, text, role="projector"),
        *norm("mm_soft_emb_norm", width),
    )
    tokens = given.root.integer("mm_tokens_per_image", default=256)
    towers = [
        Tower(
            prefix="vision_tower.vision_model",
            modules=siglip_tower(vision, has_last_norm=True),
            modalities=("image",),
            facts=fixed_size_facts(vision, tokens),
        ),
        Tower(prefix="multi_modal_projector", modules=projector, modalities=("image",)),
    ]
    language = text_model(given, architecture="Gemma3ForCausalLM")
    return assemble(given, renamed(language, "model.", "language_model.model."), towers)


def build_paligemma(given: FamilyInput) -> Built:
    """PaliGemma: SigLIP, one linear, Gemma or Gemma 2."""
    vision = part_of(given, "vision_config")
    size = vision.integer("projection_dim", default=given.text.integer("hidden_size"))
    projector = plain_linear("linear", vision.integer("hidden_size"), size)
    towers = [
        Tower(
            prefix="vision_tower.vision_model",
            modules=siglip_tower(vision, has_last_norm=True),
            modalities=("image",),
            facts=fixed_size_facts(vision),
        ),
        Tower(prefix="multi_modal_projector", modules=projector, modalities=("image",)),
    ]
    return assemble(given, renamed(text_model(given), "model.", "language_model.model."), towers)


def build_idefics3(given: FamilyInput) -> Built:
    """Idefics3 and SmolVLM: a SigLIP tower, pixels shuffled into wider vectors, one linear on every rank."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    scale = given.root.integer("scale_factor", default=2)
    width = vision.integer("hidden_size") * scale**2
    facts = fixed_size_facts(vision, patch_count(vision) // scale**2)
    towers = [
        Tower(
            prefix="model.vision_model",
            modules=siglip_tower(vision, has_last_norm=True, has_position_ids=False),
            modalities=("image",),
            facts=facts,
        ),
        Tower(
            prefix="model.connector",
            modules=(replicated_linear("modality_projection.proj", width, text, role="projector"),),
            modalities=("image",),
        ),
    ]
    language = text_model(given, architecture="LlamaForCausalLM")
    return assemble(given, renamed(language, "model.", "model.text_model."), towers)


# Kimi-VL and Kimi-K2.5: MoonViT and a DeepSeek-V3 language model.


def frame_positions(vision: ConfigView, width: int) -> tuple[Buffer, ...]:
    """The float32 table of positions in time that Kimi-K2.5's tower keeps for its video frames."""
    frames = vision.integer("init_pos_emb_time", default=4)
    return (Buffer(name="patch_embed.pos_emb.time_weight", shape=(frames, width), dtype="float32"),)


def moonvit_merge(vision: ConfigView) -> int:
    """Patches that MoonViT's projector merges into one token."""
    return _product(vision.items("merge_kernel_size") or [2, 2])


def without_compression(given: FamilyInput, modules: tuple[Module, ...]) -> tuple[Module, ...]:
    """`modules` unquantised where the checkpoint is compressed-tensors', which these classes keep from their towers."""
    views = (given.root, given.root.section("text_config"))
    settings = [view.section("quantization_config") for view in views if view is not None]
    if not any(view.text("quant_method") == "compressed-tensors" for view in settings if view is not None):
        return modules
    return tuple(replace(module, quantizable=False) if isinstance(module, Linear) else module for module in modules)


def moonvit_facts(vision: ConfigView) -> EncoderFacts:
    """What the activation estimate needs of a MoonViT tower."""
    patches = _product(
        [vision.integer("init_pos_emb_height", default=64), vision.integer("init_pos_emb_width", default=64)]
    )
    return EncoderFacts(
        modality="image",
        hidden_size=vision.integer("hidden_size", "vt_hidden_size"),
        intermediate_size=vision.integer("intermediate_size", "vt_intermediate_size"),
        num_layers=vision.integer("num_hidden_layers", "vt_num_hidden_layers"),
        num_heads=vision.integer("num_attention_heads", "vt_num_attention_heads"),
        patch_tokens_per_item=patches,
        output_tokens_per_item=patches // moonvit_merge(vision),
    )


def build_kimi_vl(given: FamilyInput) -> Built:
    """Kimi-VL, and Kimi-K2.5, whose tower is whole on every rank where TP does not divide its heads."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    is_k25 = given.architecture.startswith("KimiK25")
    hidden = vision.integer("hidden_size", "vt_hidden_size")
    width = hidden * moonvit_merge(vision)
    heads = vision.integer("num_attention_heads", "vt_num_attention_heads")
    modalities = ("vision_chunk",) if is_k25 else ("image",)
    facts = moonvit_facts(vision)
    projector: tuple[Module, ...] = (
        *norm("pre_norm", hidden, has_bias=True),
        replicated_linear("linear_1", width, width, role="projector", has_bias=True),
        replicated_linear("linear_2", width, text, role="projector", has_bias=True),
    )
    tower = moonvit_tower(vision)
    if is_k25:
        tower, projector = without_compression(given, tower), without_compression(given, projector)
    towers = [
        Tower(
            prefix="vision_tower",
            modules=(*tower, *(frame_positions(vision, hidden) if is_k25 else ())),
            modalities=modalities,
            facts=facts,
            whole_unless_divides=heads if is_k25 else None,
        ),
        Tower(prefix="mm_projector" if is_k25 else "multi_modal_projector", modules=projector, modalities=modalities),
    ]
    language = text_model(given, architecture="DeepseekV3ForCausalLM")
    return assemble(given, renamed(language, "model.", "language_model.model."), towers)


def _product(values: list[object]) -> int:
    total = 1
    for value in values:
        total *= ConfigView({"merge_kernel_size": value}).integer("merge_kernel_size")
    return total


# Llama 4: unfolded patches, a transformer with rotary positions, a pixel-shuffling adapter.


def build_llama4(given: FamilyInput) -> Built:
    """Llama 4 with its vision tower."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    hidden, heads = vision.integer("hidden_size"), vision.integer("num_attention_heads")
    patch = vision.integer("patch_size")
    stack = EncoderStack(
        depth=vision.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=vision.integer("intermediate_size"),
        num_heads=heads,
        prefix="model.layers",
        projections=tuple(f"self_attn.{name}_proj" for name in "qkv"),
        output="self_attn.o_proj",
        norms=("input_layernorm", "post_attention_layernorm"),
    )
    positions = patch_count(vision) + 1
    inner, out = vision.integer("projector_input_dim"), vision.integer("projector_output_dim")
    has_bias = vision.flag("multi_modal_projector_bias", False)
    modules: tuple[Module, ...] = (
        column_linear(
            "patch_embedding.linear", vision.integer("num_channels", default=3) * patch**2, hidden, role="vision"
        ),
        vision_tensor("class_embedding", hidden),
        vision_tensor("positional_embedding_vlm", positions, hidden),
        *norm("layernorm_pre", hidden, has_bias=True),
        *norm("layernorm_post", hidden, has_bias=True),
        *stack.modules(),
        Buffer(name="vision_rotary", shape=(positions, hidden // heads // 2, 2), dtype="float32"),  # complex numbers
        column_linear(
            "vision_adapter.mlp.fc1", vision.integer("intermediate_size"), inner, role="projector", has_bias=has_bias
        ),
        row_linear("vision_adapter.mlp.fc2", inner, out, role="projector", has_bias=has_bias),
    )
    link: tuple[Module, ...] = (column_linear("linear_1", vision.integer("vision_output_dim"), text, role="projector"),)
    tokens = int(patch_count(vision) * vision.number("pixel_shuffle_ratio", 0.5) ** 2)
    towers = [
        Tower(prefix="vision_model", modules=modules, modalities=("image",), facts=fixed_size_facts(vision, tokens)),
        Tower(prefix="multi_modal_projector", modules=link, modalities=("image",)),
    ]
    language = text_model(given, architecture="Llama4ForCausalLM")
    return assemble(given, renamed(language, "model.", "language_model.model."), towers)


BUILDERS: dict[str, Builder] = {
    "Exaone4_5_ForConditionalGeneration": build_exaone45,
    "Gemma3ForConditionalGeneration": build_gemma3,
    "Glm4vForConditionalGeneration": build_glm4v,
    "Glm4vMoeForConditionalGeneration": build_glm4v,
    "Idefics3ForConditionalGeneration": build_idefics3,
    "KimiK25ForConditionalGeneration": build_kimi_vl,
    "KimiVLForConditionalGeneration": build_kimi_vl,
    "LightOnOCRForConditionalGeneration": build_mistral3,
    "Llama4ForConditionalGeneration": build_llama4,
    "LlavaForConditionalGeneration": build_llava,
    "LlavaNextForConditionalGeneration": build_llava,
    "LlavaOnevisionForConditionalGeneration": build_llava,
    "Mistral3ForConditionalGeneration": build_mistral3,
    "PaliGemmaForConditionalGeneration": build_paligemma,
    "Qwen2VLForConditionalGeneration": build_qwen2_vl,
    "Qwen2_5_VLForConditionalGeneration": build_qwen2_vl,
    "Qwen3VLForConditionalGeneration": build_qwen3_vl,
    "Qwen3VLMoeForConditionalGeneration": build_qwen3_vl,
    "Qwen3_5ForConditionalGeneration": build_qwen35,
    "Qwen3_5MoeForConditionalGeneration": build_qwen35,
    "SmolVLMForConditionalGeneration": build_idefics3,
}
