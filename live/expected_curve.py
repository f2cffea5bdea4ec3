"""The simulator's usage curve for a load that is known, at the speed that the engine was seen to have, beside the real curve.

What is predicted is memory, not speed: arrivals, prompts and lengths are the load's, how long a step takes is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """How long a step of the engine took at some moments, counted in seconds from the load's start; hashable, so cacheable."""

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
    """The time of each simulated step, as the engine's speed was at that moment. Of one simulation."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._now_seconds = 0.0
        self.ends_seconds: list[float] = []

    def __call__(self, scheduler: Scheduler) -> float:
        arrived = (each.request.arrival_seconds or 0.0 for each in (*scheduler.running, *scheduler.waiting))
        self._now_seconds = max(self._now_seconds, max(arrived, default=0.0))  # the clock skips an idle stretch
        step = _USUAL_STEP_SECONDS
        if self._pace.at_seconds:
            step = float(np.interp(self._now_seconds, self._pace.at_seconds, self._pace.step_seconds))
        self._now_seconds += step
        self.ends_seconds.append(self._now_seconds)
        return step


def measured_pace(since_seconds: Numbers, running: Numbers, generation_tokens: Numbers) -> Pace:
    """The engine's pace from its metrics, a second at a time: a running request gains a token a step.

    Seconds a step = ∫ running requests dt / tokens generated, over at least `_PACE_SECONDS`.
    """
    is_known = ~(np.isnan(running) | np.isnan(generation_tokens))
    since_seconds, running, generation_tokens = (each[is_known] for each in (since_seconds, running, generation_tokens))
    passed = np.diff(since_seconds)
    held = (
        np.concatenate(([0.0], np.cumsum((running[1:] + running[:-1]) / 2 * passed))) if len(since_seconds) else passed
    )
    places = _spaced(since_seconds, _PACE_SECONDS)
    added, spent = np.diff(generation_tokens[places]), np.diff(held[places])
    kept = (added > 0) & (spent > 0)
    steps = np.maximum(spent[kept] / added[kept], _FASTEST_STEP_SECONDS)
    middles = ((since_seconds[places][1:] + since_seconds[places][:-1]) / 2)[kept]
    return Pace(at_seconds=tuple(np.round(middles, 3).tolist()), step_seconds=tuple(np.round(steps, 6).tolist()))


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
