"""From one start beside its plan to the evidence that a calibration learns from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.answer import Plan, RankPlan
from planner.calibration import CalibratedStart, Evidence, constants_digest, situation_of
from planner.facts import Estimate
from planner.measured_start import MeasuredRank, MeasuredStart, Term, is_graph_estimate_charged, release
from planner.versions import parse_version

_CHARGED: tuple[Term, ...] = ("activation", "non_torch", "graph_estimate")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """What the budget leaves for the terms that no line prints."""

    left_bytes: int
    rounding_bytes: int


def stage_of_rank(rank: MeasuredRank, plan: Plan) -> int:
    """The pipeline stage whose figures `rank` prints: its own name, else the bounding one."""
    if rank.pp_rank is not None and rank.pp_rank < len(plan.ranks):
        return rank.pp_rank
    return plan.bounding_rank


def general_terms(rank: RankPlan) -> dict[Term, Estimate]:
    """A plan's estimates by the names of measured terms."""
    captured = rank.captured_graphs
    found: dict[Term, Estimate] = {
        "activation": rank.activation,
        "non_torch": rank.non_torch,
        "graph_estimate": rank.cuda_graphs,
    }
    return found if captured is None else found | {"captured_graphs": captured}


def evidence_of(plan: Plan, start: MeasuredStart) -> tuple[Evidence, ...]:
    """What `start` says of each term of `plan`, which was made with the general constants."""
    rank = start.weakest
    if rank is None:
        return ()
    total = start.total or plan.gpu_total
    if rank.kv_pool is not None and rank.kv_pool.low_bytes > total.high_bytes:
        return ()  # another card's log
    planned = plan.ranks[stage_of_rank(rank, plan)]
    general = general_terms(planned)
    measured = {term: getattr(rank, term) for term in general if general[term].high_bytes > 0}
    printed = {term: value for term, value in measured.items() if value is not None}
    found = [_printed(term, general[term], value) for term, value in printed.items()]
    unseen = [term for term in _CHARGED if term not in printed and general[term].high_bytes > 0]
    rest = _left_over(plan, planned, start, rank, printed) if unseen else None
    if rest is not None:
        found += _shared([(term, general[term]) for term in unseen], rest)
    return tuple(found)


def _printed(term: Term, general: Estimate, measured: Estimate) -> Evidence:
    return Evidence(
        term=term,
        predicted_bytes=general.best_bytes,
        low_bytes=general.low_bytes,
        high_bytes=general.high_bytes,
        measured_bytes=measured.best_bytes,
        rounding_bytes=_half(measured),
    )


def _half(estimate: Estimate) -> int:
    return (estimate.high_bytes - estimate.low_bytes) // 2


def utilization_of(plan: Plan, start: MeasuredStart) -> float:
    """The utilisation that the start ran with: as printed, else as the plan resolves it."""
    if start.utilization is not None:
        return start.utilization
    return next(float(str(item.value)) for item in plan.resolved if item.name == "gpu_memory_utilization")


def _left_over(
    plan: Plan, planned: RankPlan, start: MeasuredStart, rank: MeasuredRank, printed: dict[Term, Estimate]
) -> _Sum | None:
    """`utilisation * total - weights - pool - what is printed`: the sum of the terms that are not."""
    if rank.kv_pool is None or plan.request.flags.kv_cache_memory_bytes is not None:
        return None
    total, utilization = start.total or plan.gpu_total, utilization_of(plan, start)
    weights = rank.weights or planned.weights.load
    taken = [weights, rank.kv_pool, *(printed[term] for term in _CHARGED if term in printed)]
    if rank.graph_estimate is not None and "graph_estimate" not in printed and _is_charged(plan, start):
        taken.append(rank.graph_estimate)
    left = math.ceil(total.best_bytes * utilization) - sum(part.best_bytes for part in taken)
    rounding = math.isqrt(sum(_half(part) ** 2 for part in (total, *taken)))
    return _Sum(left_bytes=left, rounding_bytes=rounding)


def _is_charged(plan: Plan, start: MeasuredStart) -> bool:
    return is_graph_estimate_charged(release(start.version) or parse_version(plan.vllm_version))


def _shared(unseen: list[tuple[Term, Estimate]], rest: _Sum) -> list[Evidence]:
    """The sum's difference from the predicted one, divided by the squares of the terms' bands on that side."""
    difference = rest.left_bytes - sum(general.best_bytes for _, general in unseen)
    widths = [
        general.high_bytes - general.best_bytes if difference > 0 else general.best_bytes - general.low_bytes
        for _, general in unseen
    ]
    squares = [max(width, 1) ** 2 for width in widths]
    return [
        Evidence(
            term=term,
            predicted_bytes=general.best_bytes,
            low_bytes=general.low_bytes,
            high_bytes=general.high_bytes,
            measured_bytes=general.best_bytes + round(difference * square / sum(squares)),
            rounding_bytes=round(rest.rounding_bytes * math.sqrt(square / sum(squares))),
            is_shared=len(unseen) > 1,
        )
        for (term, general), square in zip(unseen, squares, strict=True)
    ]


def calibrated_start(plan: Plan, start: MeasuredStart, read_on: str) -> CalibratedStart:
    """The start as a calibration keeps it: figures and provenance, no line of the log."""
    rank = start.weakest or MeasuredRank()
    situation = situation_of(plan, stage_of_rank(rank, plan))
    names = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype", "gpu_memory_utilization")
    shown = {item.name: item.value for item in plan.resolved}
    return CalibratedStart(
        source=start.source[-120:],
        read_on=read_on,
        model_id=plan.request.model_id,
        vllm_version=plan.vllm_version,
        tensor_parallel_size=situation.tensor_parallel_size,
        pipeline_parallel_size=situation.pipeline_parallel_size,
        runner=situation.runner,
        stage=situation.stage,
        batch=situation.batch,
        flags=" ".join(f"{name}={shown[name]}" for name in names if name in shown),
        total_bytes=None if start.total is None else start.total.best_bytes,
        general_constants=constants_digest(),
        evidence=evidence_of(plan, start),
    )
