"""What the lessons compute agrees with the formulas that they teach."""

from __future__ import annotations

import pytest

from pages.parts import learn_numbers as numbers
from pages.parts import learn_token
from pages.parts.learn_state import Learner
from planner.folk_formulas import shared_blocks_total
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import PlanRequest


@pytest.mark.parametrize(("requests", "shared"), [(1, 64), (4, 100), (8, 100), (16, 0)])
def test_simulator_counts_shared_blocks_as_the_formula_does(requests: int, shared: int) -> None:
    run = numbers.shared_run(requests, 120, shared)

    assert run.with_sharing == shared_blocks_total(requests, 120, shared, 16)
    assert run.without_sharing == requests * 8


def test_longer_limit_costs_reservation_alone() -> None:
    short, long = ({use.allocator: use for use in numbers.pool_uses(limit)} for limit in (1024, 8192))

    assert long["paged"] == short["paged"]
    assert long["max_length"].mean_running < short["max_length"].mean_running / 4


def test_smaller_pool_preempts_and_a_large_one_does_not() -> None:
    assert numbers.preempting_run(800).summary.num_preemptions > 0
    assert numbers.preempting_run(1600).summary.num_preemptions == 0


def test_v0_swaps_where_it_is_told_to() -> None:
    frames = numbers.v0_run(800, "swap")

    assert sum(len(frame.swapped_out) for frame in frames) > 0
    assert sum(len(frame.recomputed) for frame in frames) == 0


def test_rule_of_thumb_holds_for_multi_head_attention_alone() -> None:
    assert numbers.catalogue_folk(numbers.MHA).factor == 1
    assert numbers.catalogue_folk(numbers.GQA).factor == 4
    assert numbers.catalogue_folk(numbers.LARGE_GQA).factor == 8


def learner_of(model_id: str) -> Learner:
    request = PlanRequest(model_id=model_id, gpu=numbers.ROOMY_CARD)
    documents = catalogue_documents(model_id)
    return Learner(
        model_id=model_id, documents=documents, request=request, facts=facts_for(request, documents), plan=None
    )


@pytest.mark.parametrize(
    ("model_id", "exact_kib", "word"),
    [
        ("mistralai/Mistral-7B-v0.1", 128, "4.00 times less. That holds until its window of 4,096 tokens is full"),
        ("meta-llama/Llama-2-7b-hf", 512, "the rule of thumb is right"),
        ("google/gemma-7b", 448, "1.33 times more"),
        ("google/gemma-3-27b-it", 80, "they keep their latest 1,024 tokens"),
        ("openai/whisper-large-v3", 160, "the rule of thumb is right"),
    ],
)
def test_the_cost_of_a_token_is_said_of_every_shape_of_model(model_id: str, exact_kib: int, word: str) -> None:
    learner = learner_of(model_id)
    plan = learner.plan_with()
    assert plan is not None
    assert learner.facts is not None

    own = numbers.folk_and_exact(model_id, learner.facts, plan)

    assert own.exact_bytes == exact_kib * 1024
    assert word in learn_token.own_words(own)
