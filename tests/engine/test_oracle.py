"""Every model of the catalogue, built by vLLM itself on the meta device, beside its plan: weights and KV cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ready_engine import ready_engine

from live.engine.oracle import OracleError, ask_about, ask_vllm, differences, question_of
from planner.facts import PlanError
from planner.model_catalog import catalogue_documents, catalogue_ids
from planner.planning import answer as plan_answer
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

# Minutes of a real engine, whose timing follows the machine's: run by `make test-engine`, not by `make test`.
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.environ.get("KVSCOPE_LIVE_ENGINE") != "1", reason="run by `make test-engine`"),
]
CARD = "H100 80GB SXM"
LONGEST = 8192  # tokens: every model fits the pool
LARGEST_WEIGHT_ERROR = 0.003
_BATCH = 25
_BATCH_SECONDS = 600.0


def plan_for(model_id: str, tensor_parallel_size: int):
    flags = EngineFlags(
        tensor_parallel_size=tensor_parallel_size,
        kv_cache_memory_bytes=20 * GIB,
        max_model_len=LONGEST,
        max_num_batched_tokens=8192,
        enforce_eager=True,
    )
    documents = catalogue_documents(model_id)
    # a card of that kind on which nothing is too large
    request = PlanRequest(model_id=model_id, gpu=CARD, gpu_memory_bytes=2**42, vllm_version="0.32.0", flags=flags)
    return plan_answer(request, documents)[0], documents


@cache
def catalogue() -> tuple[tuple, ...]:
    """Each model's plan and question, TP 1 and 2 in turn; those that this release or a config alone cannot build left out."""
    rows = []
    for number, model_id in enumerate(catalogue_ids()):
        try:
            plan, documents = plan_for(model_id, 1 + number % 2)
        except PlanError:
            continue
        if plan.vllm_error is None and documents.is_config_complete and documents.gguf_metadata_json is None:
            rows.append((plan, question_of(plan, documents)))
    return tuple(rows)


@pytest.fixture(scope="module")
def asked():
    """Plan and answer of every model."""
    ready_engine()
    rows = catalogue()
    return list(_answers(rows))


def _answers(rows) -> Iterator[tuple]:
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        answers = ask_vllm([question for _, question in batch], _BATCH_SECONDS)
        yield from zip([plan for plan, _ in batch], answers, strict=True)


def test_most_of_the_catalogue_is_built(asked):
    refused = {answer.id: answer.error for _, answer in asked if answer.error}

    assert len(refused) < 0.1 * len(asked), refused
    assert len(asked) > 100


def test_weights_are_within_three_per_mille(asked):
    wrong = {
        answer.id: entry
        for plan, answer in asked
        if not answer.error
        for entry in differences(answer, plan)
        # a kernel that this build of vLLM falls back to, and that pads, is said with the difference
        if entry.name.startswith("Parameters") and abs(entry.error_fraction) > LARGEST_WEIGHT_ERROR and not entry.text
    }

    assert wrong == {}


def test_a_kernel_that_pads_is_said_with_the_difference(asked):
    told = {
        answer.id: entry.text
        for plan, answer in asked
        if not answer.error
        for entry in differences(answer, plan)
        if entry.text
    }

    assert all("openai/gpt-oss" in name and "MARLIN" in text for name, text in told.items()), told


def test_the_pool_is_vllms_to_the_block(asked):
    wrong = {
        (answer.id, entry.name): (entry.vllm, entry.planned)
        for plan, answer in asked
        if not answer.error
        for entry in differences(answer, plan)
        if entry.name.startswith("KV") and not entry.is_equal
    }

    assert wrong == {}


def test_kv_bytes_of_a_page_are_vllms(asked):
    wrong = {
        answer.id: (theirs, ours)
        for plan, answer in asked
        if not answer.error and answer.pool is not None and answer.pool.error is None
        for theirs, ours in [(pages(answer.pool.groups), pages(plan.pool.groups))]
        if theirs != ours
    }

    assert wrong == {}


def pages(groups):
    return sorted((group.num_layers, group.block_size, group.page_bytes) for group in groups)


def test_a_model_too_small_a_pool_is_refused_in_vllms_own_words():
    ready_engine()
    plan, documents = plan_for("Qwen/Qwen3-8B", 1)
    question = question_of(plan, documents)
    small = type(question)(
        **{name: getattr(question, name) for name in question.__slots__} | {"available_bytes": (2**28,)}
    )

    (answer,) = ask_vllm([small])

    assert "KV cache" in answer.pool.error


def test_a_time_limit_ends_the_asking():
    ready_engine()
    plan, documents = plan_for("Qwen/Qwen3-8B", 1)

    with pytest.raises(OracleError, match="within 1 s") as refusal:
        ask_about(plan, documents, seconds=1.0)

    assert refusal.value.state == "timed_out"
