from dataclasses import replace

import pytest

from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest

DOCUMENTS = catalogue_documents("meta-llama/Llama-3.1-8B")
FAILING = PlanRequest(model_id="meta-llama/Llama-3.1-8B", gpu="GeForce RTX 4090")


@pytest.fixture(scope="module")
def advised():
    return answer(FAILING, DOCUMENTS)[0]


def test_a_plan_that_starts_needs_no_advice():
    plan, _ = answer(replace(FAILING, gpu="H100 80GB SXM"), DOCUMENTS)

    assert plan.advice == ()


def test_every_advice_makes_the_plan_start(advised):
    starts = []
    for item in advised.advice:
        flags = replace(EngineFlags(), **{item.flag: item.value})
        starts.append(answer(replace(FAILING, flags=flags), DOCUMENTS)[0].will_start)

    assert starts
    assert all(starts)


def test_a_shorter_length_is_the_largest_that_fits_or_a_round_one_below(advised):
    item = next(item for item in advised.advice if item.flag == "max_model_len")

    assert 0 <= advised.pool.estimated_max_model_len - item.value < 1024


def test_more_cards_come_after_cheaper_changes(advised):
    flags = [item.flag for item in advised.advice]

    assert flags.index("max_model_len") < flags.index("tensor_parallel_size")


def test_a_blocked_card_is_answered_by_a_lower_utilisation():
    plan, _ = answer(replace(FAILING, gpu="H100 80GB SXM", other_processes_bytes=20 * 2**30), DOCUMENTS)

    lowered = next(item for item in plan.advice if item.flag == "gpu_memory_utilization")

    assert lowered.value < 0.75


def advice_of(**changes):
    flags = EngineFlags(**changes.pop("flags", {}))
    return answer(replace(FAILING, flags=flags, **changes), DOCUMENTS)[0]


@pytest.mark.parametrize(("version", "method"), [("0.30.0", "fp8"), ("0.33.0", "fp8_per_tensor")])
def test_quantising_is_advised_by_the_name_that_the_release_takes(version, method):
    plan = advice_of(
        gpu_memory_bytes=15 * 2**30, gpu="H100 80GB SXM", vllm_version=version, flags={"max_model_len": 4096}
    )

    assert next(item.value for item in plan.advice if item.flag == "quantization") == method


def test_a_method_that_left_is_answered_by_the_one_that_took_its_place():
    plan = advice_of(gpu="H100 80GB SXM", flags={"quantization": "fp8"})

    assert (plan.will_start, plan.advice[0].flag, plan.advice[0].value) == (False, "quantization", "fp8_per_tensor")


def test_a_card_without_bfloat16_is_answered_by_half():
    plan = advice_of(gpu="T4", vllm_version="0.8.5", flags={"tensor_parallel_size": 4})

    assert (plan.will_start, plan.advice[0].change.split(" (")[0]) == (False, "--dtype half")


def test_a_refused_cache_dtype_is_answered_by_dropping_it():
    plan = advice_of(gpu="H100 80GB SXM", flags={"kv_cache_dtype": "ultraquant_4bit"})

    assert plan.advice[0].change.startswith("without --kv-cache-dtype")


@pytest.mark.parametrize(("given_gib", "advised_gib"), [(70, 60), (1, 17)])
def test_a_fixed_pool_is_answered_by_one_that_loads_and_holds_a_request(given_gib, advised_gib):
    plan = advice_of(gpu="H100 80GB SXM", flags={"kv_cache_memory_bytes": given_gib * 2**30})

    assert next(item.value for item in plan.advice if item.flag == "kv_cache_memory_bytes") == advised_gib * 2**30


def test_a_fixed_number_of_blocks_is_answered_by_dropping_it():
    plan = advice_of(gpu="H100 80GB SXM", flags={"num_gpu_blocks_override": 100})

    assert "num_gpu_blocks_override" in {item.flag for item in plan.advice}


def test_no_flag_is_advised_that_the_release_lacks():
    documents = catalogue_documents("Qwen/Qwen2.5-VL-7B-Instruct")
    flags = EngineFlags(max_model_len=8192)
    request = replace(FAILING, gpu="H100 80GB SXM", gpu_memory_bytes=21 * 2**30, vllm_version="0.16.0", flags=flags)

    newer = answer(replace(request, vllm_version="0.33.0"), documents)[0]
    older = answer(request, documents)[0]

    assert "language_model_only" in {item.flag for item in newer.advice}
    assert "language_model_only" not in {item.flag for item in older.advice}
