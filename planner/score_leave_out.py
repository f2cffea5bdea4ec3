"""Out-of-sample figures: every row's pool with its constants refitted on the rows of all other models.

What is fitted to logs enters a pool as one sum (sampler, layers, kernels, buffers, graphs). A refit without a model moves that
sum by the median of what the other models of the same class leave unexplained, each model counting once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from planner.score import Comparison, Scored


def leave_one_model_out(scored: Sequence[Scored]) -> tuple[Scored, ...]:
    """The rows whose class other models share, their pools shifted as a refit without the row's own model shifts them."""
    moved = [_moved(item, scored) for item in scored if item.find("kv_pool") is not None and not item.is_pool_given]
    return tuple(item for item in moved if item is not None)


def _moved(item: Scored, scored: Sequence[Scored]) -> Scored | None:
    left = _left_by_model(item, scored)
    pool = item.find("kv_pool")
    if not left or pool is None:
        return None
    shift = median(left)
    return replace(item, comparisons=tuple(_shifted(c, shift) if c is pool else c for c in item.comparisons))


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


def _shifted(pool: Comparison, shift: float) -> Comparison:
    return replace(
        pool,
        predicted=pool.predicted + shift,
        low=None if pool.low is None else pool.low + shift,
        high=None if pool.high is None else pool.high + shift,
    )
