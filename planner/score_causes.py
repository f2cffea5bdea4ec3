"""Why a predicted pool differs from the logged one: which term of the budget is off, as far as the log tells.

A pool is what the share leaves beside the other terms, so a term that was predicted too large makes the pool too small by
as much. What no printed term accounts for is called unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.score import Comparison, Scored

CauseKind = Literal["weights", "activation", "non_torch", "graph_estimate", "several", "unexplained"]
Suspicion = Literal[
    "", "system_memory", "no_release", "thin_constants"
]  # known to move such pools: never said as the cause
_TERMS: tuple[CauseKind, ...] = ("weights", "activation", "non_torch", "graph_estimate")
_MOST = 0.6  # of the pool's error: one term that accounts for this much is the cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What makes the pool differ; `explained_fraction` of the error is accounted for."""

    kind: CauseKind
    explained_fraction: float
    terms: tuple[
        tuple[CauseKind, float], ...
    ] = ()  # of what the log prints: the GiB that each took beyond the prediction
    unexplained_gib: float = 0.0  # that left the budget beyond what rules and printed terms know; less where negative
    suspicion: Suspicion = ""


def cause_of(item: Scored) -> Cause:
    """The cause of a row's pool error, from the terms that its log prints."""
    pool = item.pool
    if pool is None:
        return Cause(kind="unexplained", explained_fraction=0.0)
    error = pool.predicted - pool.logged
    parts = [(name, _given_away(item.find(name))) for name in _TERMS]
    known = tuple((name, part) for name, part in parts if part is not None)
    if not error or not known:
        return _unexplained(item, error, known)
    name, part = max(known, key=lambda pair: pair[1] / error)
    if part / error >= _MOST:
        return Cause(kind=name, terms=known, explained_fraction=min(1.0, part / error))
    total = sum(each for _, each in known)
    if total / error >= _MOST:
        return Cause(kind="several", terms=known, explained_fraction=min(1.0, total / error))
    return _unexplained(item, error, known)


def _given_away(term: Comparison | None) -> float | None:
    """GiB by which the pool is too large for this term alone: what the engine took beyond the prediction."""
    return None if term is None else term.logged - term.predicted


def _unexplained(item: Scored, error: float, known: tuple[tuple[CauseKind, float], ...]) -> Cause:
    left = error - sum(part for _, part in known)
    explained = 1 - abs(left / error) if error else 0.0
    return Cause(
        kind="unexplained",
        terms=known,
        unexplained_gib=left,
        explained_fraction=max(0.0, explained),
        suspicion=_suspicion(item),
    )


def _suspicion(item: Scored) -> Suspicion:
    if "GB10" in item.gpu or "Thor" in item.gpu:
        return "system_memory"
    if item.version == "not stated" or item.group == "version not stated":
        return "no_release"
    return "thin_constants" if "one row" in item.fitted_class or "one model" in item.fitted_class else ""
