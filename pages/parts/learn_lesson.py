"""What a lesson is made of, and how an answer is graded. Pure; knows no Streamlit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pages.parts import words
from pages.parts.language import t
from planner.facts import PlanError

Grading = Literal["right", "near", "wrong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """A wrong number that a known mistake leads to, and what to say to it."""

    value: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One question with its answer as the planner computes it. With `choices` the answer is a place in them."""

    question: str
    answer: float
    unit: str = ""
    tolerance: float = 0.02  # of the answer
    choices: tuple[str, ...] = ()
    slips: tuple[Slip, ...] = ()
    hint: str
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """A claim that is widely repeated, beside the value that was computed here, and why they differ."""

    claim: str
    exact: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One lesson: text, a figure with its own control, an exercise and the traps around it.

    `figure` draws the lesson's live figure; it is called where the figure stands.
    """

    slug: str
    goal: str
    minutes: int  # in a class
    text: str
    figure: Callable[[], None]
    exercise: Exercise
    traps: tuple[Trap, ...]
    discussion: str  # for the teacher


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """How an answer was graded, and what is said to a known slip."""

    grading: Grading
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a learner has done with one exercise so far."""

    num_tries: int = 0
    is_solved: bool = False
    used_hint: bool = False
    saw_answer: bool = False
    last_given: float | None = None


def grade(exercise: Exercise, given: float | None) -> Grade:
    """How `given` compares with the answer; raises `PlanError` for no answer or one that is no number."""
    if given is None or not math.isfinite(given):
        raise PlanError("answer", given, "Give an answer first.")
    if exercise.choices:
        return Grade(grading="right" if given == exercise.answer else "wrong")
    if is_near(given, exercise.answer, exercise.tolerance):
        return Grade(grading="right")
    slip = next((slip for slip in exercise.slips if is_near(given, slip.value, exercise.tolerance)), None)
    return Grade(grading="wrong") if slip is None else Grade(grading="near", text=slip.text)


def is_near(given: float, wanted: float, tolerance: float) -> bool:
    """Whether `given` is within `tolerance` (a fraction) of `wanted`."""
    return abs(given - wanted) <= tolerance * abs(wanted)


def after(attempt: Attempt, given: float, result: Grade) -> Attempt:
    """The attempt after one more answer; a solved exercise stays solved."""
    return Attempt(
        num_tries=attempt.num_tries + 1,
        is_solved=attempt.is_solved or result.grading == "right",
        used_hint=attempt.used_hint,
        saw_answer=attempt.saw_answer,
        last_given=given,
    )


def answer_words(exercise: Exercise) -> str:
    """The answer as one reads it: the choice, or the number with its unit."""
    if exercise.choices:
        return exercise.choices[int(exercise.answer)]
    whole = float(exercise.answer).is_integer()
    number = f"{exercise.answer:,.0f}" if whole else words.three_digits(exercise.answer)
    return t("{number} {unit}.", number=number, unit=exercise.unit)
