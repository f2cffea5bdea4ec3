"""InternVL: InternViT, pixels shuffled into wider vectors, an MLP, any language model; in its own and Hugging Face's form.

Sources: internvl.py, interns1.py, intern_vit.py and interns1_vit.py of vLLM 0.33.
"""

from __future__ import annotations

from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import norm
from planner.families.composite import Tower, assemble, part_of, renamed, text_model
from planner.families.multimodal import fixed_size_facts, projector_pair
from planner.families.vision_towers import intern_hf_tower, intern_tower, patch_count, plain_linear


def build_internvl(given: FamilyInput) -> Built:
    """InternVL in the form of its own repositories (InternVLChatModel)."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    shuffle = _shuffle(given)
    width = int(vision.integer("hidden_size") / shuffle**2)
    projector = (
        *norm("0", width, has_bias=True),
        *plain_linear("1", width, text),
        *plain_linear("3", text, text),
    )
    tokens = int(patch_count(vision) * shuffle**2)
    towers = [
        Tower(
            prefix="vision_model",
            modules=intern_tower(vision, _select_layer(given)),
            facts=fixed_size_facts(vision, tokens),
        ),
        Tower(prefix="mlp1", modules=projector),
    ]
    return assemble(given, renamed(text_model(given), "model.", "language_model.model."), towers)


def _shuffle(given: FamilyInput) -> float:
    """The share of patches a side that is left after shuffling pixels into channels."""
    ratio = given.root.number("downsample_ratio", 0.5)
    if not 0 < ratio <= 1:
        raise PlanError(
            "downsample_ratio", ratio, f"config.json: downsample_ratio is {ratio}, but a share above 0 is needed."
        )
    return ratio


def _select_layer(given: FamilyInput) -> int:
    value = given.root.values.get("select_layer", -1)
    if isinstance(value, bool) or not isinstance(value, int):
        raise PlanError(
            "select_layer", value, f"config.json: select_layer is {value!r:.40}, but a whole number is needed."
        )
    return value


def build_internvl_hf(given: FamilyInput) -> Built:
    """InternVL and Intern-S1 in Hugging Face's form."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    shuffle = _shuffle(given)
    width = int(vision.integer("hidden_size") / shuffle**2)
    projector = (
        *norm("layer_norm", width, has_bias=True),
        *projector_pair(width, text, has_bias=True, is_sharded=False),
    )
    tokens = int(patch_count(vision) * shuffle**2)
    towers = [
        Tower(prefix="model.vision_tower", modules=intern_hf_tower(vision), facts=fixed_size_facts(vision, tokens)),
        Tower(prefix="model.multi_modal_projector", modules=projector),
    ]
    return assemble(given, renamed(text_model(given), "model.", "model.language_model."), towers)


BUILDERS: dict[str, Builder] = {
    "InternS1ForConditionalGeneration": build_internvl_hf,
    "InternVLChatModel": build_internvl,
    "InternVLForConditionalGeneration": build_internvl_hf,
}
