"""Figures of the Accuracy page: each start's predicted pool beside the logged one. Imports no Streamlit."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types

from pages.parts import words
from pages.parts.accuracy_words import group_name, percent, pool_error
from pages.parts.language import t
from pages.parts.simulate_charts import BLUE, INK, ORANGE, RED
from planner.score import Comparison, Scored
from planner.score_stats import GROUPS, compared

_MARKS = ((BLUE, "circle"), (ORANGE, "diamond"), (RED, "square"))  # a group keeps its colour and its shape
_SMALLEST_ERROR = 0.0001  # a pool closer than this is drawn here: a logarithm has no zero
_LEAST_GIB, _MOST_GIB = 0.1, 400.0

Pairs = Sequence[tuple[Scored, Comparison]]


def pools(rows: Sequence[Scored]) -> go.Figure:
    """Predicted against logged pools, both in GiB on logarithmic axes; the line is where they agree."""
    traces = [_trace(place, _of(rows, group), _predicted_gib) for place, group in enumerate(GROUPS)]
    ends = _ends(compared(rows, "kv_pool"))
    figure = go.Figure(traces)
    figure.add_shape(type="line", x0=ends[0], y0=ends[0], x1=ends[1], y1=ends[1], line={"color": INK, "width": 1})
    figure.update_xaxes(type="log", title=t("Logged by vLLM, GiB"), fixedrange=True, dtick=1)
    figure.update_yaxes(type="log", title=t("Predicted, GiB"), fixedrange=True, automargin=True, dtick=1)
    return _laid_out(figure)


def errors(rows: Sequence[Scored]) -> go.Figure:
    """The size of each error in percent of the logged pool, over the pool; logarithmic axes."""
    traces = [_trace(place, _of(rows, group), _error_percent) for place, group in enumerate(GROUPS)]
    figure = go.Figure(traces)
    figure.update_xaxes(type="log", title=t("Logged by vLLM, GiB"), fixedrange=True, dtick=1)
    figure.update_yaxes(type="log", title=t("Error, % of the pool"), fixedrange=True, automargin=True, dtick=1)
    figure.update_yaxes(ticksuffix=" %")
    return _laid_out(figure)


def alt(rows: Sequence[Scored]) -> str:
    """What the figures show, in sentences."""
    found = compared(rows, "kv_pool")
    within = sum((pool.relative_error or 0.0) <= 0.01 for _, pool in found)
    worst = max(found, key=lambda pair: pair[1].relative_error or 0.0, default=None)
    told = t(
        "{number} starts; {within} of their pools lie within 1 % of the logged one.",
        number=words.count(len(found)),
        within=words.count(within),
    )
    if worst is None:
        return told
    return f"{told} " + t(
        "The furthest off is {start}: {error}.", start=worst[0].row_id, error=percent(pool_error(worst[0]))
    )


def _of(rows: Sequence[Scored], group: str) -> Pairs:
    return [(item, pool) for item, pool in compared(rows, "kv_pool") if item.group == group]


def _predicted_gib(pool: Comparison) -> float:
    return max(_LEAST_GIB, pool.predicted)


def _error_percent(pool: Comparison) -> float:
    return 100 * max(_SMALLEST_ERROR, pool.relative_error or 0.0)


def _trace(place: int, pairs: Pairs, ordinate: Any) -> go.Scatter:
    colour, symbol = _MARKS[place]
    return go.Scatter(
        x=np.array([pool.logged for _, pool in pairs], dtype=np.float32),
        y=np.array([ordinate(pool) for _, pool in pairs], dtype=np.float32),
        mode="markers",
        name=group_name(GROUPS[place]),
        marker={
            "color": colour,
            "symbol": symbol,
            "size": 8,
            "opacity": 0.75,
            "line": {"width": 0.5, "color": "#ffffff"},
        },
        text=[_hover(item, pool) for item, pool in pairs],
        hovertemplate="%{text}<extra></extra>",
    )


def _hover(item: Scored, pool: Comparison) -> str:
    lines = (
        f"<b>{html.escape(item.row_id)}</b>",
        html.escape(
            f"{item.model_id}, {item.tensor_parallel_size * item.pipeline_parallel_size} × {item.gpu}, vLLM {item.version}"
        ),
        t(
            "predicted {predicted} GiB, logged {logged} GiB: {error}",
            predicted=f"{pool.predicted:.2f}",
            logged=f"{pool.logged:.2f}",
            error=percent(pool_error(item)),
        ),
        html.escape(item.source[:90]),
    )
    return "<br>".join(lines)


def _ends(pairs: Pairs) -> tuple[float, float]:
    known = [pool.logged for _, pool in pairs]
    return (min(known), max(known)) if known else (_LEAST_GIB, _MOST_GIB)


def _laid_out(figure: go.Figure) -> go.Figure:
    figure.update_layout(
        height=430,
        margin={"l": 0, "r": 8, "t": 8, "b": 0},
        dragmode=False,
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    return figure
