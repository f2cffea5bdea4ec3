"""What a window of an engine's series says in numbers; `watch_verdict` says it in words. Imports no Streamlit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from live.chunks import Numbers
from live.compare_recordings import increase
from live.recording import Window
from live.sample_codec import series_name
from live.samples import EngineIdentity

EVIDENCE_SECONDS = 300.0
FEWEST_TICKS = 10
FULL_FRACTION = 0.95
ROOMY_FRACTION = 0.80
_STILL_FULL_FRACTION = 0.90  # once full, a dip to here is still full
IDLE_SECONDS, _GROWTH_SECONDS, _PRESENT_SECONDS, _SETTLED_SECONDS = 30.0, 120.0, 60.0, 15.0
_LEAST_GROWTH_SECONDS = 30.0
_LEAST_FIT = 0.5  # of usage's variance that a straight line explains
PROBE_PREEMPTIONS = "probe/num_preemptions"

GAUGES = (
    "kv_usage_fraction",
    "num_requests_running",
    "num_requests_waiting",
    "num_requests_swapped",
    "cpu_kv_usage_fraction",
    "kv_offload_cpu_pinned_fraction",
    "simple_offload_used_blocks",
    "simple_offload_pending_store_blocks",
)
COUNTERS = (
    "num_preemptions",
    "prefix_cache_queries_tokens",
    "prefix_cache_hits_tokens",
    "prefix_cache_queries_blocks",
    "prefix_cache_hits_blocks",
    "external_prefix_cache_queries_tokens",
    "external_prefix_cache_hits_tokens",
    "offload_store_bytes",
    "offload_load_bytes",
    "offload_store_seconds",
    "offload_load_seconds",
    "offload_stores_skipped",
    "offload_allocation_failures",
    "simple_offload_load_blocks",
    "generation_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The last minutes of one engine. None is "not known": not exported, or no tick has it."""

    seconds: float
    num_ticks: int
    usage: float | None = None
    minutes_full: float = 0.0  # that usage has stayed above FULL_FRACTION, up to now
    highest_usage: float | None = None  # of the last 15 s
    growth_per_minute: float | None = None  # of the pool, as a fraction
    running: float | None = None
    waiting: float | None = None
    swapped: float | None = None  # requests whose blocks are on the host (V0)
    most_in_flight: float | None = None  # running, waiting and swapped, over the last half minute
    settled_waiting: float | None = None  # the median of the last 15 s
    preemptions: float | None = (
        None  # as the counter tells them, which a preempted request is in only once it runs again
    )
    preempted_lately: float | None = (
        None  # in the last minute, by the counter, the probe, or what went back to the queue
    )
    hit_fraction: float | None = None
    external_hit_fraction: float | None = None
    store_bytes_per_second: float | None = None
    load_bytes_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    store_seconds_per_second: float | None = None  # of all transfers together, so above 1 where several run at once
    load_seconds_per_second: float | None = None
    offload_stores_skipped: float | None = None
    offload_allocation_failures: float | None = None


def watched_names(identity: EngineIdentity) -> tuple[str, ...]:
    """The series that the page reads of one engine."""
    return (*(series_name(identity, field) for field in (*GAUGES, *COUNTERS)), PROBE_PREEMPTIONS)


def evidence(window: Window, identity: EngineIdentity, seconds: float = EVIDENCE_SECONDS) -> Evidence:
    """The evidence of the last `seconds` of `window`."""
    if not len(window.time_ms):
        return Evidence(seconds=0.0, num_ticks=0)
    kept = window.time_ms >= window.time_ms[-1] - seconds * 1000
    restarted_ms = _last_restart_ms(window, identity)
    since = (window.time_ms[kept] - window.time_ms[-1]) / 1000.0

    def series(field: str) -> Numbers:
        name = field if field == PROBE_PREEMPTIONS else series_name(identity, field)
        numbers: Numbers = window.series(name)[kept]
        return numbers

    return _evidence(since, series, since_restart=window.time_ms[kept] >= restarted_ms)


def _last_restart_ms(window: Window, identity: EngineIdentity) -> int:
    """When the engine last began anew, as its counters show by falling: usage before belongs to another process."""
    found = 0
    for field in COUNTERS:
        numbers = window.series(series_name(identity, field))
        known = np.flatnonzero(~np.isnan(numbers))
        falls = known[1:][np.diff(numbers[known]) < 0]
        found = max(found, int(window.time_ms[falls[-1]]) if len(falls) else 0)
    return found


def _evidence(since: Numbers, series: Callable[[str], Numbers], *, since_restart: NDArray[np.bool_]) -> Evidence:
    usage, running, waiting, swapped = (series(field) for field in GAUGES[:4])
    lasts, is_recent = float(-since[0]), since >= -IDLE_SECONDS
    external = [series(f"external_prefix_cache_{part}_tokens") for part in ("hits", "queries")]
    return Evidence(
        seconds=lasts,
        num_ticks=len(since),
        usage=_last(usage),
        minutes_full=_minutes_full(since[since_restart], usage[since_restart]),
        growth_per_minute=_growth(since[since_restart], usage[since_restart]),
        running=_last(running),
        waiting=_last(waiting),
        swapped=_last(swapped),
        most_in_flight=_most(running[is_recent], waiting[is_recent], swapped[is_recent]),
        highest_usage=_highest(usage[since >= -_SETTLED_SECONDS]),
        settled_waiting=_median(waiting[since >= -_SETTLED_SECONDS]),
        preemptions=_added(series("num_preemptions")),
        preempted_lately=_preempted_lately(since, series),
        hit_fraction=_hit_fraction(series),
        external_hit_fraction=_share(external[0], external[1]),
        store_bytes_per_second=_rate(series("offload_store_bytes"), lasts),
        load_bytes_per_second=_rate(series("offload_load_bytes"), lasts),
        generation_tokens_per_second=_rate(series("generation_tokens"), lasts),
        store_seconds_per_second=_rate(series("offload_store_seconds"), lasts),
        load_seconds_per_second=_rate(series("offload_load_seconds"), lasts),
        offload_stores_skipped=_added(series("offload_stores_skipped")),
        offload_allocation_failures=_added(series("offload_allocation_failures")),
    )


def _preempted_lately(since: Numbers, series: Callable[[str], Numbers]) -> float | None:
    """The most that any of three signs says: the counter lags, the probe may be absent, a queue shows net moves only."""
    recent = since >= -_PRESENT_SECONDS
    signs = [_added(series(name)[recent]) for name in ("num_preemptions", PROBE_PREEMPTIONS)]
    signs.append(_went_back(*(series(field)[recent] for field in GAUGES[:3])))
    return max((each for each in signs if each is not None), default=None)


def _went_back(usage: Numbers, running: Numbers, waiting: Numbers) -> float | None:
    """Requests that left the running ones for the queue while the pool was full: nothing but preemption does that."""
    if np.isnan(running).all() or np.isnan(waiting).all():
        return None
    is_full = np.fmax(usage[1:], usage[:-1]) >= _STILL_FULL_FRACTION
    moved = np.fmin(-np.diff(running), np.diff(waiting))
    return float(np.nansum(np.where(is_full, np.fmax(moved, 0.0), 0.0)))


def _highest(numbers: Numbers) -> float | None:
    known = numbers[~np.isnan(numbers)]
    return float(known.max()) if len(known) else None


def _median(numbers: Numbers) -> float | None:
    known = numbers[~np.isnan(numbers)]
    return float(np.median(known)) if len(known) else None


def _hit_fraction(series: Callable[[str], Numbers]) -> float | None:
    tokens = _share(series("prefix_cache_hits_tokens"), series("prefix_cache_queries_tokens"))
    return (
        tokens
        if tokens is not None
        else _share(series("prefix_cache_hits_blocks"), series("prefix_cache_queries_blocks"))
    )


def _last(numbers: Numbers) -> float | None:
    return None if not len(numbers) or np.isnan(numbers[-1]) else float(numbers[-1])


def _added(numbers: Numbers) -> float | None:
    known = increase(numbers)
    known = known[~np.isnan(known)]
    return float(known[-1]) if len(known) else None


def _share(part: Numbers, whole: Numbers) -> float | None:
    added, of = _added(part), _added(whole)
    return added / of if added is not None and of else None


def _rate(numbers: Numbers, seconds: float) -> float | None:
    added = _added(numbers)
    return added / seconds if added is not None and seconds > 0 else None


def _most(running: Numbers, waiting: Numbers, swapped: Numbers) -> float | None:
    together = np.nansum(np.stack([running, waiting, swapped]), axis=0)[~np.isnan(running)]
    return float(together.max()) if len(together) else None


def _minutes_full(since: Numbers, usage: Numbers) -> float:
    """For how long the pool has been full up to now: from where it became so, through dips that do not empty it."""
    below = np.flatnonzero(~(usage >= _STILL_FULL_FRACTION))
    first = int(below[-1]) + 1 if len(below) else 0
    reached = np.flatnonzero(usage[first:] >= FULL_FRACTION)
    return float(-since[first + int(reached[0])]) / 60.0 if len(reached) else 0.0


def _growth(since: Numbers, usage: Numbers) -> float | None:
    """The slope of the last two minutes, or of as many ticks as a slope needs where these are far apart.

    None where that is too short, or where usage goes up and down instead.
    """
    between = float(np.median(np.diff(since))) if len(since) > 1 else 0.0
    kept = (since >= -max(_GROWTH_SECONDS, FEWEST_TICKS * between)) & ~np.isnan(usage)
    if kept.sum() < FEWEST_TICKS or -since[kept][0] < _LEAST_GROWTH_SECONDS:
        return None
    spread, level = since[kept] / 60.0, usage[kept]
    spread, level = spread - spread.mean(), level - level.mean()
    both, moved, varied = float((spread * level).sum()), float((spread**2).sum()), float((level**2).sum())
    if varied == 0:
        return 0.0
    return both / moved if both**2 >= _LEAST_FIT * moved * varied else None
