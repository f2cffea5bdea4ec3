"""Hand-made plans for tests of words, tables and figures: round numbers whose sums can be seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.answer import Advice, BudgetLine, KvGroup, KvPool, Plan, RankPlan, RankWeights, ResolvedDefault
from planner.facts import Basis, Estimate, Finding
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB, KIB, MIB

DERIVED = Basis(kind="derived", note="a formula")


def estimate(best_gib: float, half_width_gib: float = 0.0) -> Estimate:
    best, half = int(best_gib * GIB), int(half_width_gib * GIB)
    return Estimate(best_bytes=best, low_bytes=best - half, high_bytes=best + half, basis=DERIVED, formula="1 + 1")


def rank_plan(pp_rank: int = 0, *, weights_gib: float = 15, pool_gib: float = 50) -> RankPlan:
    weights, activation, non_torch = estimate(weights_gib), estimate(2, 0.5), estimate(0.25, 0.1)
    graphs, pool = estimate(0.75, 0.25), estimate(pool_gib, 1)
    outside = {"other_processes": estimate(0), "context": estimate(0.5, 0.25)}
    used = weights_gib + 2 + 0.25 + 0.75 + pool_gib + 0.5
    lines = (
        BudgetLine(name="weights", estimate=weights),
        BudgetLine(name="activation", estimate=activation),
        BudgetLine(name="non_torch", estimate=non_torch),
        BudgetLine(name="cuda_graphs", estimate=graphs),
        BudgetLine(name="kv_pool", estimate=pool),
        *(BudgetLine(name=name, estimate=part, is_inside_budget=False) for name, part in outside.items()),
        BudgetLine(name="unreserved", estimate=estimate(80 - used), is_inside_budget=False),
    )
    return RankPlan(
        pp_rank=pp_rank,
        num_layers=32,
        weights=RankWeights(
            parameter_bytes=weights.best_bytes,
            buffer_bytes=0,
            post_load_bytes=0,
            load=weights,
            by_role=(("embedding", GIB), ("mlp", 10 * GIB), ("vision", 0)),
        ),
        activation=activation,
        non_torch=non_torch,
        cuda_graphs=graphs,
        kv_pool=pool,
        lines=lines,
    )


def kv_pool(num_blocks: int = 25_600, *, fits: bool = True) -> KvPool:
    group = KvGroup(kind="full", num_layers=32, block_size=16, page_bytes=64 * KIB, blocks_per_request=2048)
    return KvPool(
        groups=(group,),
        block_size=16,
        bytes_per_block=2 * MIB,
        num_blocks=num_blocks,
        tokens=num_blocks * 16,
        max_concurrency=num_blocks / 2048,
        needed_bytes=4 * GIB,
        estimated_max_model_len=32_768 if fits else 20_480,
        fits=fits,
        kv_bytes_per_token=128 * KIB,
        state_bytes_per_request=0,
        max_model_len=32_768,
    )


@pytest.fixture
def fitting_plan() -> Plan:
    """Starts: 80 GiB card, 15 GiB of weights, 50 GiB of cache."""
    return Plan(
        request=PlanRequest(model_id="org/model-8b", gpu="Card 80", flags=EngineFlags(max_model_len=32_768)),
        gpu_name="Card 80",
        gpu_total=estimate(80),
        vllm_version="0.33.0",
        era="0.32 and newer",
        will_start=True,
        reason="409,600 KV tokens in 25,600 blocks.",
        vllm_error=None,
        findings=(Finding(code="note", severity="info", text="A note."),),
        resolved=(
            ResolvedDefault(name="max_num_seqs", value=1024, is_given=False, basis=DERIVED),
            ResolvedDefault(name="max_model_len", value=32_768, is_given=True, basis=Basis(kind="read", note="given")),
        ),
        ranks=(rank_plan(),),
        bounding_rank=0,
        pool=kv_pool(),
        pool_low=kv_pool(25_000),
        pool_high=kv_pool(26_200),
        advice=(),
        serve_command="vllm serve org/model-8b --max-model-len 32768",
    )


@pytest.fixture
def failing_plan(fitting_plan: Plan) -> Plan:
    """Does not start: the weights leave 3 GiB less than nothing."""
    return replace(
        fitting_plan,
        will_start=False,
        reason="Nothing is left for the KV cache.",
        ranks=(rank_plan(weights_gib=72, pool_gib=-3),),
        pool=kv_pool(0, fits=False),
        pool_low=kv_pool(0, fits=False),
        pool_high=kv_pool(0, fits=False),
        advice=(Advice(change="--max-model-len 8192", effect="starts", flag="max_model_len", value=8192),),
    )


@pytest.fixture
def staged_plan(fitting_plan: Plan) -> Plan:
    """Two pipeline stages; the second holds more weights and sets the pool."""
    ranks = (rank_plan(), rank_plan(1, weights_gib=20, pool_gib=45))
    return replace(fitting_plan, ranks=ranks, bounding_rank=1)
