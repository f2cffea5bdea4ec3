"""Between the form and the request: widget values in, `PlanRequest` out, and back. Pure; knows no Streamlit.

A value of None or "" is an empty field: the flag is not given. What values mean is read by `PlanRequest.from_mapping`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pages.parts.fields import ALL_FIELDS, SPECULATIVE_FIELDS, FlagField
from pages.parts.language import mark, t
from planner.facts import PlanError
from planner.gpu_catalog import find_gpu
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

Values = Mapping[str, Any]  # widget values by field name: None, str, int, float or bool

CUSTOM_CARD = mark("Custom size")
ON, OFF = mark("on"), mark("off")
SPECULATIVE_PREFIX = "speculative_"
FLAG_NAMES = frozenset(field.name for field in ALL_FIELDS)
FLAG_DEFAULTS = {field.name: field.default for field in fields(EngineFlags)}

_PLAIN_FIELDS = (
    "vllm_version", "usage_context", "model_runner", "compile_cache", "mean_length_tokens", "allow_long_max_model_len",
)  # fmt: skip
_GIB_FIELDS = {"gpu_memory_gib": "gpu_memory_bytes", "other_processes_gib": "other_processes_bytes"}
_KINDS = {field.name: field.kind for field in ALL_FIELDS}


def request_from(values: Values, *, model_id: str, revision: str | None, config_json: str | None) -> PlanRequest:
    """The request that the form's `values` describe; raises `PlanError` naming the field that cannot be read."""
    names = (*_PLAIN_FIELDS, *_GIB_FIELDS, *FLAG_NAMES)
    record: dict[str, object] = {name: values[name] for name in names if values.get(name) not in {None, ""}}
    gpu = values.get("gpu")
    if gpu in {None, CUSTOM_CARD} and "gpu_memory_gib" not in record:
        raise PlanError("gpu_memory_gib", None, t("Give the card's memory in GiB, as CUDA reports it, or pick a card."))
    record |= {
        "model_id": model_id,
        "revision": revision or None,
        "config_json": config_json,
        "gpu": None if gpu == CUSTOM_CARD else gpu,
        "speculative_config": _speculative(values),
    }
    return PlanRequest.from_mapping(record)


def values_from(request: PlanRequest) -> dict[str, Any]:
    """The form's values that describe `request`: `request_from` undone, the model apart.

    Raises `PlanError` for what no field of the form can hold: a link or a command may say anything.
    """
    values: dict[str, Any] = {name: getattr(request, name) for name in _PLAIN_FIELDS}
    values["gpu"] = _card_name(request)
    for field, source in _GIB_FIELDS.items():
        num_bytes = getattr(request, source)
        values[field] = num_bytes / GIB if num_bytes else None
    for flag in ALL_FIELDS:
        values[flag.name] = shown_flag(flag.name, getattr(request.flags, flag.name))
        _check_range(flag.name, flag, values[flag.name])
    speculative = request.flags.speculative_config
    for flag in SPECULATIVE_FIELDS:
        name = SPECULATIVE_PREFIX + flag.name
        values[name] = None if speculative is None else getattr(speculative, flag.name)
        _check_range(name, flag, values[name])
    if request.mean_length_tokens is not None and request.mean_length_tokens < 1:
        raise PlanError("mean_length_tokens", request.mean_length_tokens, t("mean_length_tokens must be at least 1."))
    return values


def shown_flag(name: str, value: object) -> Any:  # what a widget of that kind holds
    """`value` of the flag `name` as its widget holds it; None where it is the flag's own default."""
    if value == FLAG_DEFAULTS[name]:
        return None
    match _KINDS[name]:
        case "switch":
            return ON if value else OFF
        case "text":
            return _shown_text(value)
        case "number" if isinstance(value, int):
            return float(value)
        case _:
            return value


def _card_name(request: PlanRequest) -> str:
    """The catalogue's name of the card; a card that only has a size is a custom one."""
    try:
        return CUSTOM_CARD if request.gpu is None else find_gpu(request.gpu).name
    except PlanError:
        if request.gpu_memory_bytes is None:
            raise
        return CUSTOM_CARD


def _check_range(name: str, field: FlagField, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    most = field.most if field.most is not None else 2**53 - 1
    if not field.least <= value <= most:
        limit = (
            t("from {least} to {most}", least=f"{field.least:g}", most=f"{field.most:g}")
            if field.most is not None
            else t("of at least {least}", least=f"{field.least:g}")
        )
        raise PlanError(
            name, value, t("{name} is {value}; write a number {limit}.", name=name, value=value, limit=limit)
        )


def _speculative(values: Values) -> dict[str, object] | None:
    parts = {field.name: values.get(SPECULATIVE_PREFIX + field.name) for field in SPECULATIVE_FIELDS}
    return {name: part for name, part in parts.items() if part not in {None, ""}} or None


def _shown_text(value: object) -> str:
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple):
            return ", ".join(f"{kind}={number}" for kind, number in value)
        return " ".join(str(entry) for entry in value)
    return str(value)
