"""Full CUDA graphs of models with states: a block for each sequence, or the start stops after the pool is laid out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.advice import advise
from planner.answer import Plan
from planner.budget import plan
from planner.gpu_catalog import find_gpu
from planner.inventory import ModelFacts
from planner.matrix import MatrixQuestion, Split, sheet
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.units import GIB

MODEL = "Qwen/Qwen3.8-27B-FP8"
# A public start of 0.26 on an L40S: 8.82 GiB of pool are 184 blocks, fewer than the 256 sequences of the default.
POOL_BYTES = round(8.82 * GIB)


def request(version: str = "0.26.0", **flags: object) -> PlanRequest:
    asked = {"max_model_len": 131_072, "kv_cache_memory_bytes": POOL_BYTES} | flags
    return PlanRequest(
        model_id=MODEL,
        gpu="L40S",
        vllm_version=version,
        flags=EngineFlags(**asked),  # type: ignore[arg-type]  # the keys are its fields
    )


def facts(asked: PlanRequest) -> ModelFacts:
    return facts_for(asked, catalogue_documents(MODEL))


def planned(version: str = "0.26.0", **flags: object) -> Plan:
    asked = request(version, **flags)
    return plan(asked, facts(asked))


def test_more_sequences_than_blocks_stop_the_start_in_vllms_words() -> None:
    found = planned()

    assert (found.will_start, found.pool.fits, found.pool.num_blocks) == (False, True, 184)
    assert (found.vllm_error or "").startswith("max_num_seqs (256) exceeds available Mamba cache blocks (184).")
    assert "max_num_seqs can be at most 184 here" in found.reason


def test_what_a_plan_advises_starts() -> None:
    asked = request()
    changes = {advice.flag: advice.value for advice in advise(planned(), facts(asked), plan)}

    assert changes["max_num_seqs"] == 128
    assert changes["enforce_eager"] is True


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.19.0", {}),  # cut the sizes to capture instead
        ("0.26.0", {"max_num_seqs": 184}),
        ("0.26.0", {"enforce_eager": True}),
        ("0.26.0", {"cudagraph_mode": "PIECEWISE"}),
        ("0.26.0", {"speculative_config": SpeculativeConfig(method="mtp", num_speculative_tokens=1)}),
    ],
)
def test_nothing_is_asked_without_full_graphs_of_plain_decoding(version: str, flags: dict[str, object]) -> None:
    assert "Mamba cache blocks" not in (planned(version, **flags).vllm_error or "")


def test_attention_alone_asks_for_no_block() -> None:
    asked = PlanRequest(
        model_id="Qwen/Qwen3-8B",
        gpu="L40S",
        vllm_version="0.26.0",
        flags=EngineFlags(max_model_len=1024, kv_cache_memory_bytes=GIB // 4, max_num_seqs=1024),
    )

    assert plan(asked, facts_for(asked, catalogue_documents("Qwen/Qwen3-8B"))).will_start


def test_the_low_end_of_the_band_warns() -> None:
    asked = replace(request(max_num_seqs=64), flags=EngineFlags(max_model_len=8192, max_num_seqs=175))
    found = plan(replace(asked, flags=replace(asked.flags, gpu_memory_utilization=0.93)), facts(asked))

    low, best = found.pool_low.num_blocks, found.pool.num_blocks
    assert low < 175 <= best
    assert "may-lack-state-blocks" in [finding.code for finding in found.findings]


def test_a_table_of_plans_stops_where_the_plan_stops() -> None:
    asked = request()
    question = MatrixQuestion(
        request=asked,
        gpus=(find_gpu("L40S"),),
        splits=(Split(tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1),),
    )

    assert sheet(question, facts(asked)).stop((0, 0, 0)) == "few_blocks"
