from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from live.engine.oracle import OracleError, OracleQuestion, ask_about, ask_vllm, differences, question_of
from planner.facts import PlanError
from planner.model_catalog import catalogue_documents
from planner.planning import answer as plan_answer
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

QUESTION = OracleQuestion(id="q", config_json="{}", available_bytes=(GIB,))
DOCUMENTS = catalogue_documents("Qwen/Qwen3-8B")
FLAGS = EngineFlags(kv_cache_memory_bytes=20 * GIB, max_model_len=8192, kv_cache_dtype="fp8")
PLAN = plan_answer(
    PlanRequest(model_id="Qwen/Qwen3-8B", gpu="H100 80GB SXM", vllm_version="0.32.0", flags=FLAGS), DOCUMENTS
)[0]


def answer_for(plan, **changes):
    """What vLLM would answer if it agreed with `plan`."""
    group = plan.pool.groups[0]
    rank = {
        "parameter_bytes_by_dtype": {"bfloat16": plan.ranks[0].weights.parameter_bytes},
        "buffer_bytes": plan.ranks[0].weights.buffer_bytes,
        "absorbed_bytes": 0,
        "layers": [],
        "num_layers_sharing_kv": 0,
    }
    pool = {
        "num_blocks": plan.pool.num_blocks,
        "tokens": plan.pool.tokens,
        "max_concurrency": plan.pool.max_concurrency,
        "groups": [{"kind": "F", "num_layers": 36, "block_size": group.block_size, "page_bytes": group.page_bytes}],
    }
    return {"id": question_of(plan, DOCUMENTS).id, "ranks": [rank], "pool": pool} | changes


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Makes an environment whose Python is a shell script."""

    def make(script: str) -> None:
        folder = tmp_path / "engine"
        (folder / "bin").mkdir(parents=True)
        python = folder / "bin" / "python"
        python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        python.chmod(0o755)
        (folder / ".ready").touch()
        monkeypatch.setenv("KVSCOPE_ENGINE", str(folder))

    return make


def say(*answers) -> str:
    lines = "\n".join(json.dumps(answer) for answer in answers)
    return f"cat > /dev/null\ncat <<'EOF'\n{lines}\nEOF"


def test_the_question_takes_what_the_plan_decided():
    question = question_of(PLAN, DOCUMENTS)
    engine_arguments = dict(question.engine)

    assert question.available_bytes == (20 * GIB,)
    assert question.compute_capability == (9, 0)
    assert (engine_arguments["max_model_len"], engine_arguments["kv_cache_dtype"]) == (8192, "fp8")
    assert "dtype" not in engine_arguments


def test_a_plan_that_vllm_agrees_with_has_no_difference(engine):
    engine(say(answer_for(PLAN)))

    entries = differences(ask_about(PLAN, DOCUMENTS), PLAN)

    assert {entry.name for entry in entries} >= {"Parameters", "Buffers", "KV blocks", "KV tokens"}
    assert all(entry.is_equal for entry in entries)


def test_a_difference_has_its_signed_error(engine):
    pool = answer_for(PLAN)["pool"] | {"num_blocks": 2 * PLAN.pool.num_blocks}
    engine(say(answer_for(PLAN, pool=pool)))

    (blocks,) = [e for e in differences(ask_about(PLAN, DOCUMENTS), PLAN) if e.name == "KV blocks"]

    assert (blocks.is_equal, blocks.error_fraction) == (False, -0.5)


def test_a_kernel_that_pads_explains_the_weights(engine):
    rank = answer_for(PLAN)["ranks"][0] | {
        "parameter_bytes_by_dtype": {"uint8": 5},
        "kernels": ["GptOssMxfp4MoEMethod Mxfp4MoeBackend.MARLIN"],
    }
    engine(say(answer_for(PLAN, ranks=[rank])))

    parameters = differences(ask_about(PLAN, DOCUMENTS), PLAN)[0]

    assert "moe_backend=marlin" in parameters.text


def test_a_pool_that_vllm_refuses_leaves_the_weights_compared(engine):
    engine(say(answer_for(PLAN, pool={"error": "ValueError: no room"})))

    entries = differences(ask_about(PLAN, DOCUMENTS), PLAN)

    assert [entry.name for entry in entries] == ["Parameters", "Buffers"]


def test_a_refusal_is_in_vllms_own_words(engine):
    engine(say({"id": question_of(PLAN, DOCUMENTS).id, "error": "ValueError: no such quantisation", "stage": "config"}))

    with pytest.raises(OracleError, match="no such quantisation") as refusal:
        ask_about(PLAN, DOCUMENTS)

    assert refusal.value.state == "refused"


@pytest.mark.parametrize(
    ("script", "state", "text"),
    [
        ("cat > /dev/null; echo ModuleNotFoundError: vllm >&2; exit 1", "broken", "ModuleNotFoundError"),
        ("cat > /dev/null; echo hello", "broken", "no answer"),
        ("cat > /dev/null", "broken", "every question"),
    ],
)
def test_a_process_that_fails_is_a_named_state(engine, script, state, text):
    engine(script)

    with pytest.raises(OracleError, match=text) as refusal:
        ask_vllm([QUESTION])

    assert refusal.value.state == state


def test_a_process_that_does_not_end_is_stopped_in_time(engine):
    engine("cat > /dev/null; sleep 60")
    start = time.monotonic()

    with pytest.raises(OracleError, match="within 1 s"):
        ask_vllm([QUESTION], seconds=0.5 + 0.5)

    assert time.monotonic() - start < 10.0


def test_an_absent_environment_says_how_to_make_it(tmp_path, monkeypatch):
    monkeypatch.setenv("KVSCOPE_ENGINE", str(tmp_path / "none"))

    with pytest.raises(OracleError, match="make engine"):
        ask_vllm([QUESTION])


def test_questions_of_unlike_cards_are_not_asked_at_once(engine):
    engine("exit 0")

    with pytest.raises(PlanError, match="one card at a time"):
        ask_vllm([QUESTION, replace(QUESTION, compute_capability=(10, 0))])
