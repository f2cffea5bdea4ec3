"""Why a predicted pool differs from the logged one: which term of the budget is off, as far as the log tells.

A pool is what the share leaves beside the other terms, so a term that was predicted too large makes the pool too small by
as much. What no printed term accounts for is called unexplained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from planner.score import Comparison, Scored

CauseKind = Literal["weights", "activation", "non_torch", "graph_estimate", "several", "unexplained"]
_TERMS: tuple[CauseKind, ...] = ("weights", "activation", "non_torch", "graph_estimate")
_MOST = 0.6  # of the pool's error: one term that accounts for this much is the cause
_NAMES = {
    "weights": "weights",
    "activation": "the activation peak",
    "non_torch": "non-torch memory",
    "graph_estimate": "vLLM's estimate for CUDA graphs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What makes the pool differ, in one or two sentences; `explained_fraction` of the error is accounted for."""

    kind: CauseKind
    text: str
    explained_fraction: float


def cause_of(item: Scored) -> Cause:
    """The cause of a row's pool error, from the terms that its log prints."""
    pool = item.pool
    if pool is None:
        return Cause(kind="unexplained", text="The log prints no pool.", explained_fraction=0.0)
    error = pool.predicted - pool.logged
    parts = [(name, _given_away(item.find(name))) for name in _TERMS]
    known = [(name, part) for name, part in parts if part is not None]
    if not error or not known:
        return _unexplained(item, error, known)
    name, part = max(known, key=lambda pair: pair[1] / error)
    if part / error >= _MOST:
        return Cause(kind=name, text=_one_term(item, name), explained_fraction=min(1.0, part / error))
    total = sum(each for _, each in known)
    if total / error >= _MOST:
        return Cause(kind="several", text=_several(known), explained_fraction=min(1.0, total / error))
    return _unexplained(item, error, known)


def _given_away(term: Comparison | None) -> float | None:
    """GiB by which the pool is too large for this term alone: what the engine took beyond the prediction."""
    return None if term is None else term.logged - term.predicted


def _one_term(item: Scored, name: CauseKind) -> str:
    term = item.find(name)
    if term is None:  # cannot be: the caller chose it among the printed ones
        return ""
    return f"{_NAMES[name].capitalize()}: predicted {term.predicted:.2f}, logged {term.logged:.2f} GiB."


def _several(known: Sequence[tuple[CauseKind, float]]) -> str:
    named = ", ".join(f"{_NAMES[name]} {part:+.2f} GiB" for name, part in known if abs(part) >= 0.01)
    return f"Several terms together: {named}."


def _unexplained(item: Scored, error: float, known: Sequence[tuple[CauseKind, float]]) -> Cause:
    printed = " and ".join(_NAMES[name] for name, _ in known)
    left = -error - sum(-part for _, part in known)
    direction = "less" if error < 0 else "more"
    seen = f"The log prints {printed} alone" if known else "The log prints no other term"
    text = (
        f"Unexplained: {seen}; {abs(left):.2f} GiB {direction} left the budget than the rules know. {_suspicion(item)}"
    )
    explained = 1 - abs(left / error) if error else 0.0
    return Cause(kind="unexplained", text=text.strip(), explained_fraction=max(0.0, explained))


def _suspicion(item: Scored) -> str:
    """What is known to move pools of this kind: said as a possibility, never as the cause."""
    if "GB10" in item.gpu or "Thor" in item.gpu:
        return "Memory of this card is the system's: page cache and other processes count."
    if item.version == "not stated" or item.group == "version not stated":
        return "The release is not on record."
    if "one row" in item.fitted_class or "one model" in item.fitted_class:
        return f"The constants rest on little: {item.fitted_class}."
    return ""
