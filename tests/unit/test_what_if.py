"""What-if tables: the same plan with one flag changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pages.parts import what_if
from planner.budget import plan
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest

REQUEST = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="H100 80GB SXM", flags=EngineFlags(max_model_len=20_000))


@pytest.fixture(scope="module")
def answered():
    return answer(REQUEST, catalogue_documents("Qwen/Qwen3-8B"))


def test_every_table_holds_the_present_value_once(answered) -> None:
    present, model = answered

    tables = what_if.what_ifs(REQUEST, model, present)

    assert [table.flag for table in tables] == [
        "max_model_len",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "tensor_parallel_size",
    ]
    assert all(sum(trial.is_present for trial in table.trials) == 1 for table in tables)


def test_numbers_stand_in_order_and_within_the_models_length(answered) -> None:
    present, model = answered

    lengths = [trial.value for trial in what_if.what_ifs(REQUEST, model, present)[0].trials]

    assert lengths == sorted(lengths)
    assert lengths == [4096, 8192, 16384, 20_000, 32_768, 40_960]


def test_a_trial_is_the_plan_of_that_flag(answered) -> None:
    present, model = answered

    trial = what_if.what_ifs(REQUEST, model, present)[1].trials[0]

    changed = replace(REQUEST, flags=replace(REQUEST.flags, gpu_memory_utilization=trial.value))
    assert trial.plan is not None
    assert trial.plan.pool == plan(changed, model).pool


def test_a_refused_trial_says_why() -> None:
    request = replace(REQUEST, model_id="Qwen/Qwen2.5-7B-Instruct", flags=EngineFlags())
    present, model = answer(request, catalogue_documents("Qwen/Qwen2.5-7B-Instruct"))  # 28 heads: 8 cards do not divide

    eight = what_if.what_ifs(request, model, present)[3].trials[-1]

    assert eight.value == 8
    assert eight.plan is None
    assert "28" in eight.refusal


def test_the_sweep_ends_at_the_models_longest(answered) -> None:
    present, model = answered

    slices = what_if.length_sweep(REQUEST, model, present)

    assert [(part.tensor_parallel_size, part.kv_cache_dtype) for part in slices] == [
        (1, "auto"),
        (1, "fp8"),
        (2, "auto"),
    ]
    assert slices[0].max_model_lens[0] == 1024
    assert slices[0].max_model_lens[-1] == 40_960
