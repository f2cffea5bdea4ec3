"""A start beside its plan, term by term: predicted, measured, the signed error, whether the band holds it, and why it may differ.

Pure. The budget's identity is checked with the printed figures alone, so that a log that does not add up is told apart from
a plan that is wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from planner.answer import KvPool, Plan, RankPlan
from planner.calibration_evidence import stage_of_rank, utilization_of
from planner.facts import Estimate
from planner.measured_start import MeasuredRank, MeasuredStart, is_graph_estimate_charged, release
from planner.reconcile_reasons import Reason, reasons_of
from planner.units import GIB
from planner.versions import Era, Version, era_of, parse_version

Unit = Literal["bytes", "tokens", "blocks", "requests"]
IDENTITY_TOLERANCE_BYTES = round(0.05 * GIB)
_EXACT_SHARE = 1e-9
_PRINTED_TENTHS = 0.005  # a concurrency is printed to two decimals


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTerm:
    """One term: what the plan says with its band, what the start measured with what rounding leaves of it."""

    name: str
    unit: Unit
    predicted: float
    low: float
    high: float
    measured: float
    measured_low: float
    measured_high: float
    rank: str = ""  # the worker whose figure it is; "" where the log names none

    @property
    def error(self) -> float:
        """Measured less predicted, in the unit."""
        return self.measured - self.predicted

    @property
    def error_fraction(self) -> float | None:
        """The error as a part of what was predicted, None where nothing was."""
        return self.error / abs(self.predicted) if self.predicted else None

    @property
    def is_inside(self) -> bool:
        """Whether the measured interval meets the band."""
        slack = _EXACT_SHARE * max(abs(self.low), abs(self.high))
        return self.measured_high >= self.low - slack and self.measured_low <= self.high + slack


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """`utilisation x total - parts = pool`, with printed figures: the difference, or which of them are missing."""

    formula: str
    missing: tuple[str, ...] = ()
    difference_bytes: int | None = None  # what the formula gives less the printed pool
    tolerance_bytes: int = IDENTITY_TOLERANCE_BYTES

    @property
    def closes(self) -> bool | None:
        """Whether it adds up, None where a figure is missing."""
        return None if self.difference_bytes is None else abs(self.difference_bytes) <= self.tolerance_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """The whole comparison of one start with one plan."""

    plan: Plan
    start: MeasuredStart
    terms: tuple[ComparedTerm, ...]
    identity: Identity
    reasons: tuple[Reason, ...]
    bounding_rank: str  # the worker with the least memory for the cache
    is_verdict_right: bool | None  # whether start and plan agree on starting; None where the log does not tell

    def term(self, name: str) -> ComparedTerm | None:
        """The bounding rank's term of that name."""
        return next((term for term in self.terms if term.name == name), None)

    @property
    def headline(self) -> ComparedTerm | None:
        """The term that decides: the pool, else what stands for it."""
        found = (self.term(name) for name in ("kv_pool", "available", "tokens", "blocks", "needed"))
        return next((term for term in found if term is not None), None)


def reconcile(plan: Plan, start: MeasuredStart) -> Reconciliation:
    """`start` beside `plan`, the weakest rank first: it bounds the pool."""
    weakest = start.weakest
    ordered = sorted(start.ranks, key=lambda rank: rank is not weakest)
    version = release(start.version) or parse_version(plan.vllm_version)
    terms = [term for rank in ordered for term in _rank_terms(plan, rank, version)]
    terms += _card_terms(plan, start) + _pool_terms(plan, start) + _failure_terms(plan, start)
    return Reconciliation(
        plan=plan,
        start=start,
        terms=tuple(terms),
        identity=_identity(plan, start),
        reasons=reasons_of(plan, start),
        bounding_rank="" if weakest is None else weakest.rank,
        is_verdict_right=None if start.outcome == "unknown" else (start.outcome == "started") == plan.will_start,
    )


# -- terms --------------------------------------------------------------------------------------------------------------


def _rank_terms(plan: Plan, rank: MeasuredRank, version: Version) -> list[ComparedTerm]:
    planned = plan.ranks[stage_of_rank(rank, plan)]
    pairs = [
        ("weights", planned.weights.load, rank.weights),
        *_activation_pair(planned, rank),
        ("non_torch", planned.non_torch, rank.non_torch),
        ("graph_estimate", planned.cuda_graphs, rank.graph_estimate),
        ("captured_graphs", planned.captured_graphs, rank.captured_graphs),
        ("kv_pool", planned.kv_pool, rank.kv_pool),
    ]
    return [
        _bytes_term(name, predicted, measured, rank.rank)
        for name, predicted, measured in pairs
        if predicted is not None and measured is not None and _is_comparable(name, planned, version)
    ]


def _is_comparable(name: str, planned: RankPlan, version: Version) -> bool:
    """Before 0.20 vLLM may print an estimate of graphs that its budget does not hold: the plan then has none to compare."""
    return name != "graph_estimate" or planned.cuda_graphs.high_bytes > 0 or is_graph_estimate_charged(version)


def _activation_pair(planned: RankPlan, rank: MeasuredRank) -> list[tuple[str, Estimate, Estimate | None]]:
    """The peak alone where it can be told, else the printed sum with the graph estimate beside the sum of both."""
    if rank.activation is not None or rank.activation_printed is None:
        return [("activation", planned.activation, rank.activation)]
    return [("activation_and_graphs", _sum(planned.activation, planned.cuda_graphs), rank.activation_printed)]


def _sum(first: Estimate, second: Estimate) -> Estimate:
    best = first.best_bytes + second.best_bytes
    down = math.isqrt((first.best_bytes - first.low_bytes) ** 2 + (second.best_bytes - second.low_bytes) ** 2)
    up = math.isqrt((first.high_bytes - first.best_bytes) ** 2 + (second.high_bytes - second.best_bytes) ** 2)
    return Estimate(best_bytes=best, low_bytes=best - down, high_bytes=best + up, basis=first.basis)


def _bytes_term(name: str, predicted: Estimate, measured: Estimate, rank: str = "") -> ComparedTerm:
    return ComparedTerm(
        name=name,
        unit="bytes",
        predicted=predicted.best_bytes,
        low=predicted.low_bytes,
        high=predicted.high_bytes,
        measured=measured.best_bytes,
        measured_low=measured.low_bytes,
        measured_high=measured.high_bytes,
        rank=rank,
    )


def _card_terms(plan: Plan, start: MeasuredStart) -> list[ComparedTerm]:
    return [] if start.total is None else [_bytes_term("card_total", plan.gpu_total, start.total)]


def _pool_terms(plan: Plan, start: MeasuredStart) -> list[ComparedTerm]:
    """Tokens, blocks and requests at once; only where both speak of the same length."""
    is_same_length = start.max_model_len in (None, plan.pool.max_model_len)
    found = [
        _count_term("tokens", "tokens", plan, start.tokens),
        _count_term("blocks", "blocks", plan, start.blocks),
        _count_term("concurrency", "requests", plan, start.concurrency if is_same_length else None),
    ]
    return [term for term in found if term is not None]


def _count_term(name: str, unit: Unit, plan: Plan, measured: float | None) -> ComparedTerm | None:
    if measured is None:
        return None

    def read(pool: KvPool) -> float:
        return {"tokens": pool.tokens, "blocks": pool.num_blocks, "concurrency": pool.max_concurrency}[name]

    low, high = sorted((read(plan.pool_low), read(plan.pool_high)))
    half = _PRINTED_TENTHS if unit == "requests" else 0.0
    return ComparedTerm(
        name=name,
        unit=unit,
        predicted=read(plan.pool),
        low=low,
        high=high,
        measured=measured,
        measured_low=measured - half,
        measured_high=measured + half,
    )


def _failure_terms(plan: Plan, start: MeasuredStart) -> list[ComparedTerm]:
    """What vLLM's fit error says: needed, available, and the length that would fit."""
    terms = []
    if start.needed is not None:
        needed = Estimate.exact(plan.pool.needed_bytes, plan.ranks[plan.bounding_rank].kv_pool.basis)
        terms.append(_bytes_term("needed", needed, start.needed))
    if start.available is not None:
        terms.append(_bytes_term("available", plan.ranks[plan.bounding_rank].kv_pool, start.available))
    if start.estimated_length is not None:
        length = float(start.estimated_length)
        terms.append(
            ComparedTerm(
                name="estimated_length",
                unit="tokens",
                predicted=plan.pool.estimated_max_model_len,
                low=plan.pool_low.estimated_max_model_len,
                high=plan.pool_high.estimated_max_model_len,
                measured=length,
                measured_low=length,
                measured_high=length,
            )
        )
    return terms


# -- the identity -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    name: str
    value: Estimate | None


def _identity(plan: Plan, start: MeasuredStart) -> Identity:
    """The budget of the start's own era, from printed figures of the weakest rank; the total may be the catalogue's."""
    rank = start.weakest or MeasuredRank()
    parts = _parts(plan, start, rank)
    total = start.total or plan.gpu_total
    names = " - ".join(part.name for part in parts)
    formula = f"utilisation x card total - {names} = KV cache pool"
    if plan.request.flags.kv_cache_memory_bytes is not None:
        return Identity(
            formula="the pool is given by kv_cache_memory_bytes: vLLM makes no profile", missing=("a profile",)
        )
    missing = [part.name for part in (*parts, _Part(name="KV cache pool", value=rank.kv_pool)) if part.value is None]
    if missing or rank.kv_pool is None:
        return Identity(formula=formula, missing=tuple(missing))
    taken = [part.value for part in parts if part.value is not None]
    left = math.ceil(total.best_bytes * utilization_of(plan, start)) - sum(value.best_bytes for value in taken)
    # A total that the log does not print is known to the catalogue's band only.
    slack = (
        0 if start.total is not None else max(total.high_bytes - total.best_bytes, total.best_bytes - total.low_bytes)
    )
    return Identity(
        formula=formula,
        difference_bytes=left - rank.kv_pool.best_bytes,
        tolerance_bytes=IDENTITY_TOLERANCE_BYTES + slack,
    )


def _parts(plan: Plan, start: MeasuredStart, rank: MeasuredRank) -> tuple[_Part, ...]:
    """What the era takes off: to 0.20 weights, peak and non-torch; then the graph estimate too, from 0.27 within the peak."""
    version = release(start.version) or parse_version(plan.vllm_version)
    weights, non_torch = _Part(name="weights", value=rank.weights), _Part(name="non-torch", value=rank.non_torch)
    if era_of(version) >= Era.V027_031:
        return weights, non_torch, _Part(name="printed peak (graph estimate in it)", value=rank.activation_printed)
    peak = _Part(name="activation peak", value=rank.activation_printed)
    is_planned = plan.ranks[stage_of_rank(rank, plan)].cuda_graphs.high_bytes > 0
    if is_planned or (rank.graph_estimate is not None and is_graph_estimate_charged(version)):
        return weights, peak, non_torch, _Part(name="graph estimate", value=rank.graph_estimate)
    return weights, peak, non_torch
