"""Out-of-sample figures: every row's pool with its constants refitted on the rows of all other models.

What is fitted to logs enters a pool as one sum (sampler, layers, kernels, buffers, graphs). A refit without a model moves that
sum by the median of what the other models of the same class leave unexplained, each model counting once. The band is refitted
too: a median of few or of scattered models is itself uncertain, which widens the band in quadrature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import hypot, sqrt
from statistics import median

from planner.score import Comparison, Scored

# 90 % of a normal spread, times what a median's standard error has over a mean's (sqrt(pi / 2)).
_NINETY_PERCENT_OF_A_MEDIAN = 1.645 * 1.2533
_SPREAD_OF_A_DEVIATION = (
    1.4826  # a normal standard deviation over the median absolute one, which an outlier leaves alone
)


def leave_one_model_out(scored: Sequence[Scored]) -> tuple[Scored, ...]:
    """The rows whose class other models share, their pools shifted as a refit without the row's own model shifts them."""
    moved = [_moved(item, scored) for item in scored if item.find("kv_pool") is not None and not item.is_pool_given]
    return tuple(item for item in moved if item is not None)


def _moved(item: Scored, scored: Sequence[Scored]) -> Scored | None:
    left = _left_by_model(item, scored)
    pool = item.find("kv_pool")
    if not left or pool is None:
        return None
    shift, doubt = median(left), _doubt(left)
    return replace(item, comparisons=tuple(_refitted(c, shift, doubt) if c is pool else c for c in item.comparisons))


def _left_by_model(item: Scored, scored: Sequence[Scored]) -> list[float]:
    """The median of logged - predicted pool, weights as logged, of each other model of the item's class."""
    found: dict[str, list[float]] = {}
    for other in scored:
        pool = other.find("kv_pool")
        if pool is None or other.is_pool_given or other.fitted_class != item.fitted_class:
            continue
        if other.model_id.lower() != item.model_id.lower():
            found.setdefault(other.model_id.lower(), []).append(pool.logged - pool.predicted - _weights_error(other))
    return [median(values) for values in found.values()]


def _weights_error(item: Scored) -> float:
    """The GiB by which the weights were predicted too high: no part of what is fitted."""
    weights = item.find("weights")
    return weights.predicted - weights.logged if weights is not None else 0.0


def _doubt(left: Sequence[float]) -> float:
    """The half-width in which the median of these models is known, 90 %; of one model alone, what it leaves."""
    if len(left) == 1:
        return abs(left[0])
    middle = median(left)
    spread = _SPREAD_OF_A_DEVIATION * median(abs(value - middle) for value in left)
    return _NINETY_PERCENT_OF_A_MEDIAN * spread / sqrt(len(left))


def _refitted(pool: Comparison, shift: float, doubt: float) -> Comparison:
    best = pool.predicted + shift
    return replace(
        pool,
        predicted=best,
        low=None if pool.low is None else best - hypot(pool.predicted - pool.low, doubt),
        high=None if pool.high is None else best + hypot(pool.high - pool.predicted, doubt),
    )
