"""A card's memory as NVML measures it, split into vLLM's parts as a plan or a start-up log tells them, and what is outside them.

NVML knows processes, not what they use memory for; the split is the terms', and what they leave over is said to be left over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from live.nvml import DetectedGpu, ProcessMemory
from planner.answer import Plan
from planner.facts import Estimate
from planner.startup_log import StartupLog

TermSource = Literal["plan", "log"]
_OF_THE_CARD = {"unreserved", "other_processes", "free"}  # a plan's lines that are not the engine's
_GIVEN_BACK = "activation"  # freed after the profile run; PyTorch keeps as much of it as it likes
_LEAST_SHARE = 0.5  # of the terms that a process must hold to be taken for the engine
_FITTING_SHARE = 0.9  # of the terms but activation that it must hold for them to be its own


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTerms:
    """What one card holds of the engine: names, bytes and whether vLLM counts them in its budget."""

    source: TermSource
    terms: tuple[tuple[str, Estimate, bool], ...]
    budget_bytes: int | None  # gpu_memory_utilization × the card's total, as far as known

    @property
    def total_bytes(self) -> int:
        """All terms at their best guess."""
        return sum(max(0, estimate.best_bytes) for _, estimate, _ in self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPart:
    """A stretch of the card's bar. `is_inside_budget` is None where it is not known."""

    name: str
    num_bytes: int
    is_inside_budget: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardMemory:
    """One card: parts that add up to its total. `text` says in a sentence what could not be told apart, empty else."""

    gpu: DetectedGpu
    engine: ProcessMemory | None
    parts: tuple[CardPart, ...]
    budget_bytes: int | None
    text: str = ""

    @property
    def engine_bytes(self) -> int:
        """What the engine's process holds, all in all."""
        return sum(part.num_bytes for part in self.parts if part.name not in _NOT_ENGINE)

    @property
    def beyond_budget_bytes(self) -> int | None:
        """By how much the engine holds more than its budget; None where that is not known."""
        return None if self.budget_bytes is None or self.engine is None else self.engine_bytes - self.budget_bytes


_NOT_ENGINE = {"other_processes", "driver", "free"}


def terms_of_plan(plan: Plan) -> EngineTerms:
    """The terms of the rank that bounds the plan's pool."""
    rank = plan.ranks[plan.bounding_rank]
    lines = tuple(
        (line.name, line.estimate, line.is_inside_budget) for line in rank.lines if line.name not in _OF_THE_CARD
    )
    inside = sum(line.estimate.best_bytes for line in rank.lines if line.is_inside_budget)
    return EngineTerms(source="plan", terms=lines, budget_bytes=inside)


def terms_of_log(log: StartupLog, total_bytes: int) -> EngineTerms | None:
    """The terms that a start-up log prints, for a card of `total_bytes`; None where it prints no pool or no weights."""
    names = (("weights", "weights"), ("activation_peak", "activation"), ("non_torch", "non_torch"))
    found = [(name, estimate, True) for field, name in names if (estimate := log.memory(field)) is not None]
    weights, pool, graphs = log.memory("weights"), log.memory("available_kv"), log.memory("cuda_graphs")
    if weights is None or pool is None:
        return None
    found.append(("kv_pool", pool, True))
    if graphs is not None:
        found.append(("cuda_graphs", graphs, log.memory("cuda_graphs_estimate") is not None))
    share = log.gpu_memory_utilization
    budget_bytes = None if share is None else int(total_bytes * share)
    return EngineTerms(source="log", terms=tuple(found), budget_bytes=budget_bytes)


def split_card(gpu: DetectedGpu, terms: EngineTerms | None) -> CardMemory:
    """The card's memory in parts that add up to its total."""
    engine = _engine_of(gpu.processes, terms)
    if engine is None or not engine.used_bytes:
        return _undivided(gpu)
    held_bytes = min(engine.used_bytes, gpu.used_bytes)
    parts, text = _engine_parts(held_bytes, terms)
    budget_bytes = None if terms is None else terms.budget_bytes
    around = _around(gpu, held_bytes)
    return CardMemory(gpu=gpu, engine=engine, parts=(*parts, *around), budget_bytes=budget_bytes, text=text)


def _engine_of(processes: Sequence[ProcessMemory], terms: EngineTerms | None) -> ProcessMemory | None:
    """The process with the most memory, where that can be the engine."""
    known = [each for each in processes if each.used_bytes is not None]
    largest = max(known, key=lambda each: each.used_bytes or 0, default=None)
    if largest is None or terms is None:
        return largest
    return largest if (largest.used_bytes or 0) >= _LEAST_SHARE * terms.total_bytes else None


def _undivided(gpu: DetectedGpu) -> CardMemory:
    text = (
        "The driver does not tell what each process holds (in a container it often does not), so the engine's part is not known."
        if gpu.processes or gpu.used_bytes > gpu.total_bytes // 20
        else "No process holds memory of this card."
    )
    if any(each.used_bytes for each in gpu.processes):
        text = "No process of this card holds enough to be this engine; it may run on another card or machine."
    return CardMemory(gpu=gpu, engine=None, parts=_around(gpu, 0), budget_bytes=None, text=text)


def _around(gpu: DetectedGpu, engine_bytes: int) -> tuple[CardPart, ...]:
    """What is not the engine's: other processes, the driver's own, and what is free."""
    driver_bytes = min(gpu.reserved_bytes or 0, max(0, gpu.total_bytes - gpu.used_bytes - gpu.free_bytes))
    other_bytes = max(0, gpu.used_bytes - engine_bytes)
    free_bytes = gpu.total_bytes - engine_bytes - other_bytes - driver_bytes
    parts = (("other_processes", other_bytes), ("driver", driver_bytes), ("free", free_bytes))
    return tuple(CardPart(name=name, num_bytes=size, is_inside_budget=False) for name, size in parts)


def _engine_parts(held_bytes: int, terms: EngineTerms | None) -> tuple[tuple[CardPart, ...], str]:
    """The engine's process in parts that add up to what it holds."""
    if terms is None:
        text = "Without a plan or a start-up log of this engine its memory cannot be told apart."
        return (CardPart(name="engine", num_bytes=held_bytes),), text
    fixed = [
        (name, max(0, estimate.best_bytes), inside) for name, estimate, inside in terms.terms if name != _GIVEN_BACK
    ]
    fixed_bytes = sum(size for _, size, _ in fixed)
    if held_bytes < _FITTING_SHARE * fixed_bytes:
        text = (
            "The process holds less than the parts add up to: it is still loading, or the plan is not of this engine. "
            "It is shown whole."
        )
        return (CardPart(name="engine", num_bytes=held_bytes),), text
    return tuple(_fitted(held_bytes, fixed, terms)), ""


def _fitted(held_bytes: int, fixed: Sequence[tuple[str, int, bool]], terms: EngineTerms) -> list[CardPart]:
    """The terms, then activation as far as it is still held, then what no term explains; a small excess shortens the pool."""
    excess_bytes = max(0, sum(size for _, size, _ in fixed) - held_bytes)
    parts = [
        CardPart(name=name, num_bytes=size - (excess_bytes if name == "kv_pool" else 0), is_inside_budget=inside)
        for name, size, inside in fixed
    ]
    left_bytes = held_bytes - sum(part.num_bytes for part in parts)
    peak_bytes = next((max(0, each.best_bytes) for name, each, _ in terms.terms if name == _GIVEN_BACK), 0)
    kept_bytes = min(left_bytes, peak_bytes)
    parts.append(CardPart(name=_GIVEN_BACK, num_bytes=kept_bytes, is_inside_budget=True))
    parts.append(CardPart(name="unexplained", num_bytes=left_bytes - kept_bytes, is_inside_budget=None))
    return [part for part in parts if part.num_bytes > 0]
