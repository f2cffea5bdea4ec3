"""Plans side by side: every term is there, differences are marked, and a log tells what it does not say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.answer import Plan
from planner.budget import plan
from planner.facts import PlanError
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest
from planner.scenarios import ComparedRow, Scenario, compare, num_cards, request_of_log_text

REQUEST = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="H100 80GB SXM")
LOG = """\
INFO 11-02 10:00:01 [utils.py:328] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 16384, 'gpu_memory_utilization': 0.85}
(APIServer pid=10) INFO 11-02 10:00:01 [utils.py:233] vLLM API server version 0.31.0
(EngineCore_DP0 pid=20) INFO 11-02 10:00:05 [core.py:93] Initializing a V1 LLM engine (v0.31.0) with config: model='Qwen/Qwen3-8B', speculative_config=None, tokenizer='Qwen/Qwen3-8B', dtype=torch.bfloat16, max_seq_len=16384, tensor_parallel_size=1, pipeline_parallel_size=1
(EngineCore_DP0 pid=20) INFO 11-02 10:00:15 [gpu_model_runner.py:3000] Model loading took 15.27 GiB and 8.1 seconds
(EngineCore_DP0 pid=20) INFO 11-02 10:00:35 [gpu_worker.py:300] Available KV cache memory: 50.00 GiB
(EngineCore_DP0 pid=20) INFO 11-02 10:00:35 [kv_cache_utils.py:1087] GPU KV cache size: 364,080 tokens
"""


def planned(**flags: object) -> Plan:
    request = replace(REQUEST, flags=EngineFlags(**flags))  # type: ignore[arg-type]  # as each test names them
    return plan(request, facts_for(request, catalogue_documents(request.model_id)))


def scenario(name: str, made: Plan) -> Scenario:
    return Scenario(name=name, origin="plan", plan=made)


def rows(*plans: Plan) -> dict[tuple[str, str], ComparedRow]:
    found = compare([scenario(str(number), each) for number, each in enumerate(plans)])
    return {(row.section, row.name): row for row in found}


def test_equal_plans_differ_in_nothing() -> None:
    assert not any(row.differs for row in rows(planned(), planned()).values())


def test_one_changed_flag_is_marked_with_what_follows_from_it() -> None:
    found = rows(planned(), planned(kv_cache_dtype="fp8"))

    assert found["asked", "kv_cache_dtype"].values == ("auto", "fp8")
    assert found["capacity", "kv_bytes_per_token"].differs
    assert found["capacity", "tokens"].differs
    assert not found["card", "weights"].differs
    assert not found["asked", "model"].differs


def test_the_parts_of_each_card_add_up_to_its_total() -> None:
    found = rows(planned(), planned(tensor_parallel_size=2), planned(max_num_seqs=16))

    for place in range(3):
        parts = [
            row.values[place] for (section, name), row in found.items() if section == "card" and name != "gpu_total"
        ]
        assert sum(part for part in parts if isinstance(part, int)) == found["card", "gpu_total"].values[place]


def test_a_default_that_vllm_fills_in_differently_is_told() -> None:
    found = rows(planned(), planned(performance_mode="throughput"))

    assert found["resolved", "max_num_seqs"].values == (1024, 2048)


def test_the_cards_of_a_plan_are_those_of_all_copies() -> None:
    assert num_cards(planned(tensor_parallel_size=2, data_parallel_size=2)) == 4


def test_a_log_gives_its_request_and_says_what_it_does_not_tell() -> None:
    request, notes = request_of_log_text(LOG, REQUEST)

    assert (request.model_id, request.vllm_version) == ("Qwen/Qwen3-8B", "0.31.0")
    assert request.flags.max_model_len == 16384
    assert request.flags.gpu_memory_utilization == 0.85
    assert request.gpu == "H100 80GB SXM"
    assert any("names no card" in note for note in notes)


@pytest.mark.parametrize("text", ["", "hello", "a\nb\nc"])
def test_a_text_that_is_no_log_is_refused(text: str) -> None:
    with pytest.raises(PlanError) as caught:
        request_of_log_text(text, REQUEST)

    assert caught.value.field == "log"
