"""Step-3 with its eyes: a CLIP-like tower, two convolutions that thin its patches out, one linear.

Source: step3_vl.py of vLLM 0.33, which gives the tower no quantisation.
"""

from __future__ import annotations

from planner.families import Builder, Built, FamilyInput
from planner.families.composite import Tower, assemble, part_of, renamed, text_model
from planner.families.multimodal import fixed_size_facts
from planner.families.vision_towers import EncoderStack, patch_count, plain_linear, vision_tensor
from planner.inventory import Buffer, Module

_FIRST_KERNEL, _SECOND_KERNEL = 2 * 2, 3 * 3


def _thinned(patches_a_side: int, stride: int) -> int:
    """Patches that two convolutions leave of a square image, the second with a stride of two."""
    first = (patches_a_side - 2) // stride + 1
    return ((first - 1) // 2 + 1) ** 2


def build_step3_vl(given: FamilyInput) -> Built:
    """Step-3."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    hidden, wide = vision.integer("hidden_size"), vision.integer("output_hidden_size")
    positions = patch_count(vision) + 1
    stack = EncoderStack(
        depth=vision.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=vision.integer("intermediate_size"),
        num_heads=vision.integer("num_attention_heads"),
        prefix="transformer.layers",
        is_quantizable=False,
    )
    channels = vision.integer("num_channels", default=3) * vision.integer("patch_size") ** 2
    tower: tuple[Module, ...] = (
        vision_tensor("embeddings.class_embedding", hidden),
        *plain_linear("embeddings.patch_embedding", channels, hidden, role="vision"),
        vision_tensor("embeddings.position_embedding", positions, hidden),
        Buffer(name="embeddings.position_ids", shape=(1, positions), dtype="int64"),
        *stack.modules(),
    )
    link: tuple[Module, ...] = (
        *plain_linear("vit_downsampler", hidden * _FIRST_KERNEL, wide),
        *plain_linear("vit_downsampler2", wide * _SECOND_KERNEL, 2 * wide),
        *plain_linear("vit_large_projector", 2 * wide, text, has_bias=given.root.flag("projector_bias", True)),
    )
    side = int(patch_count(vision) ** 0.5)
    tokens = _thinned(side, given.root.integer("understand_projector_stride", default=1))
    towers = [
        Tower(prefix="vision_model", modules=tower, modalities=("image",), facts=fixed_size_facts(vision, tokens)),
        Tower(prefix="", modules=link, modalities=("image",)),
    ]
    language = text_model(given, architecture="Step3TextForCausalLM")
    return assemble(given, renamed(language, "model.", "language_model.model."), towers)


BUILDERS: dict[str, Builder] = {"Step3VLForConditionalGeneration": build_step3_vl}
