"""Grading: right within the tolerance, a known slip by name, choices exactly, and what is no answer."""

from __future__ import annotations

import math

import pytest

from pages.parts.learn_lesson import Attempt, Exercise, Grade, Slip, after, grade
from planner.facts import PlanError

NUMBER = Exercise(
    question="?", answer=128.0, unit="KiB", slips=(Slip(value=512.0, text="query heads"),), hint="h", explanation="e"
)
CHOICE = Exercise(question="?", answer=1, choices=("a", "b", "c"), hint="h", explanation="e")


@pytest.mark.parametrize("given", [128.0, 126.0, 130.5])
def test_within_two_percent_is_right(given: float) -> None:
    assert grade(NUMBER, given).grading == "right"


@pytest.mark.parametrize("given", [125.0, 131.0, 0.0, -128.0])
def test_beyond_two_percent_is_wrong(given: float) -> None:
    assert grade(NUMBER, given) == Grade(grading="wrong")


def test_known_slip_is_answered_by_its_text() -> None:
    assert grade(NUMBER, 511.0) == Grade(grading="near", text="query heads")


@pytest.mark.parametrize(("given", "grading"), [(0, "wrong"), (1, "right"), (2, "wrong")])
def test_choice_is_right_or_wrong(given: int, grading: str) -> None:
    assert grade(CHOICE, given).grading == grading


@pytest.mark.parametrize("given", [None, math.nan, math.inf])
def test_what_is_no_number_is_no_answer(given: float | None) -> None:
    with pytest.raises(PlanError, match="Give an answer first"):
        grade(NUMBER, given)


def test_solved_exercise_stays_solved() -> None:
    solved = after(Attempt(), 128.0, Grade(grading="right"))

    again = after(solved, 1.0, Grade(grading="wrong"))

    assert (again.is_solved, again.num_tries, again.last_given) == (True, 2, 1.0)
