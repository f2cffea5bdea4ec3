"""The simulator's usage curve for a load that is known, at the speed that the engine was seen to have, beside the real curve.

What is predicted is memory, not speed: arrivals, prompts and lengths are the load's, how long a step takes is measured.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from live.chunks import Numbers, Times
from planner.schedule import Scheduler
from planner.sequence import SimulatedRequest
from planner.simulate import simulate
from planner.simulation import SimulationOptions
from planner.simulator_config import SimulatorConfig

_USUAL_STEP_SECONDS = 0.02  # assumed until the engine's speed is known: a small model's
_FASTEST_STEP_SECONDS = 1e-4
_PACE_SECONDS = 1.0  # shorter stretches tell more of when a scrape was answered than of the engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a step took from each moment on, counted in seconds from the load's start; hashable, so cacheable."""

    at_seconds: tuple[float, ...]
    step_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCurve:
    """The simulated pool over time: from `at_seconds[i]` to the next, `usage_fraction[i]` of it is in use."""

    at_seconds: Numbers
    usage_fraction: Numbers
    num_preemptions: int
    hit_tokens: int

    def usage_at(self, seconds: Numbers) -> Numbers:
        """The usage at some moments; NaN before the load begins."""
        places = np.searchsorted(self.at_seconds, seconds, side="right") - 1
        usage: Numbers = np.where(places >= 0, self.usage_fraction[np.maximum(places, 0)], 0.0)
        return np.where(seconds >= 0, usage, np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveError:
    """How far the expected curve is from the real one, in parts of the pool, over `num_points` samples in use."""

    mean_absolute_fraction: float
    largest_absolute_fraction: float
    num_points: int


class _MeasuredSteps:
    """The time of each simulated step, so that as many fit into each stretch as the engine took in it. Of one simulation."""

    def __init__(self, pace: Pace) -> None:
        self._starts = pace.at_seconds or (0.0,)
        self._steps = pace.step_seconds or (_USUAL_STEP_SECONDS,)
        passed = ((end - start) / step for (start, end), step in zip(pairwise(self._starts), self._steps, strict=False))
        self._counts = tuple(accumulate(passed, initial=0.0))  # steps from the first start to each
        self._now_seconds = 0.0
        self.ends_seconds: list[float] = []

    def __call__(self, scheduler: Scheduler) -> float:
        arrived = (each.request.arrival_seconds or 0.0 for each in (*scheduler.running, *scheduler.waiting))
        start = max(self._now_seconds, max(arrived, default=0.0))  # the clock skips an idle stretch
        self._now_seconds = self._after_a_step(start)
        self.ends_seconds.append(self._now_seconds)
        return self._now_seconds - start

    def _after_a_step(self, seconds: float) -> float:
        place = max(bisect_right(self._starts, seconds) - 1, 0)
        count = self._counts[place] + (seconds - self._starts[place]) / self._steps[place] + 1.0
        place = max(bisect_right(self._counts, count) - 1, 0)
        return self._starts[place] + (count - self._counts[place]) * self._steps[place]


def measured_pace(
    since_seconds: Numbers, running: Numbers, generation_tokens: Numbers, steps: Numbers | None = None
) -> Pace:
    """The engine's pace from its metrics, a second at a time: by its count of `steps` while it was busy throughout.

    Elsewhere, or where steps are not counted, a running request gains a token a step: seconds a step =
    ∫ running requests dt / tokens generated. Stretches are at least `_PACE_SECONDS` long.
    """
    counted = np.full_like(since_seconds, np.nan) if steps is None else steps
    is_known = ~(np.isnan(running) | np.isnan(generation_tokens))
    since_seconds, running, tokens, counted = (
        each[is_known] for each in (since_seconds, running, generation_tokens, counted)
    )
    places = _spaced(since_seconds, _PACE_SECONDS)
    found = [
        (float(since_seconds[start]), step)
        for start, end in pairwise(places.tolist())
        if (step := _step_seconds(*(each[start : end + 1] for each in (since_seconds, running, tokens, counted))))
    ]
    return Pace(
        at_seconds=tuple(round(start, 3) for start, _ in found), step_seconds=tuple(round(step, 6) for _, step in found)
    )


def _step_seconds(since_seconds: Numbers, running: Numbers, tokens: Numbers, steps: Numbers) -> float | None:
    """How long a step took in one stretch of samples; None where nothing ran."""
    passed = np.diff(since_seconds)
    if np.all(running > 0) and steps[-1] > steps[0]:
        return max(float(passed.sum() / (steps[-1] - steps[0])), _FASTEST_STEP_SECONDS)
    held, added = float(np.sum((running[1:] + running[:-1]) / 2 * passed)), float(tokens[-1] - tokens[0])
    return max(held / added, _FASTEST_STEP_SECONDS) if added > 0 and held > 0 else None


def _spaced(since_seconds: Numbers, least_seconds: float) -> NDArray[np.int64]:
    """The places of samples at least so far apart."""
    places = [0] if len(since_seconds) else []
    for place, moment in enumerate(since_seconds.tolist()):
        if moment - since_seconds[places[-1]] >= least_seconds:
            places.append(place)
    return np.array(places, np.int64)


def expected_curve(config: SimulatorConfig, requests: Sequence[SimulatedRequest], pace: Pace) -> ExpectedCurve:
    """What the simulator says of `requests` on an engine of `config` that works at `pace`."""
    steps = _MeasuredSteps(pace)
    result = simulate(config, requests, SimulationOptions(step_seconds=steps))
    columns = result.timeline.columns
    starts, free = np.array(columns.start_seconds), np.array(columns.free_blocks)
    ends = np.array(steps.ends_seconds)[: len(starts)]
    usage = 1.0 - free[: len(ends)] / config.num_usable_blocks
    is_idle_after = np.append(starts[1 : len(ends)] > ends[:-1] + 1e-9, True)
    return ExpectedCurve(
        at_seconds=_merged(starts[: len(ends)], ends, is_idle_after),
        usage_fraction=_merged(usage, np.zeros(len(ends)), is_idle_after),
        num_preemptions=result.summary.num_preemptions,
        hit_tokens=result.summary.hit_tokens,
    )


def _merged(steps: Numbers, idle: Numbers, is_idle_after: Numbers) -> Numbers:
    """One entry a step, and one more where the engine falls idle after it."""
    places = np.flatnonzero(is_idle_after)
    merged: Numbers = np.insert(steps.astype(np.float64), places + 1, idle[places])
    return merged


def curve_error(expected: Numbers, actual: Numbers) -> CurveError | None:
    """The error over the samples at which both are known and one is not 0; None where there are none.

    An idle engine is no merit of a prediction.
    """
    apart = np.abs(expected - actual)
    apart = apart[~np.isnan(apart) & ((expected > 0) | (actual > 0))]
    if not len(apart):
        return None
    return CurveError(
        mean_absolute_fraction=float(apart.mean()), largest_absolute_fraction=float(apart.max()), num_points=len(apart)
    )


def seconds_since(time_ms: Times | Numbers, start_ms: int) -> Numbers:
    """Moments as seconds since the load's start."""
    since: Numbers = (np.asarray(time_ms, np.float64) - start_ms) / 1000.0
    return since
