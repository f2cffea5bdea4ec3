"""What-if tables: the same plan with one flag changed, several values of it side by side. Pure; knows no Streamlit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pages.parts.language import mark
from planner.answer import Plan
from planner.budget import plan
from planner.calibration import Calibration
from planner.facts import PlanError
from planner.inventory import ModelFacts
from planner.request import PlanRequest
from planner.sweep import SweepSlice, sweep

_UTILIZATIONS = (0.80, 0.85, 0.90, 0.92, 0.95)
_KV_DTYPES = ("auto", "fp8", "nvfp4", "turboquant_4bit_nc")
_LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072, 262144, 1048576)
_TENSOR_PARALLEL = (1, 2, 4, 8)
_LENGTHS_BELOW, _LENGTHS_ABOVE = 3, 2

Value = float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One value of the changed flag: the plan it leads to, or why vLLM would refuse it."""

    value: Value
    is_present: bool  # the value that the plan has now
    plan: Plan | None
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The trials of one flag, smallest value first."""

    flag: str
    title: str
    trials: tuple[Trial, ...]


def what_ifs(
    request: PlanRequest, model: ModelFacts, present: Plan, calibration: Calibration | None = None
) -> tuple[WhatIf, ...]:
    """Four tables around `present`, the plan of `request`: length, utilisation, KV format and cards."""
    flags = request.flags
    length = present.pool.max_model_len
    utilization = _utilization(present)
    asked: tuple[tuple[str, str, tuple[Value, ...], Value], ...] = (
        ("max_model_len", mark("Longest request"), _lengths(length, model.max_position), length),
        ("gpu_memory_utilization", mark("Share of the card"), _UTILIZATIONS, utilization),
        ("kv_cache_dtype", mark("Format of keys and values"), _KV_DTYPES, flags.kv_cache_dtype),
        ("tensor_parallel_size", mark("Cards that share each layer"), _TENSOR_PARALLEL, flags.tensor_parallel_size),
    )
    make = partial(plan, model=model, calibration=calibration)
    return tuple(
        WhatIf(flag=flag, title=title, trials=_trials(request, make, present, (flag, _with(values, now), now)))
        for flag, title, values, now in asked
    )


def length_sweep(
    request: PlanRequest, model: ModelFacts, present: Plan, calibration: Calibration | None = None
) -> tuple[SweepSlice, ...]:
    """Requests at once over all lengths: as planned, with fp8 keys and values, and with twice the cards."""
    flags = request.flags
    tp, dtype = flags.tensor_parallel_size, flags.kv_cache_dtype
    lengths = _swept_lengths(model.max_position)
    return sweep(
        request,
        model,
        utilizations=(_utilization(present),),
        max_model_lens=lengths,
        variants=tuple(dict.fromkeys([(tp, dtype), (tp, "fp8"), (2 * tp, dtype)])),
        calibration=calibration,
    )


def _swept_lengths(longest: int) -> tuple[int, ...]:
    """Four lengths an octave from 1,024 tokens to the model's longest, ends included."""
    steps = range(4 * max(0, longest.bit_length() - 10))
    rounded = {round(1024 * 2 ** (step / 4)) for step in steps}
    return tuple(sorted({length for length in rounded if length < longest} | {longest}))


def _utilization(plan: Plan) -> float:
    return float(str(next(item.value for item in plan.resolved if item.name == "gpu_memory_utilization")))


def _trials(
    request: PlanRequest,
    make: Callable[[PlanRequest], Plan],
    present: Plan,
    asked: tuple[str, tuple[Value, ...], Value],
) -> tuple[Trial, ...]:
    flag, values, now = asked
    return tuple(
        Trial(value=value, is_present=True, plan=present) if value == now else _trial(request, make, flag, value)
        for value in values
    )


def _trial(request: PlanRequest, make: Callable[[PlanRequest], Plan], flag: str, value: Value) -> Trial:
    try:
        change: dict[str, Any] = {flag: value}  # a value of that flag's own type
        changed = replace(request, flags=replace(request.flags, **change))
        return Trial(value=value, is_present=False, plan=make(changed))
    except PlanError as error:
        return Trial(value=value, is_present=False, plan=None, refusal=error.text)


def _with(values: tuple[Value, ...], now: Value) -> tuple[Value, ...]:
    """`values` with the present one among them; numbers in order."""
    if now in values:
        return values
    return (*values, now) if isinstance(now, str) else tuple(sorted((*values, now), key=float))


def _lengths(now: int, longest: int) -> tuple[Value, ...]:
    """Round lengths around the present one, none beyond what the model allows."""
    below = [length for length in _LENGTHS if length < now][-_LENGTHS_BELOW:]
    above = sorted({length for length in (*_LENGTHS, longest) if now < length <= longest})[:_LENGTHS_ABOVE]
    return (*below, now, *above)
