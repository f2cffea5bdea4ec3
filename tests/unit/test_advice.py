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
