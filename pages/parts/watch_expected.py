"""What usage is expected of the load that is seen: simulated where the load is known, else from running requests' lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import streamlit as st

from live.chunks import Numbers
from live.engine.load import DEMO_CONFIG
from live.expected_curve import (
    CurveError,
    ExpectedCurve,
    Pace,
    curve_error,
    expected_curve,
    measured_pace,
    seconds_since,
)
from live.recording import Recording
from live.sample_codec import series_name
from live.samples import EngineIdentity, EngineSample
from pages.parts import watch_prediction, watch_state, watch_words
from pages.parts.language import t
from pages.parts.watch_prediction import HeldTokens
from planner.sequence import SimulatedRequest

ExpectationKind = Literal["simulated", "tables", "lengths"]
NEEDED_BLOCKS = "probe/num_needed_blocks"
_LONGEST_LOAD_MS = 900_000  # after its last arrival
_RENEWED_MS = 5_000  # a load under way is simulated again this seldom, as the engine's speed is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The expected usage at some points, as fractions of the engine's pool; `low` is `high` where it is one number."""

    kind: ExpectationKind
    low: Numbers
    high: Numbers
    error: CurveError | None
    text: str  # what it is made of, in sentences

    @property
    def best(self) -> Numbers:
        """The middle."""
        middle: Numbers = (self.low + self.high) / 2
        return middle


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCurve:
    """The simulated curve of a known load that began at `start_ms`."""

    name: str
    start_ms: int
    curve: ExpectedCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The moments at which an expectation is wanted, and what was measured there."""

    time_ms: Numbers
    series: Callable[[str], Numbers]  # by its whole name
    sample: EngineSample

    def of_engine(self, field: str) -> Numbers:
        """One field of the engine."""
        return self.series(series_name(self.sample.identity, field))


def known_curve(recording: Recording | None, sample: EngineSample, now_ms: int) -> KnownCurve | None:
    """The simulated curve where the load is known; None else."""
    if recording is None or not watch_state.is_demo_shown():
        return None
    is_over = recording.summary().ended_ms is not None
    renewed = 0 if is_over else now_ms // _RENEWED_MS
    return _known_curve(str(recording.path), sample.identity, renewed, recording, sample, now_ms)


# The path, the engine and the time in steps of `_RENEWED_MS` (0: it is over) stand for the rest in the cache's key.
@st.cache_data(max_entries=64, show_spinner=False)
def _known_curve(
    path: str, identity: EngineIdentity, renewed: int, _recording: Recording, _sample: EngineSample, _now_ms: int
) -> KnownCurve | None:
    del path, identity, renewed
    recording, sample, now_ms = _recording, _sample, _now_ms
    known = watch_state.known_load()
    if known is None:
        return None
    last_ms = known.start_ms + _LONGEST_LOAD_MS + int(1000 * _last_arrival_seconds(known.load.requests))
    if recording.summary().ended_ms is None:
        last_ms = min(last_ms, now_ms // _RENEWED_MS * _RENEWED_MS)
    pace = _pace(recording, sample, known.start_ms, last_ms)
    config = sample.cache_config
    num_blocks = DEMO_CONFIG.num_gpu_blocks if config is None else config.num_gpu_blocks or DEMO_CONFIG.num_gpu_blocks
    curve = _curve(known.name, num_blocks, pace, known.load.requests)
    return KnownCurve(name=known.name, start_ms=known.start_ms, curve=curve)


def _last_arrival_seconds(requests: Sequence[SimulatedRequest]) -> float:
    return max((each.arrival_seconds or 0.0 for each in requests), default=0.0)


def _pace(recording: Recording, sample: EngineSample, start_ms: int, end_ms: int) -> Pace:
    fields = ("num_requests_running", "generation_tokens", "vllm:iteration_tokens_total:count")
    names = tuple(series_name(sample.identity, field) for field in fields)
    window = recording.window(names, start_ms - 1000, max(end_ms, start_ms))
    return measured_pace(seconds_since(window.time_ms, start_ms), *(window.series(name) for name in names))


# `name` stands for the requests in the cache's key: a named load is always the same one.
@st.cache_data(max_entries=32, show_spinner=False)
def _curve(name: str, num_blocks: int, pace: Pace, _requests: tuple[SimulatedRequest, ...]) -> ExpectedCurve:
    del name
    return expected_curve(replace(DEMO_CONFIG, num_gpu_blocks=num_blocks), _requests, pace)


def expectation(points: Points, known: KnownCurve | None, held: HeldTokens | None) -> Expectation | None:
    """The best expectation there is: of the known load, of the tables' lengths, of finished requests' lengths."""
    return _simulated(points, known) or _of_tables(points) or _of_lengths(points, held)


def _simulated(points: Points, known: KnownCurve | None) -> Expectation | None:
    if known is None:
        return None
    usage = known.curve.usage_at(seconds_since(points.time_ms, known.start_ms))
    if np.isnan(usage).all():
        return None
    error = curve_error(usage, points.of_engine("kv_usage_fraction"))
    text = t(
        "Expected: the simulator, given the load {load} as it was sent, at the speed that the engine was seen to have. It counts "
        "{preemptions} preemptions and {hits} tokens found in the cache for the whole load.",
        load=watch_words.inline_code(known.name),
        preemptions=f"{known.curve.num_preemptions:,}",
        hits=f"{known.curve.hit_tokens:,}",
    )
    return Expectation(kind="simulated", low=usage, high=usage, error=error, text=f"{text} {error_words(error)}")


def _of_tables(points: Points) -> Expectation | None:
    config, needed = points.sample.cache_config, points.series(NEEDED_BLOCKS)
    if np.isnan(needed).all() or config is None or not config.num_gpu_blocks:
        return None
    usage = needed / max(1, config.num_gpu_blocks - 1)
    error = curve_error(usage, points.of_engine("kv_usage_fraction"))
    text = t(
        "Expected: the blocks that the running requests' lengths come to, as the probe lists them, a shared block counted once."
    )
    return Expectation(kind="tables", low=usage, high=usage, error=error, text=f"{text} {error_words(error)}")


def _of_lengths(points: Points, held: HeldTokens | None) -> Expectation | None:
    pool_tokens = watch_prediction.pool_tokens(points.sample)
    if held is None or pool_tokens is None:
        return None
    low, high = watch_prediction.expected_series(points.of_engine("num_requests_running"), held, pool_tokens)
    error = curve_error((low + high) / 2, points.of_engine("kv_usage_fraction"))
    text = t(
        "Expected: running requests × the tokens that one holds, over the pool's tokens. {count} finished requests say that one "
        "holds {low} to {high} tokens: its prompt (shared prefixes left out at the low end) and half of its output.",
        count=f"{held.num_requests:,}",
        low=f"{held.low_tokens:,.0f}",
        high=f"{held.high_tokens:,.0f}",
    )
    return Expectation(kind="lengths", low=low, high=high, error=error, text=f"{text} {error_words(error)}")


def error_words(error: CurveError | None) -> str:
    """The error in one sentence."""
    if error is None:
        return t("No request ran yet to compare with.")
    return t(
        "Error over {count} samples at which the pool was in use or should have been: {mean} of the pool on average, {largest} at most.",
        count=f"{error.num_points:,}",
        mean=watch_words.percent(error.mean_absolute_fraction),
        largest=watch_words.percent(error.largest_absolute_fraction),
    )
