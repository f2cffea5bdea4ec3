"""A user's mistake as one sentence, at its field and where the plan would stand."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeGuard

import streamlit as st

from pages.parts import state, words
from pages.parts.language import t
from pages.parts.said import said
from planner.facts import PlanError


def say(problem: PlanError | None, *names: str) -> None:
    """Draw the sentence of `problem` here when it speaks of one of the fields `names`."""
    if is_about(problem, names) and problem.value != state.NOT_LOADED:
        _draw(problem)


def is_about(problem: PlanError | None, names: Collection[str]) -> TypeGuard[PlanError]:
    """Whether `problem` speaks of one of the fields `names` or of a part of one ("limit_mm_per_prompt.image")."""
    return problem is not None and (problem.field in names or problem.field.split(".", 1)[0] in names)


def say_instead_of_plan(problem: PlanError) -> None:
    """Draw `problem` in the plan's place: there is no plan for what the form says now."""
    if problem.value == state.NOT_LOADED:
        st.header(t("Nothing to plan yet"), anchor=False)
    else:
        st.header(f":red[:material/error:] {t('This cannot be planned')}", anchor=False)
    _draw(problem)


def _draw(problem: PlanError) -> None:
    if problem.value == state.NOT_LOADED:
        st.info(words.plain(said(problem.text)), icon=":material/info:")
    else:
        st.error(words.plain(said(problem.text)), icon=":material/error:")
