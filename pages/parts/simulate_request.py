"""What the Simulate page is asked: pool, flags, workload and seed as one value, and its compact form for the link.

Pure; knows no Streamlit. The requests and the engine that a value describes are made by `simulate_setup`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from pages.parts.language import t
from planner.facts import PlanError

LESSON, BURST, LONG, FRAGMENTATION = "lesson", "long_prompt_burst", "long_generations", "fragmentation"
DRAWN, TABLE, FILE = "drawn", "table", "file"
WORKLOADS = (LESSON, BURST, LONG, FRAGMENTATION, DRAWN, TABLE, FILE)
FAILURES = (BURST, LONG, FRAGMENTATION)
TOY, PLAN = POOLS = ("toy", "plan")
MOST_ROWS = 40  # a hand-made table; more come as a file
_LONGEST_LINK = 3_000
_BETWEEN, _INSIDE, _ROWS, _CELLS = "~", ".", "_", "-"
_CHOICES = {
    "workload": WORKLOADS,
    "pool": POOLS,
    "scheduling_policy": ("fcfs", "priority"),
    "prompt_kind": ("fixed", "uniform", "lognormal", "bimodal", "percentiles"),
    "output_kind": ("fixed", "uniform", "lognormal", "bimodal", "percentiles"),
    "arrivals": ("at_once", "poisson", "bursty", "steady"),
    "arrivals_in": ("steps", "seconds"),
    "step_time": ("fixed", "card"),
    "tier_policy": ("lru", "arc"),
    "load_rule": ("always", "when_faster"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One hand-made request; requests with the same `prefix` begin with the same `prefix_tokens` tokens."""

    arrival_step: int
    num_prompt_tokens: int
    num_output_tokens: int
    prefix: int = 0  # 0: shares nothing
    prefix_tokens: int = 0
    priority: int = 0


# Six requests that show it all in one minute; `simulate_lesson` says where to look.
LESSON_ROWS = (
    TableRow(arrival_step=0, num_prompt_tokens=18, num_output_tokens=22, prefix=1, prefix_tokens=12),
    TableRow(arrival_step=2, num_prompt_tokens=16, num_output_tokens=16, prefix=1, prefix_tokens=12),
    TableRow(arrival_step=5, num_prompt_tokens=26, num_output_tokens=20),
    TableRow(arrival_step=8, num_prompt_tokens=10, num_output_tokens=8),
    TableRow(arrival_step=30, num_prompt_tokens=15, num_output_tokens=10, prefix=1, prefix_tokens=12),
    TableRow(arrival_step=31, num_prompt_tokens=20, num_output_tokens=8),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationInput:
    """Everything that the page's form says. Flags carry vLLM's names."""

    workload: str = LESSON
    seed: int = 7
    pool: str = TOY
    num_gpu_blocks: int = 21
    block_size: int = 4
    sliding_window: int = 0  # 0: one group of full attention
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 32
    max_model_len: int = 128
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"
    async_scheduling: bool = False
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    watermark: float = 0.0
    num_speculative_tokens: int = 0
    draft_acceptance: float = 0.7
    # a drawn workload
    num_requests: int = 200
    prompt_kind: str = "lognormal"
    prompt_mean: float = 400.0
    prompt_spread: float = 0.6
    prompt_low: int = 16
    prompt_high: int = 4_096
    prompt_long_mean: float = 3_000.0
    prompt_long_fraction: float = 0.1
    prompt_p50: float = 300.0
    prompt_p95: float = 1_500.0
    prompt_p99: float = 3_000.0
    output_kind: str = "lognormal"
    output_mean: float = 150.0
    output_spread: float = 0.6
    output_low: int = 4
    output_high: int = 2_048
    output_long_mean: float = 1_000.0
    output_long_fraction: float = 0.1
    output_p50: float = 120.0
    output_p95: float = 500.0
    output_p99: float = 1_000.0
    arrivals: str = "poisson"
    rate: float = 1.0
    burst_size: float = 8.0
    num_prefixes: int = 2
    prefix_tokens: int = 128
    shared_fraction: float = 0.5
    n: int = 1
    # a hand-made one
    rows: tuple[TableRow, ...] = LESSON_ROWS
    # arrivals by the clock
    arrivals_in: str = "steps"  # of a drawn workload
    step_time: str = "fixed"
    step_seconds: float = 0.03
    # below the card
    host_blocks: int = 0
    disk_blocks: int = 0
    host_gb_per_second: float = 50.0
    disk_gb_per_second: float = 5.0
    tier_policy: str = "lru"
    load_rule: str = "always"


FIRST = SimulationInput()
_NAMES = frozenset(field.name for field in fields(SimulationInput))
# Where each workload starts, as far as it differs from the first lesson.
_STARTS: dict[str, dict[str, Any]] = {
    DRAWN: {
        "num_gpu_blocks": 1_025,
        "block_size": 16,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2_048,
        "max_model_len": 8_192,
    },
    FILE: {
        "num_gpu_blocks": 8_193,
        "block_size": 16,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8_192,
        "max_model_len": 131_072,
    },
}


def start_of(workload: str) -> SimulationInput:
    """The input that a workload starts from; those of the failure presets get their flags from the preset."""
    return replace(FIRST, workload=workload, **_STARTS.get(workload, {}))


def to_link(asked: SimulationInput, start: SimulationInput, step: int) -> str:
    """The compact text of `asked` for a link: the workload, what differs from its `start`, and the step."""
    parts = [f"workload{_INSIDE}{asked.workload}"]
    for field in fields(SimulationInput):
        value = getattr(asked, field.name)
        if field.name != "workload" and value != getattr(start, field.name):
            parts.append(f"{field.name}{_INSIDE}{_text(value)}")
    if step:
        parts.append(f"step{_INSIDE}{step}")
    return _BETWEEN.join(parts)


def workload_of_link(text: str) -> str:
    """The workload that a link's text names; raises `PlanError` when there is none such."""
    workload = text.split(_BETWEEN, 1)[0].removeprefix(f"workload{_INSIDE}")
    if workload not in WORKLOADS:
        raise PlanError(
            "sim", workload[:40], t("The link's workload is none of {choices}.", choices=", ".join(WORKLOADS))
        )
    return workload


def from_link(text: str, start: SimulationInput) -> tuple[SimulationInput, int]:
    """The input and the step that a link's text holds, `start` being where its workload starts."""
    if len(text) > _LONGEST_LINK:
        raise PlanError(
            "sim",
            None,
            t("The link's simulation is longer than {most} characters.", most=f"{_LONGEST_LINK:,}"),
        )
    found: dict[str, Any] = {}
    step = 0
    for part in text.split(_BETWEEN)[1:]:
        name, _, value = part.partition(_INSIDE)
        if name == "step":
            step = _number(name, value, int)
        elif name not in _NAMES or name == "workload":
            raise PlanError("sim", name[:40], t("The link's simulation has no field {name}.", name=name[:40]))
        else:
            found[name] = _value(name, value, getattr(FIRST, name))
    return replace(start, **found), max(0, step)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return _ROWS.join(_CELLS.join(str(getattr(row, field.name)) for field in fields(TableRow)) for row in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _value(name: str, text: str, like: object) -> object:
    if isinstance(like, tuple):
        return _table(text)
    if isinstance(like, bool):
        return _choice(name, text, ("on", "off")) == "on"
    if isinstance(like, str):
        return _choice(name, text, _CHOICES[name])
    return _number(name, text, type(like))


def _table(text: str) -> tuple[TableRow, ...]:
    rows = text.split(_ROWS) if text else []
    if len(rows) > MOST_ROWS:
        raise PlanError(
            "sim",
            None,
            t("The link's table has {rows} rows; {most} are allowed.", rows=len(rows), most=MOST_ROWS),
        )
    return tuple(_row(number, row) for number, row in enumerate(rows, 1))


def _row(number: int, text: str) -> TableRow:
    cells = text.split(_CELLS)
    names = [field.name for field in fields(TableRow)]
    if len(cells) != len(names):
        raise PlanError(
            "sim",
            None,
            t("Row {number} of the link's table does not have {count} numbers.", number=number, count=len(names)),
        )
    return TableRow(
        **{name: _number(t("row {number}", number=number), cell, int) for name, cell in zip(names, cells, strict=True)}
    )


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise PlanError(
            "sim", text[:40], t("The link's {name} is none of {choices}.", name=name, choices=", ".join(choices))
        )
    return text


def _number(name: str, text: str, kind: type) -> Any:  # an int or a float, as `kind` says
    pattern = r"\d{1,12}" if kind is int else r"\d{1,9}(\.\d{1,17})?(e-?\d{1,2})?"
    if not re.fullmatch(pattern, text):
        raise PlanError("sim", text[:40], t("The link's {name} is not a number.", name=name))
    return kind(text)
