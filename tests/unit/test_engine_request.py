"""The plan that a running engine itself makes: its model, its exported flags, the card it runs on."""

from __future__ import annotations

from functools import lru_cache

import pytest

from live.cache_config import cache_config_from_labels
from live.engine_request import card_of, engine_plan, parallel_size
from live.nvml import DetectedGpu
from live.plan_comparison import EngineFacts, compare_with_plan
from live.samples import EngineIdentity, EngineSample, ServedModel
from planner.answer import Plan
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
BASE = PlanRequest(model_id=MODEL, gpu="H100 SXM5 80GB", flags=EngineFlags(max_num_seqs=3, kv_cache_dtype="fp8"))


@lru_cache(maxsize=64)
def replan(request: PlanRequest) -> Plan:
    return answer(request, catalogue_documents(request.model_id))[0]


def sample(**labels: object) -> EngineSample:
    config = cache_config_from_labels([(name, str(value)) for name, value in labels.items()])
    return EngineSample(time_unix_ns=0, identity=EngineIdentity(model_name=MODEL), cache_config=config)


def engine(**flags: object) -> Plan:
    return replan(PlanRequest(model_id=MODEL, gpu="H100 SXM5 80GB", vllm_version="0.32.0", flags=EngineFlags(**flags)))


def facts(length: int = 8192, info: str | None = None) -> EngineFacts:
    models = (ServedModel(model_id=MODEL, max_model_len=length),)
    return EngineFacts(vllm_version="0.32.0", models=models, server_info=info)


def gpu(name: str) -> DetectedGpu:
    return DetectedGpu(
        index=0,
        name=name,
        total_bytes=24 * GIB,
        used_bytes=0,
        free_bytes=23 * GIB,
        reserved_bytes=GIB,
        compute_capability=(8, 9),
        is_mig_enabled=False,
        processes=(),
    )


def test_the_engines_flags_are_planned_with_and_not_the_forms() -> None:
    asked = engine(gpu_memory_utilization=0.8, max_model_len=8192)
    said = sample(gpu_memory_utilization=0.8, cache_dtype="auto", num_gpu_blocks=asked.pool.num_blocks)

    found = engine_plan(BASE, said, facts(), replan)

    flags = found.plan.request.flags
    assert (flags.gpu_memory_utilization, flags.max_model_len, flags.kv_cache_dtype) == (0.8, 8192, "auto")
    assert flags.max_num_seqs is None
    assert found.plan.pool.num_blocks == asked.pool.num_blocks
    assert found.notes == ("tensor_parallel_size is not exported; the plan takes 1.",)


def test_a_size_that_makes_the_pool_right_is_taken_and_said() -> None:
    asked = engine(tensor_parallel_size=2, max_model_len=8192)

    found = engine_plan(BASE, sample(num_gpu_blocks=asked.pool.num_blocks), facts(), replan)

    assert found.plan.request.flags.tensor_parallel_size == 2
    assert "2 makes the pool as large as the engine's" in found.notes[0]


def test_what_server_info_says_is_not_guessed() -> None:
    found = engine_plan(
        BASE, sample(num_gpu_blocks=1), facts(info='{"parallel_config": "tensor_parallel_size=4"}'), replan
    )

    assert found.plan.request.flags.tensor_parallel_size == 4
    assert "/server_info" in found.notes[0]


def test_a_pool_that_no_size_makes_is_said() -> None:
    found = engine_plan(BASE, sample(num_gpu_blocks=77), facts(), replan)

    assert found.plan.request.flags.tensor_parallel_size == 1
    assert "no size makes the pool" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "size"),
    [('{"tensor_parallel_size": 8}', 8), ("tensor_parallel_size=2, x", 2), ("nothing", None), (None, None)],
)
def test_the_size_is_read_from_server_info(text: str | None, size: int | None) -> None:
    assert parallel_size(text) == size


def test_the_machines_own_card_is_planned_with() -> None:
    request, text = card_of([gpu("NVIDIA L4")], BASE)
    assert request.gpu == "L4"
    assert "NVML sees" in text

    request, text = card_of([gpu("Some Future Card")], BASE)
    assert (request.gpu, request.gpu_memory_bytes) == (None, 23 * GIB)
    assert "does not know" in text


def test_without_a_card_here_or_with_several_kinds_the_forms_stays() -> None:
    assert card_of([], BASE) == (BASE, "NVML sees no card here; the card is the Plan page's: H100 SXM5 80GB.")
    assert "is not known here" in card_of(None, BASE)[1]
    assert "several kinds" in card_of([gpu("NVIDIA L4"), gpu("NVIDIA A10")], BASE)[1]


def test_another_parallel_size_explains_a_pool() -> None:
    plan, actual = engine(), engine(tensor_parallel_size=2)

    comparison = compare_with_plan(sample(num_gpu_blocks=actual.pool.num_blocks), plan, None, replan)

    (number,) = (each for each in comparison.numbers if each.name == "num_gpu_blocks")
    assert number.state == "explained"
    assert "tensor_parallel_size=2" in number.text


def test_the_plan_at_the_engines_settings_stands_beside() -> None:
    plan, actual = engine(), engine(gpu_memory_utilization=0.7)

    comparison = compare_with_plan(
        sample(num_gpu_blocks=actual.pool.num_blocks, gpu_memory_utilization=0.7), plan, None, replan
    )

    (number,) = (each for each in comparison.numbers if each.name == "num_gpu_blocks")
    assert number.adjusted == actual.pool.num_blocks
    assert number.predicted == plan.pool.num_blocks
