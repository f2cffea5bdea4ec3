"""Fewest cards for real situations, each worked out by hand from the model's public sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from planner.demand import Demand, Lengths
from planner.fewest_cards import Candidate, Search, fewest_cards
from planner.gpu_catalog import find_gpu
from planner.matrix import Split
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import PlanRequest


@dataclass(frozen=True)
class Situation:
    """A load, and what comes of it by hand: the split, and the blocks of one request of mean length."""

    model_id: str
    card: str
    prompt: tuple[int, int, int]
    output: tuple[int, int, int]
    users: int
    split: Split
    block_tokens: int  # of the groups that grow
    fixed_blocks: int  # of windows and states, which do not


SITUATIONS = [
    # 57 GiB of weights do not fit one card of 44 GiB; two copies share the experts, 30 GiB each
    Situation(
        "Qwen/Qwen3-30B-A3B", "L40S", (1000, 4000, 8000), (300, 800, 1500), 100, Split(data_parallel_size=2), 16, 0
    ),
    # window of 128 tokens: 8 blocks, or 9 where it does not begin at one
    Situation(
        "openai/gpt-oss-120b", "H100 80GB SXM", (1000, 4000, 8000), (500, 1500, 3000), 100, Split(data_parallel_size=2), 16, 9
    ),
    # 36 of 48 layers keep a state: three groups of three blocks, whatever the length
    Situation(
        "Qwen/Qwen3-Next-80B-A3B-Instruct", "H200 141GB SXM", (2000, 16000, 32000), (400, 1000, 2000), 100,
        Split(data_parallel_size=2), 576, 9,
    ),
    Situation("meta-llama/Llama-3.2-3B", "L4", (500, 1500, 3000), (200, 500, 1000), 32, Split(), 16, 0),
]  # fmt: skip


def judged(situation: Situation) -> tuple[Demand, list[Candidate]]:
    request = PlanRequest(model_id=situation.model_id)
    model = facts_for(request, catalogue_documents(situation.model_id))
    prompt, output = (
        Lengths(name=name, p50_tokens=low, p95_tokens=middle, p99_tokens=high)
        for name, (low, middle, high) in (("prompt", situation.prompt), ("output", situation.output))
    )
    demand = Demand(prompt=prompt, output=output, users=situation.users, most_preempted_fraction=0.01)
    return demand, list(fewest_cards(request, model, demand, Search(gpu=find_gpu(situation.card), most_cards=4)))


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.model_id.split("/")[1])
def test_the_smallest_split_passes_by_hand_and_one_card_less_does_not(situation: Situation) -> None:
    demand, candidates = judged(situation)
    best = candidates[-1]
    prompt, output = demand.means()
    per_request = math.ceil(round(prompt + output / 2) / situation.block_tokens) + situation.fixed_blocks
    users = math.ceil(situation.users / situation.split.data_parallel_size)

    assert best.holds
    assert best.split == situation.split
    assert users * (per_request - 1) <= best.needed_blocks <= users * per_request <= best.num_blocks
    assert all(each.split.num_cards < best.split.num_cards for each in candidates[:-1])
    assert {each.state for each in candidates[:-1]} <= {"does_not_start", "too_small"}


def test_two_cards_of_70b_in_fp8_hold_a_quarter_of_300_long_prompts_by_formula() -> None:
    request = PlanRequest(model_id="RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")
    model = facts_for(request, catalogue_documents(request.model_id))
    demand = Demand(
        prompt=Lengths(name="prompt", p50_tokens=2000, p95_tokens=8000, p99_tokens=16_000),
        output=Lengths(name="output", p50_tokens=300, p95_tokens=800, p99_tokens=1500),
        users=300,
    )

    candidates = list(fewest_cards(request, model, demand, Search(gpu=find_gpu("H100 80GB SXM"), most_cards=4)))

    sharded = next(each for each in candidates if each.split == Split(tensor_parallel_size=2))
    kv_bytes = 80 * 2 * 8 * 128 * 2 // 2  # layers x K and V x heads x width x BF16, on each of two cards
    prompt, output = demand.means()
    assert sharded.needed_blocks == 300 * math.ceil((prompt + output / 2) / 16)
    assert sharded.num_blocks * 16 * kv_bytes == pytest.approx(72 * 2**30 - 71e9 / 2 - 4 * 2**30, rel=0.05)
    assert not any(each.holds for each in candidates)
