"""What a window of an engine's series says in numbers, and the verdict that these numbers make. Imports no Streamlit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from live.chunks import Numbers
from live.compare_recordings import increase
from live.recording import Window
from live.sample_codec import series_name
from live.samples import EngineIdentity

VerdictKind = Literal["little", "idle", "thrashing", "full", "filling", "compute", "healthy"]

EVIDENCE_SECONDS = 300.0
FEWEST_TICKS = 10
FULL_FRACTION = 0.95
ROOMY_FRACTION = 0.80
_IDLE_SECONDS, _GROWTH_SECONDS = 30.0, 120.0
_LEAST_GROWTH_SECONDS = 30.0
_LEAST_FIT = 0.5  # of usage's variance that a straight line explains
_LEAST_GROWTH = 0.005  # of the pool a minute; less is noise
_LONGEST_FILLING_MINUTES = 60.0
_LEAST_PREEMPTIONS_PER_MINUTE = 1.0

GAUGES = (
    "kv_usage_fraction",
    "num_requests_running",
    "num_requests_waiting",
    "num_requests_swapped",
    "cpu_kv_usage_fraction",
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
    "offload_stores_skipped",
    "offload_allocation_failures",
    "generation_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The last minutes of one engine. None is "not known": not exported, or no tick has it."""

    seconds: float
    num_ticks: int
    usage: float | None = None
    minutes_full: float = 0.0  # that usage has stayed above FULL_FRACTION, up to now
    growth_per_minute: float | None = None  # of the pool, as a fraction
    running: float | None = None
    waiting: float | None = None
    most_in_flight: float | None = None  # running and waiting, over the last half minute
    preemptions: float | None = None
    hit_fraction: float | None = None
    external_hit_fraction: float | None = None
    store_bytes_per_second: float | None = None
    load_bytes_per_second: float | None = None
    generation_tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the numbers say in a few words, the numbers, and what to change."""

    kind: VerdictKind
    title: str
    numbers: str
    advice: str = ""


def watched_names(identity: EngineIdentity) -> tuple[str, ...]:
    """The series that the page reads of one engine."""
    return tuple(series_name(identity, field) for field in (*GAUGES, *COUNTERS))


def evidence(window: Window, identity: EngineIdentity, seconds: float = EVIDENCE_SECONDS) -> Evidence:
    """The evidence of the last `seconds` of `window`."""
    if not len(window.time_ms):
        return Evidence(seconds=0.0, num_ticks=0)
    kept = window.time_ms >= window.time_ms[-1] - seconds * 1000
    since = (window.time_ms[kept] - window.time_ms[-1]) / 1000.0

    def series(field: str) -> Numbers:
        numbers: Numbers = window.series(series_name(identity, field))[kept]
        return numbers

    return _evidence(since, series)


def _evidence(since: Numbers, series: Callable[[str], Numbers]) -> Evidence:
    usage, running, waiting = (series(field) for field in GAUGES[:3])
    lasts, is_recent = float(-since[0]), since >= -_IDLE_SECONDS
    external = [series(f"external_prefix_cache_{part}_tokens") for part in ("hits", "queries")]
    return Evidence(
        seconds=lasts,
        num_ticks=len(since),
        usage=_last(usage),
        minutes_full=_minutes_above(since, usage, FULL_FRACTION),
        growth_per_minute=_growth(since, usage),
        running=_last(running),
        waiting=_last(waiting),
        most_in_flight=_most(running[is_recent], waiting[is_recent]),
        preemptions=_added(series("num_preemptions")),
        hit_fraction=_hit_fraction(series),
        external_hit_fraction=_share(external[0], external[1]),
        store_bytes_per_second=_rate(series("offload_store_bytes"), lasts),
        load_bytes_per_second=_rate(series("offload_load_bytes"), lasts),
        generation_tokens_per_second=_rate(series("generation_tokens"), lasts),
    )


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


def _most(running: Numbers, waiting: Numbers) -> float | None:
    both = np.nansum(np.stack([running, waiting]), axis=0)[~np.isnan(running)]
    return float(both.max()) if len(both) else None


def _minutes_above(since: Numbers, usage: Numbers, limit: float) -> float:
    """For how long the last ticks have all been at `limit` or above."""
    below = np.flatnonzero(~(usage >= limit))
    first = int(below[-1]) + 1 if len(below) else 0
    return float(-since[first]) / 60.0 if first < len(since) else 0.0


def _growth(since: Numbers, usage: Numbers) -> float | None:
    """The slope of the last two minutes; None where they are too short, or where usage goes up and down instead."""
    kept = (since >= -_GROWTH_SECONDS) & ~np.isnan(usage)
    if kept.sum() < FEWEST_TICKS or -since[kept][0] < _LEAST_GROWTH_SECONDS:
        return None
    spread, level = since[kept] / 60.0, usage[kept]
    spread, level = spread - spread.mean(), level - level.mean()
    both, moved, varied = float((spread * level).sum()), float((spread**2).sum()), float((level**2).sum())
    if varied == 0:
        return 0.0
    return both / moved if both**2 >= _LEAST_FIT * moved * varied else None


def verdict(seen: Evidence) -> Verdict:
    """What the evidence says; the first that holds of: too little, idle, thrashing, full, filling, compute-bound, healthy."""
    if seen.num_ticks < FEWEST_TICKS or seen.usage is None:
        return _too_little(seen)
    if seen.most_in_flight == 0:
        return Verdict(
            kind="idle", title="Idle", numbers=f"No request ran or waited in the last {_IDLE_SECONDS:.0f} s."
        )
    return _memory_bound(seen) or _filling(seen) or _compute_bound(seen) or _healthy(seen)


def _too_little(seen: Evidence) -> Verdict:
    if seen.num_ticks >= FEWEST_TICKS:
        text = "This engine does not export its KV usage, so nothing can be said of its memory."
        return Verdict(kind="little", title="Not enough evidence", numbers=text)
    text = f"{seen.num_ticks} of the {FEWEST_TICKS} samples that a verdict needs."
    return Verdict(kind="little", title="Not enough evidence yet", numbers=text)


def _numbers(seen: Evidence, *more: str) -> str:
    span = f"{seen.seconds / 60:.1f} min" if seen.seconds >= 60 else f"{seen.seconds:.0f} s"
    parts = [f"KV usage {seen.usage or 0:.0%}", *more]
    if seen.preemptions is not None:
        parts.append(f"{seen.preemptions:,.0f} preemptions")
    if seen.waiting is not None:
        parts.append(f"{seen.waiting:,.0f} waiting")
    return f"{', '.join(parts)}; over the last {span}."


def _memory_bound(seen: Evidence) -> Verdict | None:
    full = f"above {FULL_FRACTION:.0%} for {seen.minutes_full:.1f} min"
    minutes = max(seen.seconds / 60, 1 / 60)
    if seen.preemptions and seen.preemptions / minutes >= _LEAST_PREEMPTIONS_PER_MINUTE:
        return Verdict(
            kind="thrashing",
            title="Memory-bound: requests are preempted",
            numbers=_numbers(seen, *([full] if seen.minutes_full else [])),
            advice="Give the pool more room (a higher --gpu-memory-utilization, an fp8 KV cache, another card), or let "
            "fewer requests run at once with --max-num-seqs: each preempted request is computed again.",
        )
    if seen.minutes_full > 0 and seen.waiting:
        return Verdict(
            kind="full",
            title="Memory-bound: the pool is full",
            numbers=_numbers(seen, full),
            advice="Requests wait for blocks. More pool, shorter requests or another replica lets them in.",
        )
    return None


def _filling(seen: Evidence) -> Verdict | None:
    growth = seen.growth_per_minute
    if growth is None or growth < _LEAST_GROWTH or seen.usage is None:
        return None
    minutes = max(0.0, 1.0 - seen.usage) / growth
    if minutes > _LONGEST_FILLING_MINUTES:
        return None
    return Verdict(
        kind="filling",
        title=f"Filling: the pool is full in about {max(1, round(minutes))} min at this growth",
        numbers=_numbers(seen, f"growing by {growth:.1%} of the pool a minute"),
        advice="Watch whether it levels off; if not, fewer requests at once or more pool keeps it from preempting.",
    )


def _compute_bound(seen: Evidence) -> Verdict | None:
    if not seen.waiting or seen.usage is None or seen.usage >= ROOMY_FRACTION:
        return None
    return Verdict(
        kind="compute",
        title="Compute-bound: requests wait while memory is free",
        numbers=_numbers(seen, f"{seen.running or 0:,.0f} running"),
        advice="Memory is not what holds them back: see --max-num-seqs and --max-num-batched-tokens, or add a replica.",
    )


def _healthy(seen: Evidence) -> Verdict:
    return Verdict(kind="healthy", title="Healthy", numbers=_numbers(seen, f"{seen.running or 0:,.0f} running"))
