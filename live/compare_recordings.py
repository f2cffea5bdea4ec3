"""Two recordings side by side: the same quantity of one engine each, by time since its start, on one grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from live.chunks import Numbers, Times
from live.recording import Recording
from live.samples import COUNTER_FIELDS, GAUGE_FIELDS, NUMBER_FIELDS
from planner.facts import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One engine of one recording; time is counted from `start_ms` (None: its first tick)."""

    recording: Recording
    engine: str  # what stands before the names of its series, one of `engine_keys`
    start_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """`first[field]` and `second[field]` at `seconds` since either's start; NaN where one has nothing.

    Gauges are means of a step, counters what was added since the start, through restarts.
    """

    seconds: Numbers
    step_seconds: float
    fields: tuple[str, ...]
    first: dict[str, Numbers]
    second: dict[str, Numbers]


def engine_keys(recording: Recording) -> tuple[str, ...]:
    """The engines that a recording holds series of, in the order of their appearance."""
    found = (name.rpartition("/") for name in recording.summary().series)
    return tuple(dict.fromkeys(key for key, _, field in found if field in NUMBER_FIELDS))


def increase(numbers: Numbers) -> Numbers:
    """What a counter has added since its first value; a fall is a restart, after which it counts from 0."""
    known = np.flatnonzero(~np.isnan(numbers))
    added = np.full(len(numbers), np.nan)
    steps = np.diff(numbers[known])
    steps = np.where(steps < 0, numbers[known][1:], steps)
    added[known] = np.concatenate([np.zeros(min(1, known.size)), np.cumsum(steps)])
    return added


def means(time_ms: Times, numbers: Numbers, start_ms: int, width_ms: int, num_steps: int) -> Numbers:
    """The mean of each step `[start + i x width, ... + width)` over the ticks that have a number; NaN where none has."""
    step = (time_ms - start_ms) // width_ms
    kept = (step >= 0) & (step < num_steps) & ~np.isnan(numbers)
    counts = np.bincount(step[kept], minlength=num_steps)
    sums = np.bincount(step[kept], weights=numbers[kept], minlength=num_steps)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def align(first: Chosen, second: Chosen, fields: tuple[str, ...] | None = None, max_points: int = 1000) -> Aligned:
    """Both engines on one grid of at most `max_points` steps; `fields` None means all that either exports."""
    chosen = fields or _fields(first, second)
    starts = [_start_ms(side) for side in (first, second)]
    summaries = [side.recording.summary() for side in (first, second)]
    lengths_ms = [(summary.end_ms or 0) - start + 1 for summary, start in zip(summaries, starts, strict=True)]
    length_ms = max(1, *lengths_ms)
    # a step of two intervals at least: no step stays empty for a tick that came a little late
    width_ms = max(-(-length_ms // max_points), 2 * max(summary.interval_ms for summary in summaries))
    num_steps = -(-length_ms // width_ms)
    sides = [
        _side(side, start, chosen, width_ms, num_steps) for side, start in zip((first, second), starts, strict=True)
    ]
    return Aligned(
        seconds=np.arange(num_steps, dtype=np.float64) * (width_ms / 1000),
        step_seconds=width_ms / 1000,
        fields=chosen,
        first=sides[0],
        second=sides[1],
    )


def _fields(first: Chosen, second: Chosen) -> tuple[str, ...]:
    names = {*first.recording.summary().series, *second.recording.summary().series}
    return tuple(
        field
        for field in (*GAUGE_FIELDS, *COUNTER_FIELDS)
        if f"{first.engine}/{field}" in names or f"{second.engine}/{field}" in names
    )


def _start_ms(side: Chosen) -> int:
    keys = engine_keys(side.recording)
    if side.engine not in keys:
        text = f"{side.recording.path.name} has no engine {side.engine!r}; it has {', '.join(keys) or 'none'}."
        raise PlanError("engine", side.engine, text)
    return side.start_ms if side.start_ms is not None else side.recording.summary().start_ms or 0


def _side(side: Chosen, start_ms: int, fields: tuple[str, ...], width_ms: int, num_steps: int) -> dict[str, Numbers]:
    names = [f"{side.engine}/{field}" for field in fields]
    window = side.recording.window(names, start_ms)
    result = {}
    for field, name in zip(fields, names, strict=True):
        numbers = window.series(name)
        shown = increase(numbers) if field in COUNTER_FIELDS else numbers
        result[field] = means(window.time_ms, shown, start_ms, width_ms, num_steps)
    return result
