"""The longest length a model is served with: vLLM's derived length by release, and the check on a user's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from planner.facts import PlanError
from planner.inventory import ModelFacts
from planner.versions import Version

_LARGEST_SANE_LENGTH = 2**31


def _rope_sections(model: ModelFacts) -> Iterator[Mapping[str, object]]:
    config = model.text_config or model.config
    for name in ("rope_scaling", "rope_parameters"):
        section = config.get(name)
        if isinstance(section, Mapping):
            nested = [part for part in section.values() if isinstance(part, Mapping)]
            yield from nested or [section]
            return


def _rope_type(section: Mapping[str, object]) -> object:
    return section.get("rope_type", section.get("type"))


def derived_length(model: ModelFacts, version: Version) -> tuple[int, str]:
    """The longest length `version` allows for the model, and where it comes from.

    Up to 0.29 a YaRN section gave `original_max_position_embeddings * factor`; since 0.30 the config's length counts as scaled.
    """
    if version < (0, 30, 0) and "gemma3" not in model.model_type:
        for section in _rope_sections(model):
            original, factor = section.get("original_max_position_embeddings"), section.get("factor")
            if _rope_type(section) == "yarn" and _is_number(original) and _is_number(factor):
                length = int(float(str(original)) * float(str(factor)))
                if 0 < length <= _LARGEST_SANE_LENGTH:
                    return length, "YaRN: original_max_position_embeddings x factor, as vLLM counted up to 0.29"
    return model.max_position, "the model's own length (config.json)"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12


def default_length(model: ModelFacts, version: Version) -> tuple[int, str]:
    """The length when none is given: the derived one, or LongRoPE's original length since 0.12."""
    derived, note = derived_length(model, version)
    if version >= (0, 12, 0) and any(_rope_type(section) == "longrope" for section in _rope_sections(model)):
        config = model.text_config or model.config
        original = config.get("original_max_position_embeddings")
        if isinstance(original, int) and 0 < original < derived:
            return original, "LongRoPE: the original length unless asked for more"
    return derived, note


def serving_length(
    asked: int | Literal["auto"] | None, model: ModelFacts, version: Version, *, may_exceed: bool
) -> tuple[int, str]:
    """The `max_model_len` in force, and why; raises `PlanError` with vLLM's text when the model does not reach it."""
    if asked is None or asked == "auto":
        return default_length(model, version)
    derived, _ = derived_length(model, version)
    longest = model.config.get("model_max_length")
    limit = max(derived, longest) if isinstance(longest, int) and not isinstance(longest, bool) else derived
    if asked > limit and not may_exceed:
        text = (
            f"User-specified max_model_len ({asked}) is greater than the derived max_model_len "
            f"({derived} or model_max_length={longest} in model's config.json). To allow overriding this maximum, set "
            "the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1; positions beyond it give nonsense."
        )
        raise PlanError("max_model_len", asked, text)
    return asked, "asked for"
