"""Which encoder towers a rank builds: vLLM leaves out those that no prompt may feed."""

from __future__ import annotations

from dataclasses import dataclass

from planner.defaults import Resolved
from planner.inventory import ModelFacts, Part
from planner.versions import Version

_FIRST_LEFT_OUT = Version(0, 10, 0)  # not in 0.8.5, by some classes in 0.11
_FIRST_LEFT_OUT_BY_ALL = Version(
    0, 15, 0
)  # by 13 classes in 0.14, by `_mark_tower_model` in 0.19 (models/interfaces.py)
_EARLY_CLASSES = (
    "KeyeForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "Llama4ForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen2_5OmniModel",
    "Qwen2_5OmniForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
    "Step3VLForConditionalGeneration",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerRule:
    """What a rank leaves out: every tower, or those all of whose modalities are banned."""

    leaves_all: bool = False
    banned: frozenset[str] = frozenset()  # modalities that no prompt may hold

    def leaves_out(self, part: Part) -> bool:
        """Whether the part is a tower that this rank does not build."""
        return bool(part.modalities) and (self.leaves_all or self.banned >= set(part.modalities))


EVERY_TOWER = TowerRule()


def tower_rule(model: ModelFacts, resolved: Resolved) -> TowerRule:
    """The rule of the resolved flags; which pipeline stages hold towers is the part's own `stage`."""
    if resolved.flags.language_model_only:
        return TowerRule(leaves_all=True)
    is_early = model.architecture in _EARLY_CLASSES and resolved.version >= _FIRST_LEFT_OUT
    if not is_early and resolved.version < _FIRST_LEFT_OUT_BY_ALL:
        return EVERY_TOWER
    return TowerRule(banned=frozenset(name for name, limit in resolved.flags.limit_mm_per_prompt if limit == 0))
