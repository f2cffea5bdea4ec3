"""Figures drawn from scored rows: errors by quantity, the bands' coverage and width, verdicts. Pure numbers, no tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from planner.score import Comparison, Group, Scored

GROUPS: tuple[Group, ...] = ("0.17-0.20 on H100", "other, version stated", "version not stated")
QUANTITIES = (  # (name, what it is)
    ("weights", "Weights"),
    ("kv_pool", "KV pool"),
    ("tokens", "KV tokens"),
    ("blocks", "KV blocks"),
    ("concurrency", "Concurrency"),
    ("activation", "Activation peak"),
    ("non_torch", "Non-torch"),
    ("graph_estimate", "CUDA graphs (vLLM's estimate)"),
    ("needed", "Needed by one request (failed starts)"),
    ("estimated_length", "Longest length that fits (failed starts)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """The absolute relative errors of one quantity over `rows` rows of `models` models."""

    rows: int
    models: int
    mean: float | None
    median: float | None
    p90: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How the 90 % bands of the KV pool did. Half-widths are fractions: of the logged pool, or of the card."""

    inside: int
    rows: int
    mean_half_width: float | None
    median_half_width: float | None
    half_width_of_card: float | None

    @property
    def fraction(self) -> float | None:
        """The share of rows whose logged pool lies in the band."""
        return self.inside / self.rows if self.rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Starts and failures on memory: as logged and as predicted."""

    failures_predicted: int
    failures: int
    false_alarms: int
    starts: int


def quantile(values: Sequence[float], fraction: float) -> float | None:
    """The value that `fraction` of `values` do not exceed (nearest rank), or None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(fraction * len(ordered) * 1000) // 1000) - 1))]


def num_models(scored: Iterable[Scored]) -> int:
    """The distinct models, by name."""
    return len({item.model_id.lower() for item in scored})


def compared(scored: Iterable[Scored], name: str) -> list[tuple[Scored, Comparison]]:
    """The rows that log the named quantity above zero, with it; a pool that the user fixed is not a prediction."""
    found = []
    for item in scored:
        comparison = item.pool if name == "kv_pool" else item.find(name)
        if comparison is not None and comparison.logged > 0:
            found.append((item, comparison))
    return found


def relative_errors(scored: Iterable[Scored], name: str) -> list[float]:
    """The absolute relative errors of the named quantity."""
    errors = [comparison.relative_error for _, comparison in compared(scored, name)]
    return [error for error in errors if error is not None]


def errors(scored: Sequence[Scored], name: str) -> Errors:
    """Mean, median and p90 of the named quantity's errors."""
    pairs, values = compared(scored, name), relative_errors(scored, name)
    return Errors(
        rows=len(values),
        models=num_models(item for item, _ in pairs),
        mean=fmean(values) if values else None,
        median=quantile(values, 0.5),
        p90=quantile(values, 0.9),
    )


def card_errors(scored: Iterable[Scored]) -> list[float]:
    """The pool's error as a share of the card's total, negative pools included."""
    pairs = [(item.pool, item) for item in scored if item.total_gib]
    return [abs(pool.predicted - pool.logged) / item.total_gib for pool, item in pairs if pool is not None]


def band_coverage(scored: Iterable[Scored]) -> Coverage:
    """Coverage and width of the KV pool's bands, over rows that log a pool above zero."""
    pairs = [(item, pool) for item, pool in compared(scored, "kv_pool") if pool.is_covered is not None]
    halves = [((pool.high or 0.0) - (pool.low or 0.0)) / 2 for _, pool in pairs]
    of_pool = [half / pool.logged for half, (_, pool) in zip(halves, pairs, strict=True)]
    of_card = [half / item.total_gib for half, (item, _) in zip(halves, pairs, strict=True) if item.total_gib]
    return Coverage(
        inside=sum(bool(pool.is_covered) for _, pool in pairs),
        rows=len(pairs),
        mean_half_width=fmean(of_pool) if of_pool else None,
        median_half_width=median(of_pool) if of_pool else None,
        half_width_of_card=fmean(of_card) if of_card else None,
    )


def coverage(scored: Iterable[Scored], name: str) -> tuple[int, int, float]:
    """(rows inside the interval, rows, median half-width as a share of the logged value) of the named quantity."""
    found = [comparison for _, comparison in compared(scored, name) if comparison.is_covered is not None]
    if not found:
        return 0, 0, 0.0
    widths = [((c.high or 0) - (c.low or 0)) / 2 / c.logged for c in found]
    return sum(bool(c.is_covered) for c in found), len(found), median(widths)


def verdicts(scored: Iterable[Scored]) -> tuple[int, int, int, int]:
    """(failures predicted, failures logged, false alarms, starts logged)."""
    known = [item for item in scored if item.reason is None and item.logged_start is not None]
    failed = [item for item in known if not item.logged_start]
    started = [item for item in known if item.logged_start]
    caught = sum(not item.predicted_start for item in failed)
    return caught, len(failed), sum(not item.predicted_start for item in started), len(started)


def verdict_table(scored: Iterable[Scored]) -> Verdicts:
    """The four counts of starts and failures."""
    caught, failures, alarms, starts = verdicts(scored)
    return Verdicts(failures_predicted=caught, failures=failures, false_alarms=alarms, starts=starts)


def predicted(scored: Iterable[Scored]) -> list[Scored]:
    """The rows that were predicted."""
    return [item for item in scored if item.reason is None]
