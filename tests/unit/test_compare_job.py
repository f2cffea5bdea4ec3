"""A comparison in a thread of its own: what it gives, how it ends early, and that no mistake in it goes unseen."""

from __future__ import annotations

import threading

import pytest

from pages.parts import compare_progress, compare_state
from pages.parts.compare_job import CompareJob
from planner.facts import PlanError


def test_a_job_gives_what_its_work_returns() -> None:
    job: CompareJob[int] = CompareJob(lambda _: 5)

    assert job.wait(5)
    assert (job.result, job.problem, job.fault, job.is_stopped) == (5, None, None, False)


def test_a_refusal_is_kept_as_the_problem() -> None:
    def work(_: CompareJob[int]) -> int:
        raise PlanError("most_users", 0, "Write a number from 1.")

    job: CompareJob[int] = CompareJob(work)

    assert job.wait(5)
    assert job.problem is not None
    assert job.problem.text == "Write a number from 1."


def test_a_stopped_job_keeps_what_it_found() -> None:
    has_begun = threading.Event()

    def work(job: CompareJob[int]) -> int:
        job.note(0.5, "half", 1)
        has_begun.set()
        while not job.should_stop():
            threading.Event().wait(0.01)
        return 1

    job: CompareJob[int] = CompareJob(work)
    assert has_begun.wait(5)
    assert (job.fraction, job.label, job.so_far) == (0.5, "half", 1)

    job.stop()

    assert job.wait(5)
    assert (job.result, job.is_stopped) == (1, True)


def test_a_mistake_in_the_work_is_raised_where_its_result_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(_: CompareJob[int]) -> int:
        raise ZeroDivisionError("no layers")

    forgotten: list[str] = []
    monkeypatch.setattr(compare_state, "forget_job", forgotten.append)
    job: CompareJob[int] = CompareJob(work)

    with pytest.raises(ZeroDivisionError, match="no layers"):
        compare_progress.result_of("dry", job, lambda _: None)

    assert forgotten == ["dry"]
