"""Between the form and the request: widget values in, `PlanRequest` out, and back. Pure; knows no Streamlit.

A value of None or "" is an empty field: the flag is not given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pages.parts.fields import ALL_FIELDS, SPECULATIVE_FIELDS
from planner.facts import PlanError
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.units import GIB

Values = Mapping[str, Any]  # widget values by field name: None, str, int, float

CUSTOM_CARD = "Custom size"
ON, OFF = "on", "off"
SPECULATIVE_PREFIX = "speculative_"
ENVIRONMENT_FIELDS = ("vllm_version", "usage_context", "model_runner", "compile_cache")

FLAG_NAMES = frozenset(field.name for field in ALL_FIELDS)
_FLAG_DEFAULTS = {field.name: field.default for field in fields(EngineFlags)}
_KINDS = {field.name: field.kind for field in ALL_FIELDS}
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT])?")


def request_from(values: Values, *, model_id: str, revision: str | None, config_json: str | None) -> PlanRequest:
    """The request that the form's `values` describe; raises `PlanError` naming the field that cannot be read."""
    gpu = values.get("gpu")
    total_gib = values.get("gpu_memory_gib")
    if gpu in {None, CUSTOM_CARD} and total_gib is None:
        raise PlanError("gpu_memory_gib", None, "Give the card's memory in GiB, as CUDA reports it, or pick a card.")
    return PlanRequest(
        model_id=model_id,
        revision=revision or None,
        config_json=config_json,
        gpu=None if gpu == CUSTOM_CARD else gpu,
        gpu_memory_bytes=None if total_gib is None else round(total_gib * GIB),
        other_processes_bytes=round((values.get("other_processes_gib") or 0) * GIB),
        mean_length_tokens=values.get("mean_length_tokens"),
        flags=_flags(values),
        **{name: values[name] for name in ENVIRONMENT_FIELDS if values.get(name)},
    )


def values_from(request: PlanRequest) -> dict[str, Any]:
    """The form's values that describe `request`: `request_from` undone (the model apart)."""
    values: dict[str, Any] = {name: getattr(request, name) for name in ENVIRONMENT_FIELDS}
    values["gpu"] = request.gpu or CUSTOM_CARD
    values["gpu_memory_gib"] = None if request.gpu_memory_bytes is None else request.gpu_memory_bytes / GIB
    values["other_processes_gib"] = request.other_processes_bytes / GIB or None
    values["mean_length_tokens"] = request.mean_length_tokens
    for field in ALL_FIELDS:
        values[field.name] = shown_flag(field.name, getattr(request.flags, field.name))
    speculative = request.flags.speculative_config
    for field in SPECULATIVE_FIELDS:
        values[SPECULATIVE_PREFIX + field.name] = None if speculative is None else getattr(speculative, field.name)
    return values


def shown_flag(name: str, value: object) -> Any:  # what a widget of that kind holds
    """`value` of the flag `name` as its widget holds it; None where it is the flag's own default."""
    if value == _FLAG_DEFAULTS[name]:
        return None
    match _KINDS[name]:
        case "switch":
            return ON if value else OFF
        case "text":
            return _shown_text(value)
        case _:
            return value


def whole_number(field: str, text: str) -> int:
    """`text` as vLLM reads a count: 32768, 32k (thousand), 32K (1024), 2.5k; raises `PlanError` for anything else."""
    match = _SUFFIXED.fullmatch(text.replace(",", "").strip())
    if match is None or ("." in match[1] and match[2] not in set("kmgt")):
        raise PlanError(field, text, f"{field} is {text!r:.40}; write a whole number such as 32768, 32k or 32K.")
    return round(float(match[1]) * _SUFFIXES[match[2]]) if match[2] else int(match[1])


def _flags(values: Values) -> EngineFlags:
    given = {field.name: values.get(field.name) for field in ALL_FIELDS}
    read = {name: _flag_value(name, value) for name, value in given.items() if value not in {None, ""}}
    return EngineFlags(**read, speculative_config=_speculative(values))


def _flag_value(name: str, value: Any) -> Any:
    """A widget's value as the flag's own type."""
    if _KINDS[name] == "switch":
        return value == ON
    if _KINDS[name] != "text":
        return value
    match name:
        case "max_model_len":
            return "auto" if value.strip().lower() in {"auto", "-1"} else whole_number(name, value)
        case "cudagraph_capture_sizes":
            return tuple(whole_number(name, entry) for entry in re.split(r"[\s,\[\]]+", value) if entry)
        case "limit_mm_per_prompt":
            return _limits(value)
        case _:
            return whole_number(name, value)


def _limits(text: str) -> tuple[tuple[str, int], ...]:
    """Pairs of "image=2, video=0"."""
    pairs = [entry.partition("=") for entry in re.split(r"[\s,]+", text.strip()) if entry]
    if not all(kind and sign for kind, sign, _ in pairs):
        raise PlanError(
            "limit_mm_per_prompt", text, f"limit_mm_per_prompt is {text!r:.40}; write it like image=2, video=0."
        )
    return tuple((kind, whole_number("limit_mm_per_prompt", number)) for kind, _, number in pairs)


def _speculative(values: Values) -> SpeculativeConfig | None:
    given = {field.name: values.get(SPECULATIVE_PREFIX + field.name) or None for field in SPECULATIVE_FIELDS}
    if given["method"] is None:
        return None
    if given["num_speculative_tokens"] is None:
        text = "Speculative decoding needs num_speculative_tokens: how many tokens are guessed in each step."
        raise PlanError(SPECULATIVE_PREFIX + "num_speculative_tokens", None, text)
    return SpeculativeConfig(**given)


def _shown_text(value: object) -> str:
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple):
            return ", ".join(f"{kind}={number}" for kind, number in value)
        return " ".join(str(entry) for entry in value)
    return str(value)
