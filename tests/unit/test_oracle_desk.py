"""The desk where a process asks vLLM: one at a time, answers kept, a child ended on demand."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from live.engine.oracle import OracleAnswer, OracleError, OracleQuestion, ask_one
from live.engine.oracle_desk import MOST_KEPT, OracleDesk, question_key

QUESTION = OracleQuestion(
    id="one", config_json="{}", available_bytes=(1,), engine=(("limit_mm_per_prompt", {"image": 1}),)
)
OTHER = replace(QUESTION, id="two")


class Vllm:
    """A vLLM that answers when it is let."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked: list[str] = []

    def __call__(self, question, _seconds, _started):
        self.asked.append(question.id)
        assert self.may_answer.wait(10)
        return OracleAnswer(id=question.id)


def until(condition) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it never came")


def test_a_question_is_answered_without_waiting_for_it():
    vllm = Vllm()
    desk = OracleDesk(vllm)

    begun = desk.ask(QUESTION)

    assert begun is not None
    assert begun.state == "asking"
    vllm.may_answer.set()
    until(lambda: desk.look(QUESTION).state == "answered")
    assert desk.look(QUESTION).answer == OracleAnswer(id="one")


def test_only_one_question_is_asked_at_a_time():
    vllm = Vllm()
    desk = OracleDesk(vllm)
    desk.ask(QUESTION)

    assert desk.is_busy
    assert desk.ask(OTHER) is None
    vllm.may_answer.set()
    until(lambda: not desk.is_busy)
    assert desk.ask(OTHER) is not None


def test_an_answer_is_kept_and_not_asked_for_again():
    vllm = Vllm()
    vllm.may_answer.set()
    desk = OracleDesk(vllm)
    desk.ask(QUESTION)
    until(lambda: desk.look(QUESTION).state == "answered")

    again = desk.ask(replace(QUESTION))

    assert again.state == "answered"
    assert vllm.asked == ["one"]


def test_old_answers_are_dropped():
    vllm = Vllm()
    vllm.may_answer.set()
    desk = OracleDesk(vllm)
    for number in range(MOST_KEPT + 1):
        desk.ask(replace(QUESTION, id=str(number)))
        until(lambda: not desk.is_busy)

    assert desk.look(replace(QUESTION, id="0")) is None
    assert desk.look(replace(QUESTION, id=str(MOST_KEPT))) is not None


def test_a_refusal_keeps_its_words_and_may_be_asked_again():
    def refuse(*_arguments):
        raise OracleError("refused", "vLLM does not build this model.")

    desk = OracleDesk(refuse)
    desk.ask(QUESTION)
    until(lambda: desk.look(QUESTION).state == "failed")

    assert desk.look(QUESTION).text == "vLLM does not build this model."
    assert desk.look(QUESTION).error_state == "refused"
    until(lambda: not desk.is_busy)
    assert desk.ask(QUESTION).state == "asking"


def test_stopping_ends_the_child_at_once(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\nsleep 60\n", encoding="utf-8")
    python.chmod(0o755)
    (tmp_path / ".ready").touch()
    monkeypatch.setenv("KVSCOPE_ENGINE", str(tmp_path))
    desk = OracleDesk(ask_one)
    desk.ask(QUESTION)
    until(lambda: desk._child is not None)

    began = time.monotonic()
    desk.stop()

    until(lambda: not desk.is_busy)
    assert time.monotonic() - began < 5
    assert desk.look(QUESTION).state == "stopped"


def test_questions_with_the_same_parts_share_a_key():
    assert question_key(QUESTION) == question_key(replace(QUESTION))
    assert question_key(QUESTION) != question_key(OTHER)
