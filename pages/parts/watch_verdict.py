"""What an engine's numbers say in a few words, and what to change. Imports no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pages.parts.language import t
from pages.parts.watch_evidence import FEWEST_TICKS, FULL_FRACTION, IDLE_SECONDS, ROOMY_FRACTION, Evidence
from pages.parts.words import listed

VerdictKind = Literal["little", "idle", "thrashing", "full", "filling", "queue", "compute", "healthy"]

_LEAST_GROWTH = 0.005  # of the pool a minute; less is noise
_LONGEST_FILLING_MINUTES = 60.0
_LEAST_FULL_SECONDS = 10.0  # full for less is a moment
# So many preemptions in the last minute are thrashing, or so many of the running requests where these are many.
_LEAST_PREEMPTIONS, _LEAST_PREEMPTED_FRACTION = 2.0, 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the numbers say in a few words, the numbers, and what to change."""

    kind: VerdictKind
    title: str
    numbers: str
    advice: str = ""


def verdict(seen: Evidence) -> Verdict:
    """What the evidence says; the first that holds of: too little, idle, thrashing, full, filling, a queue, healthy."""
    if seen.num_ticks < FEWEST_TICKS or seen.usage is None:
        return _too_little(seen)
    if seen.most_in_flight == 0:
        text = t("No request ran or waited in the last {seconds} s.", seconds=f"{IDLE_SECONDS:.0f}")
        return Verdict(kind="idle", title=t("Idle"), numbers=text)
    return _memory_bound(seen) or _filling(seen) or _queue(seen) or _healthy(seen)


def _too_little(seen: Evidence) -> Verdict:
    if seen.num_ticks >= FEWEST_TICKS and seen.highest_usage is not None:
        text = t("The last sample lacks the KV usage, which earlier ones have.")
        return Verdict(kind="little", title=t("Not enough evidence"), numbers=text)
    if seen.num_ticks >= FEWEST_TICKS:
        text = t("This engine does not export its KV usage, so nothing can be said of its memory.")
        return Verdict(kind="little", title=t("Not enough evidence"), numbers=text)
    text = t("{count} of the {needed} samples that a verdict needs.", count=seen.num_ticks, needed=FEWEST_TICKS)
    return Verdict(kind="little", title=t("Not enough evidence yet"), numbers=text)


def _span(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _numbers(seen: Evidence, *more: str) -> str:
    parts = [t("KV usage {share}", share=f"{seen.usage or 0:.0%}"), *more]
    if seen.preemptions is not None:
        parts.append(t("{count} preemptions", count=f"{seen.preemptions:,.0f}"))
    if seen.waiting is not None:
        parts.append(t("{count} waiting", count=f"{seen.waiting:,.0f}"))
    return t("{numbers}; over the last {span}.", numbers=listed(parts), span=_span(seen.seconds))


def _is_thrashing(seen: Evidence) -> bool:
    if seen.highest_usage is None or seen.highest_usage < ROOMY_FRACTION:
        return False  # it was, and is over
    least = max(_LEAST_PREEMPTIONS, _LEAST_PREEMPTED_FRACTION * (seen.running or 0.0))
    return seen.preempted_lately is not None and seen.preempted_lately >= least


def _memory_bound(seen: Evidence) -> Verdict | None:
    full = t("above {share} for {span}", share=f"{FULL_FRACTION:.0%}", span=_span(60 * seen.minutes_full))
    so_long = [full] if seen.minutes_full else []
    if seen.swapped:
        swapped = t("{count} swapped to the host", count=f"{seen.swapped:,.0f}")
        return Verdict(
            kind="thrashing",
            title=t("Memory-bound: requests are swapped to the host"),
            numbers=_numbers(seen, *so_long, swapped),
            advice=_against_thrashing(seen, t("Each swapped request is copied to the host and back.")),
        )
    if _is_thrashing(seen):
        return Verdict(
            kind="thrashing",
            title=t("Memory-bound: requests are preempted"),
            numbers=_numbers(seen, *so_long, *_lately(seen)),
            advice=_against_thrashing(seen, t("Each preempted request is computed again.")),
        )
    return _full(seen, so_long)


def _full(seen: Evidence, so_long: Sequence[str]) -> Verdict | None:
    """A full pool, with a queue before it or not; one that touches its end for a moment is none."""
    is_full = seen.minutes_full > 0 or (seen.usage or 0.0) >= FULL_FRACTION
    if is_full and seen.waiting:
        return Verdict(
            kind="full",
            title=t("Memory-bound: the pool is full"),
            numbers=_numbers(seen, *so_long),
            advice=t("Requests wait for blocks. More pool, shorter requests or another replica lets them in."),
        )
    if not is_full or (60 * seen.minutes_full < _LEAST_FULL_SECONDS and not _grows(seen)):
        return None
    return Verdict(
        kind="full",
        title=t("The pool is full; nothing waits yet"),
        numbers=_numbers(seen, *so_long, *_running(seen)),
        advice=t(
            "The next request waits, and one that grows may preempt another. More pool or a lower {flag} gives it room.",
            flag="--max-num-seqs",
        ),
    )


def _grows(seen: Evidence) -> bool:
    return seen.growth_per_minute is not None and seen.growth_per_minute >= _LEAST_GROWTH


def _lately(seen: Evidence) -> list[str]:
    """What the counter does not tell yet."""
    lately = seen.preempted_lately or 0.0
    if lately <= (seen.preemptions or 0.0):
        return []
    return [t("{count} sent back to the queue in the last minute", count=f"{lately:,.0f}")]


def _against_thrashing(seen: Evidence, cost: str) -> str:
    pool = t(
        "Give the pool more room: a higher {utilization}, an fp8 KV cache, another card.",
        utilization="--gpu-memory-utilization",
    )
    if seen.minutes_full and seen.running:
        fewer = t(
            "Or let fewer run at once: about {count} fill the pool now, so {flag} {count} would stop most of it.",
            count=f"{seen.running:,.0f}",
            flag="--max-num-seqs",
        )
    else:
        fewer = t("Or let fewer requests run at once with {flag}.", flag="--max-num-seqs")
    return f"{pool} {fewer} {cost}"


def _filling(seen: Evidence) -> Verdict | None:
    growth = seen.growth_per_minute
    if growth is None or growth < _LEAST_GROWTH or seen.usage is None:
        return None
    minutes = max(0.0, 1.0 - seen.usage) / growth
    if minutes > _LONGEST_FILLING_MINUTES:
        return None
    return Verdict(
        kind="filling",
        title=t("Filling: the pool is full in about {minutes} min at this growth", minutes=max(1, round(minutes))),
        numbers=_numbers(seen, t("growing by {share} of the pool a minute", share=f"{growth:.1%}")),
        advice=t("Watch whether it levels off; if not, fewer requests at once or more pool keeps it from preempting."),
    )


def _queue(seen: Evidence) -> Verdict | None:
    """A queue before a pool that is not full: memory does not hold it back, or only for what is large."""
    if not seen.settled_waiting or seen.usage is None:
        return None
    numbers = _numbers(seen, *_running(seen))
    flags = "--max-num-seqs, --max-num-batched-tokens"
    if seen.usage < ROOMY_FRACTION:
        return Verdict(
            kind="compute",
            title=t("Compute-bound: requests wait while memory is free"),
            numbers=numbers,
            advice=t("Memory is not what holds them back: see {flags}, or add a replica.", flags=flags),
        )
    return Verdict(
        kind="queue",
        title=t("Requests wait, and the pool is nearly full"),
        numbers=numbers,
        advice=t(
            "Either the next one needs more blocks than are free, so more pool lets it in; or a limit holds it back: see {flags}.",
            flags=flags,
        ),
    )


def _healthy(seen: Evidence) -> Verdict:
    return Verdict(kind="healthy", title=t("Healthy"), numbers=_numbers(seen, *_running(seen)))


def _running(seen: Evidence) -> list[str]:
    return [] if seen.running is None else [t("{count} running", count=f"{seen.running:,.0f}")]
