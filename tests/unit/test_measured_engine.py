"""What a running engine's metrics say of its start, beside the plan of its model."""

from __future__ import annotations

import pytest

from live.measured_engine import measured_engine
from live.samples import CacheConfig, EngineIdentity, EngineSample
from planner.answer import Plan
from planner.calibration_evidence import evidence_of
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.reconcile import reconcile
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB


@pytest.fixture(scope="module")
def plan() -> Plan:
    flags = EngineFlags(max_model_len=8192, gpu_memory_utilization=0.95)
    request = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="H100 80GB SXM", vllm_version="0.19.0", flags=flags)
    return answer(request, catalogue_documents("Qwen/Qwen3-8B"))[0]


def sample(**config: object) -> EngineSample:
    values = {"block_size": 16, "num_gpu_blocks": 26_000, "gpu_memory_utilization": 0.95} | config
    return EngineSample(
        time_unix_ns=0,
        identity=EngineIdentity(model_name="Qwen/Qwen3-8B", engine="0"),
        cache_config=CacheConfig(**values),
    )


def test_blocks_times_their_bytes_are_the_pool_to_one_block(plan: Plan) -> None:
    start = measured_engine(sample(), plan, version="0.19.0", served=8192)

    (rank,) = start.ranks
    assert rank.kv_pool is not None
    assert rank.kv_pool.low_bytes == 26_000 * plan.pool.bytes_per_block
    assert rank.kv_pool.high_bytes - rank.kv_pool.low_bytes == plan.pool.bytes_per_block
    assert start.outcome == "started"


def test_an_engine_is_reconciled_by_pool_and_blocks_and_teaches_the_sum_of_the_rest(plan: Plan) -> None:
    start = measured_engine(sample(), plan, version="0.19.0", served=8192)

    found = reconcile(plan, start)
    learned = evidence_of(plan, start)

    assert {term.name for term in found.terms} == {"kv_pool", "blocks"}
    assert {each.term for each in learned} == {"activation", "non_torch"}
    moved = sum(each.measured_bytes - each.predicted_bytes for each in learned)
    assert moved == pytest.approx(plan.ranks[0].kv_pool.best_bytes - 26_000 * plan.pool.bytes_per_block, abs=0.01 * GIB)


def test_blocks_of_another_size_say_nothing_of_bytes(plan: Plan) -> None:
    start = measured_engine(sample(block_size=64), plan, version="0.19.0", served=8192)

    assert start.ranks == ()
    assert start.blocks == 26_000


def test_an_engine_that_exports_nothing_has_nothing_to_compare(plan: Plan) -> None:
    bare = EngineSample(time_unix_ns=0, identity=EngineIdentity(model_name="m", engine="0"))

    found = reconcile(plan, measured_engine(bare, plan, version=None, served=None))

    assert found.terms == ()
    assert found.headline is None
