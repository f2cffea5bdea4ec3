"""The Plan page's question to vLLM: its button, its wait, its answer, its refusal, and a machine without vLLM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from live.engine.environment import EngineEnvironment
from live.engine.oracle import (
    OracleAnswer,
    OracleError,
    OracleGroup,
    OracleLayers,
    OraclePool,
    OracleQuestion,
    OracleRank,
)
from live.engine.oracle_desk import OracleDesk
from pages.parts import ask_vllm

ROOT = Path(__file__).parents[2]
READY = EngineEnvironment(folder=Path("/nowhere"), state="ready", text="there")
LAYERS = OracleLayers(
    kind="FullAttentionSpec", num_layers=36, block_size=16, page_bytes=65_536, token_bytes=4_096.0, state_bytes=0
)
RANK = OracleRank(
    parameter_bytes_by_dtype={"bfloat16": 16_381_470_720},
    buffer_bytes=10_486_336,
    absorbed_bytes=0,
    layers=(LAYERS,),
    num_layers_sharing_kv=0,
)
GROUP = OracleGroup(kind="FullAttentionSpec", num_layers=36, block_size=16, page_bytes=65_536)
Answers = Callable[[OracleQuestion], OracleAnswer]


def answer_of(question: OracleQuestion, num_blocks: int) -> OracleAnswer:
    pool = OraclePool(num_blocks=num_blocks, tokens=16 * num_blocks, max_concurrency=num_blocks / 2560, groups=(GROUP,))
    return OracleAnswer(id=question.id, vllm_version="0.32.0", model_class="Qwen3ForCausalLM", ranks=(RANK,), pool=pool)


@pytest.fixture
def open_plan(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers], AppTest]:
    """Opens the Plan page where vLLM answers by `answers`."""

    def opened(answers: Answers) -> AppTest:
        desk = OracleDesk(lambda question, _seconds, _started: answers(question))
        monkeypatch.setattr(ask_vllm, "find_engine", lambda: READY)
        monkeypatch.setattr(ask_vllm, "process_desk", lambda: desk)
        return AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60).run()

    return opened


def button(page: AppTest, label: str):
    return next((each for each in page.button if each.label == label), None)


def asked(page: AppTest) -> AppTest:
    """The page after its question has been answered or refused."""
    begun = button(page, "Check with vLLM")
    assert begun is not None
    begun.click().run()
    deadline = time.monotonic() + 20
    while any("building the model" in each.proto.text for each in page.get("progress")) and time.monotonic() < deadline:
        time.sleep(0.05)
        page.run()
    return page


def blocks_of(page: AppTest) -> int:
    """The KV blocks that the plan states."""
    shown = next(each.value for each in page.table if each.value.columns[0] == "Figure").set_index("Figure")
    text = shown.loc["KV blocks", "Plan"]
    return int((shown.loc["KV blocks", "vLLM"] if text == "the same" else text.split(" (")[0]).replace(",", ""))


def test_a_figure_that_differs_stands_beside_the_plans(open_plan) -> None:
    page = asked(open_plan(lambda question: answer_of(question, 20_000)))

    assert not page.exception
    assert any("figures differ" in each.value for each in page.warning)
    shown = next(each.value for each in page.table if each.value.columns[0] == "Figure").set_index("Figure")
    assert shown.loc["Parameters", "Plan"] == "the same"
    assert shown.loc["KV blocks", "vLLM"] == "20,000"
    assert "%" in shown.loc["KV blocks", "Plan"]


def test_equal_figures_are_called_the_same(open_plan) -> None:
    blocks = blocks_of(asked(open_plan(lambda question: answer_of(question, 20_000))))

    page = asked(open_plan(lambda question: answer_of(question, blocks)))

    names = next(each.value for each in page.table if each.value.columns[0] == "Figure").set_index("Figure")
    assert set(names.loc[["Parameters", "Buffers", "KV blocks", "KV tokens", "KV groups"], "Plan"]) == {"the same"}


def test_what_vllm_builds_is_listed_by_type_layer_and_group(open_plan) -> None:
    page = asked(open_plan(lambda question: answer_of(question, 20_000)))

    heads = [list(each.value.columns) for each in page.table]
    assert ["Where", "Data type", "vLLM"] in heads
    assert ["Group", "vLLM: layers × tokens in a block × page", "Plan"] in heads
    layers = next(each.value for each in page.dataframe if "Spec" in each.value.columns)
    assert layers.iloc[0]["Page of a layer, bytes"] == 65_536
    assert "State of a sequence, bytes" not in layers.columns


def test_a_refusal_is_said_in_vllms_words_and_can_be_asked_again(open_plan) -> None:
    def refuse(_question: OracleQuestion) -> OracleAnswer:
        raise OracleError("refused", "vLLM ended: it has no such kernel")

    page = asked(open_plan(refuse))

    assert not page.exception
    assert any("it has no such kernel" in each.value for each in page.warning)
    assert button(page, "Ask again") is not None


def test_a_question_in_progress_leaves_the_page_usable_and_can_be_stopped(open_plan) -> None:
    may_end = threading.Event()

    def wait(question: OracleQuestion) -> OracleAnswer:
        may_end.wait(20)
        return answer_of(question, 20_000)

    page = open_plan(wait)
    begun = button(page, "Check with vLLM")
    assert begun is not None
    began = time.monotonic()
    begun.click().run()

    assert time.monotonic() - began < 10
    stop = button(page, "Stop")
    assert stop is not None
    stop.click().run()
    may_end.set()
    assert not page.exception
    assert button(page, "Ask again") is not None


def test_a_machine_without_vllm_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = replace(READY, state="absent", text="There is no vLLM in /nowhere.")
    monkeypatch.setattr(ask_vllm, "find_engine", lambda: missing)

    page = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60).run()

    assert any("There is no vLLM" in each.value for each in page.info)
    assert any(each.value == "make engine" for each in page.code)
    assert button(page, "Check with vLLM") is None
