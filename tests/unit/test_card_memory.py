"""A card's memory in parts that add up to it: vLLM's as a plan or a log tells them, other processes, what is free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from live.card_memory import CardMemory, EngineTerms, split_card, terms_of_log, terms_of_plan
from live.nvml import DetectedGpu, ProcessMemory
from pages.parts.watch_memory import memory_alt, memory_bars
from planner.facts import Basis, Estimate
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.request import PlanRequest
from planner.startup_log import read_startup_log
from planner.units import GIB

LOG = """Model loading took 15.00 GiB memory and 3.2 seconds
gpu_memory_utilization=0.9
PyTorch activation peak memory takes 1.00 GiB
Available KV cache memory: 50.00 GiB
Graph capturing finished in 20 secs, took 0.50 GiB
"""


def gpu(*processes: tuple[int, float | None], used: float = 70.0) -> DetectedGpu:
    held = tuple(
        ProcessMemory(pid=pid, used_bytes=None if size is None else int(size * GIB)) for pid, size in processes
    )
    return DetectedGpu(
        index=0,
        name="NVIDIA H100 80GB HBM3",
        total_bytes=80 * GIB,
        used_bytes=int(used * GIB),
        free_bytes=int((79.5 - used) * GIB),
        reserved_bytes=GIB // 2,
        compute_capability=(9, 0),
        is_mig_enabled=False,
        processes=held,
    )


def terms(**sizes: float) -> EngineTerms:
    basis = Basis(kind="read", note="a test")
    found = tuple((name, Estimate.exact(int(size * GIB), basis), name != "context") for name, size in sizes.items())
    return EngineTerms(source="plan", terms=found, budget_bytes=72 * GIB)


def sizes(card: CardMemory) -> dict[str, float]:
    return {part.name: part.num_bytes / GIB for part in card.parts}


TERMS = terms(weights=15.0, activation=2.0, kv_pool=50.0, context=0.5)


@pytest.mark.parametrize("engine_gib", [10.0, 40.0, 65.0, 66.5, 69.9])
@pytest.mark.parametrize("known", [None, TERMS])
def test_the_parts_add_up_to_the_card(engine_gib: float, known: EngineTerms | None) -> None:
    card = split_card(gpu((41, engine_gib), (42, 0.1)), known)

    assert sum(part.num_bytes for part in card.parts) == 80 * GIB


def test_the_engine_is_split_and_the_rest_is_named() -> None:
    card = split_card(gpu((41, 66.0), (42, 4.0)), TERMS)

    assert sizes(card) == {
        "weights": 15.0,
        "kv_pool": 50.0,
        "context": 0.5,
        "activation": 0.5,  # of its peak of 2, what is still held
        "other_processes": 4.0,
        "driver": 0.5,
        "free": 9.5,
    }
    assert card.engine is not None
    assert card.engine.pid == 41
    assert card.beyond_budget_bytes == -6 * GIB
    assert [part.name for part in card.parts if part.is_inside_budget] == ["weights", "kv_pool", "activation"]


def test_what_no_term_explains_is_said_to_be_so() -> None:
    card = split_card(gpu((41, 69.0)), TERMS)

    assert sizes(card)["activation"] == 2.0
    assert sizes(card)["unexplained"] == 1.5


def test_a_process_smaller_than_the_terms_is_shown_whole() -> None:
    card = split_card(gpu((41, 40.0), used=40.0), TERMS)

    assert sizes(card)["engine"] == 40.0
    assert "still loading" in card.text


def test_without_terms_the_engine_is_undivided() -> None:
    card = split_card(gpu((41, 66.0)), None)

    assert sizes(card)["engine"] == 66.0
    assert "Without a plan" in card.text


@pytest.mark.parametrize(
    ("card", "text"),
    [
        (gpu((41, None)), "The driver does not tell"),
        (gpu(used=0.0), "No process holds"),
        (gpu((41, 3.0), used=3.0), "may run on another card"),
    ],
)
def test_an_engine_that_is_not_seen_is_a_named_state(card: DetectedGpu, text: str) -> None:
    found = split_card(card, TERMS)

    assert found.engine is None
    assert found.beyond_budget_bytes is None
    assert text in found.text
    assert sum(part.num_bytes for part in found.parts) == 80 * GIB


def test_a_plans_terms_are_its_rank_without_the_rest_of_the_card() -> None:
    request = PlanRequest(model_id="meta-llama/Llama-3.1-8B-Instruct", gpu="H100 SXM5 80GB")
    plan = answer(request, catalogue_documents(request.model_id))[0]

    found = terms_of_plan(plan)

    assert {name for name, _, _ in found.terms} >= {"weights", "kv_pool", "cuda_graphs", "context"}
    assert "unreserved" not in {name for name, _, _ in found.terms}
    assert found.budget_bytes == pytest.approx(0.92 * plan.gpu_total.best_bytes, rel=1e-6)


def test_a_logs_terms_are_what_it_prints() -> None:
    found = terms_of_log(read_startup_log(LOG), 80 * GIB)

    assert found is not None
    assert {name: round(estimate.best_bytes / GIB, 2) for name, estimate, _ in found.terms} == {
        "weights": 15.0,
        "activation": 1.0,
        "kv_pool": 50.0,
        "cuda_graphs": 0.5,
    }
    assert terms_of_log(read_startup_log("nothing of the kind"), 80 * GIB) is None


def test_a_bar_a_card_with_every_part_and_its_words() -> None:
    cards = [split_card(gpu((41, 69.0)), TERMS), split_card(replace(gpu((7, 1.0), used=1.0), index=1), None)]

    figure = memory_bars(cards)

    drawn = sum(sum(trace.x or ()) for trace in figure.data)
    assert drawn == pytest.approx(160.0)
    assert "KV cache pool 50.0" in memory_alt(cards[0]).replace("\xa0", " ")
    assert "outside vLLM's budget" in memory_alt(cards[0])
