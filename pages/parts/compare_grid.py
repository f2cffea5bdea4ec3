"""The table of what fits as a grid: numbers to sort by, words to read, shades to see; and as CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from pages.parts import compare_cells, compare_state, downloads
from pages.parts.compare_cells import UNBOUNDED, FitTable, column_title, model_titles, shown
from pages.parts.compare_request import LONGEST
from pages.parts.compare_state import key
from pages.parts.language import t

_MOST_SHADED_CELLS = 60_000
_ROW_PIXELS, _BAR_PIXELS = 35, 20  # the bar to scroll sideways lies over the last row
_MOST_ROWS_IN_VIEW = 18
# From "does not start" over little to all: background and text, each pair with a contrast above 4.5.
_LIGHT = (
    "#f3e3e1;#7a2018",
    "#eef6f4;#12312b",
    "#cfe9e3;#12312b",
    "#a3d6cb;#0c2a24",
    "#5cb5a4;#06201b",
    "#0f6f60;#ffffff",
)
_DARK = (
    "#33201f;#f0b4ac",
    "#17262a;#cfe5e1",
    "#193a3a;#d9efeb",
    "#1d5450;#e6f6f3",
    "#2f7f75;#ffffff",
    "#7fd6c7;#06201b",
)
_MODEL_PIXELS, _FORMAT_PIXELS = 190, 92


def legend(measure: str) -> str:
    """What shades and signs mean, in one sentence or two."""
    if measure == LONGEST:
        return t(
            "Tokens; the stronger the colour, the nearer to the model's own limit. ✕ does not start, with the first reason."
        )
    return t(
        "Requests the pool holds at once, before --max-num-seqs; the stronger the colour, the more. ✕ does not start."
    )


def grid(table: FitTable, *, is_dark: bool) -> None:
    """Draw the table; a cell can be picked."""
    st.dataframe(
        _styled(table, is_dark=is_dark),
        key=key("fit_grid"),
        height=_height(table),
        hide_index=True,
        column_config=_columns(),
        on_select="rerun",
        selection_mode="single-cell",
        alt=f"{compare_cells.summary(table)} {legend(table.measure)}",
    )


def still(table: FitTable, *, is_dark: bool) -> None:
    """Draw the first rows while the others are computed."""
    st.dataframe(
        _styled(table, is_dark=is_dark),
        height=_height(table),
        hide_index=True,
        column_config=_columns(),
        alt=t("The first rows of the table"),
    )


def picked(table: FitTable) -> tuple[int, int] | None:
    """The row and column of the picked cell; None where none is, or the table has changed since."""
    cell = compare_state.selected_cell()
    titles = [column_title(column) for column in table.columns]
    if cell is None or cell[1] not in titles or not 0 <= cell[0] < len(table.rows):
        return None
    return cell[0], titles.index(cell[1])


def csv_text(table: FitTable) -> str:
    """The table as CSV: exact numbers, and words where an engine does not start."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["model", "weights", "kv_cache_dtype", "own_limit_tokens", *map(column_title, table.columns)])
    for row in table.rows:
        cells = [
            shown(value, table.measure) if value < 0 or value >= UNBOUNDED else f"{value:.10g}"
            for value in row.numbers.tolist()
        ]
        lead = [row.model_id, row.weights_format, row.kv_dtype, row.own_limit_tokens]
        writer.writerow([downloads.inert(cell) for cell in (*lead, *cells)])
    return text.getvalue()


def frame(table: FitTable) -> pd.DataFrame:
    """The rows with their numbers: what is sorted by."""
    lead: dict[str, list[Any]] = {
        t("Model"): model_titles(table.rows),
        t("Weights"): [row.weights_format for row in table.rows],
    }
    if len({row.kv_dtype for row in table.rows}) > 1:
        lead["KV"] = [row.kv_dtype for row in table.rows]
    numbers = np.array([row.numbers for row in table.rows])
    titles = [column_title(column) for column in table.columns]
    last = pd.DataFrame({t("Own limit"): [row.own_limit_tokens for row in table.rows]})
    return pd.concat([pd.DataFrame(lead), pd.DataFrame(numbers, columns=titles), last], axis=1)


def _styled(table: FitTable, *, is_dark: bool) -> Any:  # pandas' Styler
    data = frame(table)
    num_lead = len(data.columns) - len(table.columns) - 1
    titles = list(data.columns[num_lead:-1])
    formats: dict[Any, Any] = {title: lambda value: shown(value, table.measure) for title in titles}
    formats[data.columns[-1]] = "{:,.0f}"
    styler = data.style.format(formats)
    if data.size > _MOST_SHADED_CELLS:
        return styler
    pairs = [pair.split(";") for pair in (_DARK if is_dark else _LIGHT)]
    css = np.array([f"background-color: {back}; color: {text}" for back, text in pairs])
    shades = np.array([row.shades for row in table.rows], dtype=np.int64)
    lead, last = (np.full((len(table.rows), width), "", dtype=css.dtype) for width in (num_lead, 1))
    styles = pd.DataFrame(np.concatenate([lead, css[shades], last], axis=1), columns=data.columns)
    return styler.apply(lambda _: styles, axis=None)


def _columns() -> dict[Any, Any]:
    return {
        t("Model"): st.column_config.TextColumn(pinned=True, width=_MODEL_PIXELS),
        t("Weights"): st.column_config.TextColumn(width=_FORMAT_PIXELS),
        "KV": st.column_config.TextColumn(width=_FORMAT_PIXELS),
    }


def _height(table: FitTable) -> int:
    return _ROW_PIXELS * (min(len(table.rows), _MOST_ROWS_IN_VIEW) + 1) + _BAR_PIXELS
