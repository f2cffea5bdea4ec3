"""What resolving flags works on: the question, and the ledger of what was decided and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeVar

from planner.answer import ResolvedDefault
from planner.facts import Basis, BasisKind, Finding
from planner.gpu_catalog import GpuFacts
from planner.inventory import ModelFacts
from planner.request import EngineFlags, PlanRequest
from planner.versions import Version

_Value = TypeVar("_Value")


@dataclass(slots=True)
class Ledger:
    """The record of what was resolved and why, and of what the reader must know; filled while resolving."""

    lines: list[ResolvedDefault] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def note(self, name: str, value: _Value, note: str, *, is_given: bool, kind: BasisKind = "derived") -> _Value:
        """`value`, recorded under `name`."""
        basis = Basis(kind="read", note="as given") if is_given else Basis(kind=kind, note=note)
        self.lines.append(ResolvedDefault(name=name, value=value, is_given=is_given, basis=basis))
        return value

    def find(self, code: str, text: str, *, is_refusal: bool = False, field_name: str | None = None) -> None:
        """Record a finding."""
        severity: Literal["refusal", "warning"] = "refusal" if is_refusal else "warning"
        self.findings.append(Finding(code=code, severity=severity, text=text, field=field_name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What every rule asks: the request, the model, the card and the release, with the ledger they write to."""

    request: PlanRequest
    flags: EngineFlags
    model: ModelFacts
    gpu: GpuFacts
    version: Version
    ledger: Ledger

    @property
    def method(self) -> str | None:
        """The speculative method by vLLM's present name, or None."""
        config = self.flags.speculative_config
        if config is None:
            return None
        return "mtp" if config.method.endswith("mtp") else config.method

    @property
    def num_speculative_tokens(self) -> int:
        """Draft tokens a step, 0 without speculative decoding."""
        config = self.flags.speculative_config
        return config.num_speculative_tokens if config is not None else 0
