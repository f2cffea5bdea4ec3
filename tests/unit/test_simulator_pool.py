"""A plan's pool as the simulator's engine."""

from __future__ import annotations

import pytest

from planner.facts import PlanError
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.sequence import SimulatedRequest
from planner.simulate import simulate
from planner.simulator_pool import _drafting, engine_of_plan


def plan_of(model_id, gpu="H100 80GB SXM", **flags):
    request = PlanRequest(model_id=model_id, gpu=gpu, flags=EngineFlags(**flags))
    return answer(request, catalogue_documents(model_id))[0]


def requests():
    return [
        SimulatedRequest(request_id=f"r{number}", num_prompt_tokens=900, num_output_tokens=40) for number in range(6)
    ]


def test_a_plain_model_keeps_its_pool_and_flags():
    plan = plan_of("Qwen/Qwen3-8B", max_model_len=8192, max_num_seqs=17)

    engine = engine_of_plan(plan)

    assert engine.config.num_gpu_blocks == plan.pool.num_blocks
    assert engine.config.max_num_seqs == 17
    assert engine.config.enable_prefix_caching
    assert engine.findings == ()


@pytest.mark.parametrize(
    ("model_id", "kinds"),
    [
        ("google/gemma-3-27b-it", {"full", "sliding_window"}),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"full", "state"}),
        ("google/gemma-4-26B-A4B-it", {"full", "sliding_window"}),
    ],
)
def test_hybrid_models_are_served_with_their_groups(model_id, kinds):
    engine = engine_of_plan(plan_of(model_id, tensor_parallel_size=8, max_model_len=8192))

    result = simulate(engine.config, requests())

    assert {group.kind for group in engine.config.groups} == kinds
    assert result.summary.num_finished == 6


def test_lost_prefix_caching_is_said():
    engine = engine_of_plan(plan_of("Qwen/Qwen3-Next-80B-A3B-Instruct", tensor_parallel_size=8))

    assert not engine.config.enable_prefix_caching
    assert [finding.code for finding in engine.findings] == ["simulated-without-prefix-caching"]


@pytest.mark.parametrize(
    ("method", "slots", "rows"), [("ngram", 0, 0), ("eagle3", 4, 0), ("draft_model", 4, 1), ("dflash", 5, 0)]
)
def test_a_drafter_brings_lookahead_slots(method, slots, rows):
    drafting = _drafting(SpeculativeConfig(method=method, num_speculative_tokens=4))

    assert (drafting.num_tokens, drafting.num_lookahead_tokens, drafting.num_draft_slots) == (4, slots, rows)


def test_an_ngram_drafter_leaves_the_prefix_cache_alone():
    speculative = SpeculativeConfig(method="ngram", num_speculative_tokens=4)

    config = engine_of_plan(plan_of("Qwen/Qwen3-8B", speculative_config=speculative, max_model_len=4096)).config

    assert (config.num_speculative_tokens, config.drop_last_hit_block, config.num_hash_lookahead_tokens) == (
        4,
        False,
        0,
    )


def test_chunked_attention_needs_its_chunk():
    plan = plan_of("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", tensor_parallel_size=8, max_model_len=16384)

    with pytest.raises(PlanError, match="chunk"):
        engine_of_plan(plan)

    assert simulate(engine_of_plan(plan, chunk_tokens=8192).config, requests()).summary.num_finished == 6


def test_a_plan_without_a_pool_is_refused():
    with pytest.raises(PlanError, match="no room"):
        engine_of_plan(plan_of("deepseek-ai/DeepSeek-V3", gpu="H100 80GB SXM"))
