"""Nemotron Nano VL 2: RADIO's vision transformer, shuffled patches through two linears, Nemotron-H.

Sources: nano_nemotron_vl.py and radio.py of vLLM 0.33, which give the tower no quantisation.
"""

from __future__ import annotations

import math

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import norm
from planner.families.composite import Tower, assemble, part_of, renamed, text_model
from planner.families.vision_towers import EncoderStack, plain_linear, vision_tensor
from planner.inventory import Buffer, EncoderFacts, Module

# Width, depth, heads and MLP width of the transformers that `vision_config.args.model` may name.
_SIZES = {
    "vit_small_patch16_224": (384, 12, 6, 1536),
    "vit_base_patch16_224": (768, 12, 12, 3072),
    "vit_large_patch16_224": (1024, 24, 16, 4096),
    "vit_huge_patch16_224": (1280, 32, 16, 5120),
}


def _arguments(vision: ConfigView) -> ConfigView:
    arguments = vision.section("args")
    name = None if arguments is None else arguments.text("model")
    if arguments is None or name not in _SIZES:
        known = ", ".join(_SIZES)
        raise PlanError("vision_config.args.model", name, f"config.json: RADIO's model {name!r} is not one of {known}.")
    return arguments


def _stack(arguments: ConfigView) -> EncoderStack:
    width, depth, heads, wide = _SIZES[arguments.text("model") or ""]
    scales = (vision_tensor("ls1", width), vision_tensor("ls2", width))
    return EncoderStack(
        depth=depth,
        hidden_size=width,
        intermediate_size=wide,
        num_heads=heads,
        prefix="encoder.layers",
        qkv="attn.qkv",
        output="attn.proj",
        norms=("norm1", "norm2"),
        has_qkv_bias=arguments.flag("qkv_bias", True),
        is_quantizable=False,
        extras=scales,
        attention_whole_unless_divides=heads,
    )


def _leading_tokens(arguments: ConfigView) -> int:
    """Class tokens, one for each teacher, with registers up to a multiple of `register_multiple`."""
    names = {teacher.get("name") for teacher in arguments.items("teachers") or [] if isinstance(teacher, dict)}
    tokens = len(names) if arguments.flag("cls_token_per_teacher", False) else 1
    multiple = arguments.optional_integer("register_multiple")
    return tokens + (multiple - tokens % multiple if multiple else 0)


def _tower(vision: ConfigView, arguments: ConfigView, stack: EncoderStack) -> tuple[Module, ...]:
    patch, width = vision.integer("patch_size", default=16), stack.hidden_size
    side = math.ceil(round(arguments.integer("cpe_max_size", default=2048) / patch) * patch / patch)
    frames = vision.integer("video_temporal_patch_size", default=1)
    summaries = sum(
        bool(teacher.get("use_summary", True))
        for teacher in arguments.items("teachers") or []
        if isinstance(teacher, dict)
    )
    inputs = [3 * patch**2] + ([3 * frames * patch**2] if frames > 1 else [])
    return (
        *(vision_tensor(f"patch_generator.embedder_{size}", width, size) for size in inputs),
        vision_tensor("patch_generator.pos_embed", side**2, width),
        vision_tensor("patch_generator.cls_token", _leading_tokens(arguments), width),
        *stack.modules(),
        *(Buffer(name="summary_idxs", shape=(summaries,), dtype="int64") for _ in range(summaries > 0)),
    )


def build_nemotron_vl(given: FamilyInput) -> Built:
    """Nemotron Nano VL 2, without ears: a config that has a sound encoder is refused."""
    if given.root.section("sound_config") is not None:
        raise PlanError("sound_config", None, "config.json has a sound_config, an encoder that is not known here.")
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    arguments = _arguments(vision)
    stack = _stack(arguments)
    folded = round(1 / given.root.number("downsample_ratio", 0.5)) ** 2
    width, wide = given.root.integer("vit_hidden_size") * folded, given.root.integer("projector_hidden_size")
    has_norm = (given.text.optional_integer("num_nextn_predict_layers") or 0) > 0
    link: tuple[Module, ...] = (
        *(norm("vision_final_layernorm", given.root.integer("vit_hidden_size"), has_bias=True) if has_norm else ()),
        *norm("mlp1.0", width),
        *plain_linear("mlp1.1", width, wide, has_bias=False),
        *plain_linear("mlp1.3", wide, text, has_bias=False),
    )
    patches = (given.root.integer("force_image_size", default=512) // given.root.integer("patch_size", default=16)) ** 2
    facts = EncoderFacts(
        modality="image",
        hidden_size=stack.hidden_size,
        intermediate_size=stack.intermediate_size,
        num_layers=stack.depth,
        num_heads=stack.num_heads,
        patch_tokens_per_item=patches,
        output_tokens_per_item=patches // folded,
    )
    modalities = ("image", "video", "audio")
    towers = [
        Tower(prefix="vision_model", modules=_tower(vision, arguments, stack), modalities=modalities, facts=facts),
        Tower(prefix="", modules=link, modalities=modalities),
    ]
    language = text_model(given, architecture="NemotronHForCausalLM")
    return assemble(given, renamed(language, "backbone.", "language_model.backbone."), towers)


BUILDERS: dict[str, Builder] = {"NemotronH_Nano_VL_V2": build_nemotron_vl}
