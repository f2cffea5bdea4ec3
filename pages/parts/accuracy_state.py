"""Session state and cache of the Accuracy page: the recorded scores and what the reader picked of them.

Widgets are keyed `accuracy_<field>`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, cast

import streamlit as st

from pages.parts.page_state import PageState
from planner.score import Scored
from planner.score_record import AccuracyRecord, read_record

Rules = Literal["all", "left_out"]  # fitted on all rows, or without each row's own model
FIELDS: dict[str, Callable[[Scored], str]] = {
    "group": lambda item: item.group,
    "family": lambda item: item.family,
    "era": lambda item: item.era,
    "card": lambda item: item.gpu,
    "parallel": lambda item: f"TP {item.tensor_parallel_size}",
}


_PAGE = PageState("accuracy")
key, value, keep = _PAGE.key, _PAGE.value, _PAGE.keep


def clear_filters() -> None:
    """Show all starts again; only before the widgets are drawn, so in a callback."""
    for field in FIELDS:
        keep(field, [])


def rules() -> Rules:
    """Whether pools are shown as the rules stand, or refitted without each row's own model."""
    return cast("Rules", value("rules") or "all")


@st.cache_resource(show_spinner=False)
def record() -> AccuracyRecord:
    """The scores that the project carries; read once in the process, never changed."""
    return read_record()


def predicted(found: AccuracyRecord) -> tuple[Scored, ...]:
    """The predicted rows under the rules that the reader chose."""
    rows = found.left_out if rules() == "left_out" else found.scored
    return tuple(item for item in rows if item.reason is None)


def options(rows: Sequence[Scored], field: str) -> list[str]:
    """The values that the rows have in a field, in order."""
    return sorted({FIELDS[field](item) for item in rows})


def picked(rows: Sequence[Scored]) -> tuple[Scored, ...]:
    """The rows that pass all filters; an empty filter passes all."""
    wanted = {field: set(value(field) or ()) for field in FIELDS}
    return tuple(
        item for item in rows if all(not kept or FIELDS[field](item) in kept for field, kept in wanted.items())
    )


def is_filtered() -> bool:
    """Whether any filter is set."""
    return any(value(field) for field in FIELDS)
