"""How sure a number is: `Basis`, `Estimate`, `Finding`, and the one error a user can cause, `PlanError`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BasisKind = Literal["measured", "read", "derived", "assumed"]
Severity = Literal["info", "warning", "refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Where a number comes from: `measured` (on what, when), `read` (from which file), `derived` (formula), `assumed` (why)."""

    kind: BasisKind
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A quantity in bytes with the 90 % interval `[low_bytes, high_bytes]` around `best_bytes`."""

    best_bytes: int
    low_bytes: int
    high_bytes: int
    basis: Basis
    formula: str = ""

    @classmethod
    def exact(cls, value_bytes: int, basis: Basis, formula: str = "") -> Estimate:
        """An estimate whose interval is a single value."""
        return cls(best_bytes=value_bytes, low_bytes=value_bytes, high_bytes=value_bytes, basis=basis, formula=formula)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A thing the reader must know: what was assumed, what does not exist, what will not start.

    `code` is stable and explained in docs/findings.md; `text` is one or two sentences in the reader's words.
    """

    code: str
    severity: Severity
    text: str
    field: str | None = None


class PlanError(ValueError):
    """A user's mistake: names the field, the value and what is allowed, in one sentence."""

    def __init__(self, field: str, value: object, text: str) -> None:
        super().__init__(text)
        self.field = field
        self.value = value
        self.text = text
