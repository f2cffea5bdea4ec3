from dataclasses import replace

import pytest

from planner.budget import plan
from planner.facts import PlanError
from planner.inventory import ModelFacts
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

REQUEST = PlanRequest(model_id="meta-llama/Llama-3.1-8B", gpu="H100 80GB SXM", vllm_version="0.19.0")


@pytest.fixture(scope="module")
def llama() -> ModelFacts:
    return facts_for(REQUEST, catalogue_documents("meta-llama/Llama-3.1-8B"))


def with_flags(**changes) -> PlanRequest:
    return replace(REQUEST, flags=EngineFlags(**changes))


def test_lines_add_up_to_the_card(llama):
    answer = plan(REQUEST, llama)

    assert sum(line.estimate.best_bytes for line in answer.ranks[0].lines) == answer.gpu_total.best_bytes


def test_lines_inside_the_budget_add_up_to_what_vllm_requests(llama):
    answer = plan(with_flags(gpu_memory_utilization=0.5), llama)

    inside = sum(line.estimate.best_bytes for line in answer.ranks[0].lines if line.is_inside_budget)

    assert inside == -(-answer.gpu_total.best_bytes // 2)


def test_a_logged_start_is_reproduced(llama):
    flags = {"gpu_memory_utilization": 0.95, "max_model_len": 8192, "max_num_batched_tokens": 8192}
    request = replace(with_flags(**flags, enable_prefix_caching=False), gpu_memory_bytes=int(79.19 * GIB))

    answer = plan(request, llama)

    # vLLM 0.19.0 on an H100 80GB: model loading 14.99 GiB, 58.11 GiB of KV cache, 29,751 blocks
    assert answer.ranks[0].weights.load.best_bytes / GIB == pytest.approx(14.99, abs=0.01)
    assert answer.ranks[0].kv_pool.best_bytes / GIB == pytest.approx(58.11, rel=0.002)
    assert answer.pool.num_blocks == pytest.approx(29_751, rel=0.002)


def test_a_given_pool_is_taken_as_it_is(llama):
    answer = plan(with_flags(kv_cache_memory_bytes=10 * GIB, max_model_len=8192), llama)

    assert answer.pool.num_blocks == 10 * GIB // (16 * 2 * 8 * 128 * 2 * 32)


def test_a_given_pool_that_cannot_be_allocated_does_not_start(llama):
    answer = plan(with_flags(kv_cache_memory_bytes=70 * GIB), llama)

    assert not answer.will_start
    assert "kv_cache_memory_bytes" in answer.reason


def test_other_processes_are_not_charged_but_must_leave_the_requested_share_free(llama):
    small = plan(replace(REQUEST, other_processes_bytes=2 * GIB), llama)
    large = plan(replace(REQUEST, other_processes_bytes=20 * GIB), llama)

    assert small.pool.num_blocks == plan(REQUEST, llama).pool.num_blocks
    assert not large.will_start
    assert large.vllm_error is not None
    assert "on startup is less than desired GPU memory utilization" in large.vllm_error


def test_weights_larger_than_the_card_do_not_load(llama):
    answer = plan(replace(REQUEST, gpu=None, gpu_memory_bytes=12 * GIB), llama)

    assert not answer.will_start
    assert "weights take 14.99 GiB" in answer.reason


def test_a_length_beyond_the_pool_is_refused_in_vllm_s_words(llama):
    answer = plan(replace(REQUEST, gpu="GeForce RTX 4090"), llama)

    assert not answer.will_start
    assert answer.vllm_error is not None
    assert "To serve at least one request with the model" in answer.vllm_error
    assert f"estimated maximum model length is {answer.pool.estimated_max_model_len}" in answer.vllm_error


def test_the_band_holds_the_best_value(llama):
    pool = plan(REQUEST, llama).ranks[0].kv_pool

    assert pool.low_bytes < pool.best_bytes < pool.high_bytes


def test_graphs_are_charged_from_0_20_on(llama):
    before = plan(replace(REQUEST, vllm_version="0.19.0"), llama)
    after = plan(replace(REQUEST, vllm_version="0.20.0"), llama)

    assert before.ranks[0].cuda_graphs.best_bytes == 0
    assert after.ranks[0].cuda_graphs.best_bytes > 0


def test_the_fullest_stage_bounds_the_pool(llama):
    answer = plan(with_flags(pipeline_parallel_size=3), llama)

    smallest = min(range(3), key=lambda rank: answer.ranks[rank].kv_pool.best_bytes // answer.ranks[rank].num_layers)
    assert [rank.num_layers for rank in answer.ranks] == [11, 11, 10]
    assert answer.bounding_rank == smallest


def test_no_card_is_refused_with_a_way_out(llama):
    with pytest.raises(PlanError, match="gpu-memory-gib"):
        plan(replace(REQUEST, gpu=None), llama)
