"""The memory budget: from a request and a model's facts to a `Plan`, one card per pipeline stage, as vLLM divides it.

Terms come from `weights` and `overhead`, blocks from `kv_cache`, the verdict from `verdict`; here they are put together.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from planner import baseline, kv_cache, overhead, weights
from planner.answer import BudgetLine, KvPool, Plan, RankPlan
from planner.calibration import Calibration, Situation, batch_text, calibrated, stage_of
from planner.calibration_use import Use, choose
from planner.checkpoint import checkpoint_findings
from planner.defaults import Resolved, resolve
from planner.facts import Basis, Estimate, Finding, PlanError
from planner.gpu_catalog import GpuFacts, custom_gpu, find_gpu
from planner.host_memory import host_lines
from planner.inventory import ModelFacts
from planner.parallel import layer_ranges
from planner.request import PlanRequest
from planner.serve_command import serve_command
from planner.units import GIB
from planner.verdict import judge


def plan(request: PlanRequest, model: ModelFacts, calibration: Calibration | None = None) -> Plan:
    """The whole answer to `request`; raises `PlanError` when vLLM would not even read the request.

    `calibration` is used only where the request names it and it is of the request's card and era.
    """
    use = choose(request, card_of(request), calibration)
    resolved = resolve(request, model, use.gpu)
    gpu = use.gpu
    ranks = tuple(_rank_plan(request, model, resolved, pp_rank, use) for pp_rank in range(resolved.pp))
    layout = kv_cache.layout(model, resolved)

    def pool_of(pick: Callable[[Estimate], int]) -> KvPool:
        return kv_cache.plan_pool(layout, tuple(pick(rank.kv_pool) for rank in ranks), resolved.max_model_len)

    pool = pool_of(lambda estimate: estimate.best_bytes)
    pool_low = pool_of(lambda estimate: estimate.low_bytes)
    pool_high = pool_of(lambda estimate: estimate.high_bytes)
    verdict = judge(request, resolved, ranks, (pool_low, pool, pool_high))
    return Plan(
        request=request,
        gpu_name=gpu.name,
        gpu_total=gpu.total,
        vllm_version=request.vllm_version,
        era=resolved.era.label,
        will_start=verdict.will_start,
        reason=verdict.reason,
        vllm_error=verdict.vllm_error,
        findings=_distinct(
            (
                *verdict.findings,
                *resolved.findings,
                *model.findings,
                *pool.findings,
                *checkpoint_findings(model, resolved),
                *use.findings,
            )
        ),
        resolved=resolved.defaults,
        ranks=ranks,
        bounding_rank=_bounding_rank(ranks, pool, layout),
        pool=pool,
        pool_low=pool_low,
        pool_high=pool_high,
        advice=(),
        serve_command=serve_command(request, resolved),
        host=host_lines(model, resolved, ranks, layout),
        calibration=None if use.calibration is None else use.calibration.identity,
    )


def card_of(request: PlanRequest) -> GpuFacts:
    """The card that `request` names, with its total replaced where the user gave one."""
    if request.gpu_memory_bytes is not None:
        return custom_gpu(request.gpu_memory_bytes, request.gpu)
    if request.gpu is None:
        raise PlanError("gpu", None, "No card is named: give --gpu NAME, or --gpu-memory-gib with what CUDA reports.")
    return find_gpu(request.gpu)


def _distinct(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(findings))


def _bounding_rank(ranks: tuple[RankPlan, ...], pool: KvPool, layout: kv_cache.KvLayout) -> int:
    """The stage whose card holds the fewest blocks; the first of equals."""
    blocks = [
        max(rank.kv_pool.best_bytes, 0) // max(1, bytes_per_block)
        for rank, bytes_per_block in zip(ranks, layout.bytes_per_block, strict=True)
    ]
    return blocks.index(min(blocks)) if pool.groups else 0


def _rank_plan(request: PlanRequest, model: ModelFacts, resolved: Resolved, pp_rank: int, use: Use) -> RankPlan:
    rank_weights = weights.rank_weights(model, resolved, pp_rank)
    activation, non_torch, charged_graphs, captured_graphs = charged_terms(model, resolved, pp_rank, use)
    kv_pool = _kv_pool(resolved, (rank_weights.load, activation, non_torch, charged_graphs))
    inside = (
        BudgetLine(name="weights", estimate=rank_weights.load),
        BudgetLine(name="activation", estimate=activation),
        BudgetLine(name="non_torch", estimate=non_torch),
        BudgetLine(name="cuda_graphs", estimate=charged_graphs),
        BudgetLine(name="kv_pool", estimate=kv_pool),
    )
    return RankPlan(
        pp_rank=pp_rank,
        num_layers=len(layer_ranges(len(model.layers), resolved.pp)[pp_rank]),
        weights=rank_weights,
        activation=activation,
        non_torch=non_torch,
        cuda_graphs=charged_graphs,
        kv_pool=kv_pool,
        lines=inside + _outside_lines(request, resolved, inside, captured_graphs),
        captured_graphs=captured_graphs,
    )


def charged_terms(
    model: ModelFacts, resolved: Resolved, pp_rank: int, use: Use
) -> tuple[Estimate, Estimate, Estimate, Estimate]:
    """(activation, non-torch, charged graphs, captured graphs) of one stage, as the calibration in use corrects them."""
    activation = overhead.activation(model, resolved, pp_rank)
    situation = Situation(
        model_id=use.model_id,
        tensor_parallel_size=resolved.tp,
        pipeline_parallel_size=resolved.pp,
        runner=resolved.runner,
        stage=stage_of(activation),
        batch=batch_text(resolved.max_num_seqs, resolved.max_num_batched_tokens),
    )
    return (
        calibrated(activation, "activation", situation, use.calibration),
        calibrated(overhead.non_torch(model, resolved, pp_rank), "non_torch", situation, use.calibration),
        calibrated(overhead.cuda_graphs(model, resolved, pp_rank), "graph_estimate", situation, use.calibration),
        calibrated(
            overhead.cuda_graphs_actual(model, resolved, pp_rank), "captured_graphs", situation, use.calibration
        ),
    )


def _kv_pool(resolved: Resolved, parts: tuple[Estimate, ...]) -> Estimate:
    """The pool: what the user fixed, else `ceil(total * utilisation) - sum(parts)`, half-widths added in quadrature."""
    given = resolved.flags.kv_cache_memory_bytes
    if given is not None:
        basis = Basis(kind="read", note="kv_cache_memory_bytes as given; vLLM then skips the memory profile")
        return Estimate.exact(given, basis, f"kv_cache_memory_bytes = {given:,}")
    total = resolved.gpu.total
    requested = requested_bytes(total.best_bytes, resolved)
    best = requested - sum(part.best_bytes for part in parts)
    card_down = requested - requested_bytes(total.low_bytes, resolved)
    card_up = requested_bytes(total.high_bytes, resolved) - requested
    low = best - math.isqrt(card_down**2 + sum((part.high_bytes - part.best_bytes) ** 2 for part in parts))
    high = best + math.isqrt(card_up**2 + sum((part.best_bytes - part.low_bytes) ** 2 for part in parts))
    terms = " - ".join(f"{part.best_bytes / GIB:.2f}" for part in parts)
    return Estimate(
        best_bytes=best,
        low_bytes=low,
        high_bytes=high,
        basis=Basis(kind="derived", note="requested memory less weights, activation, non-torch and graphs"),
        formula=f"{total.best_bytes / GIB:.2f} GiB x {resolved.gpu_memory_utilization} - {terms} = {best / GIB:.2f} GiB",
    )


def requested_bytes(total_bytes: int, resolved: Resolved) -> int:
    """What vLLM asks of a card: `ceil(total * gpu_memory_utilization)` (v1/worker/utils.py, request_memory)."""
    return math.ceil(total_bytes * resolved.gpu_memory_utilization)


def _outside_lines(
    request: PlanRequest, resolved: Resolved, inside: tuple[BudgetLine, ...], captured_graphs: Estimate
) -> tuple[BudgetLine, ...]:
    """What lies beside vLLM's budget on the card; `unreserved` closes the sum to the card's total."""
    others = Estimate.exact(request.other_processes_bytes, Basis(kind="read", note="as given"), "held by others")
    context = baseline.context(resolved)
    charged = next(line.estimate for line in inside if line.name == "cuda_graphs")
    beyond = Estimate(
        best_bytes=max(0, captured_graphs.best_bytes - charged.best_bytes),
        low_bytes=max(0, captured_graphs.low_bytes - charged.best_bytes),
        high_bytes=max(0, captured_graphs.high_bytes - charged.best_bytes),
        basis=captured_graphs.basis,
        formula=captured_graphs.formula,
    )
    outside = {"other_processes": others, "context": context, "graphs_beyond_budget": beyond}
    used = sum(line.estimate.best_bytes for line in inside) + sum(part.best_bytes for part in outside.values())
    rest = resolved.gpu.total.best_bytes - used
    outside["unreserved"] = Estimate.exact(rest, Basis(kind="derived", note="card total less every other line"), "rest")
    return tuple(BudgetLine(name=name, estimate=part, is_inside_budget=False) for name, part in outside.items())
