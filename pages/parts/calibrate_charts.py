"""The figure of a reconciliation: values in, a Plotly figure and its alternative text out. Imports no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types

from pages.parts import calibrate_words
from pages.parts.language import t
from planner.reconcile import ComparedTerm, Reconciliation
from planner.units import GIB

_ROW_HEIGHT_PIXELS, _AXIS_HEIGHT_PIXELS = 44, 92
_BAND_PIXELS = 14
_INK = "#75818c"  # bands: read on the light and the dark background alike
_INSIDE, _OUTSIDE = 0, 1  # places in the theme's category colours


def charted(found: Reconciliation) -> tuple[ComparedTerm, ...]:
    """The terms in bytes of the bounding rank, as the figure shows them: one row a name."""
    by_name: dict[str, ComparedTerm] = {}
    for term in found.terms:
        if term.unit == "bytes":
            by_name.setdefault(term.name, term)
    return tuple(by_name.values())


def error_figure(found: Reconciliation) -> go.Figure:
    """Each term around what was predicted: the band as a bar, the measurement as a dot, in GiB more or less."""
    terms = charted(found)
    figure = go.Figure([_dots(terms, is_inside=True), _dots(terms, is_inside=False)])
    for term in terms:
        low, high = (term.low - term.predicted) / GIB, (term.high - term.predicted) / GIB
        figure.add_shape(
            type="line",
            x0=low,
            x1=high if high > low else low + 1e-6,
            y0=calibrate_words.term_title(term.name),
            y1=calibrate_words.term_title(term.name),
            line={"width": _BAND_PIXELS, "color": _INK},
            opacity=0.35,
            layer="below",
        )
    figure.add_vline(x=0, line_width=1, line_color=_INK)
    _lay_out(figure, terms)
    return figure


def _dots(terms: Sequence[ComparedTerm], *, is_inside: bool) -> go.Scatter:
    shown = [term for term in terms if term.is_inside == is_inside]
    return go.Scatter(
        x=[term.error / GIB for term in shown],
        y=[calibrate_words.term_title(term.name) for term in shown],
        mode="markers",
        name=t("measured, inside the band") if is_inside else t("measured, outside the band"),
        marker={"size": 12, "symbol": "circle" if is_inside else "x"},
        text=[_hover(term) for term in shown],
        hovertemplate="%{y}: %{text}<extra></extra>",
    )


def _hover(term: ComparedTerm) -> str:
    return t(
        "predicted {predicted} ({band}), measured {measured}",
        predicted=calibrate_words.amount(term.predicted, term.unit),
        band=calibrate_words.span(term),
        measured=calibrate_words.amount(term.measured, term.unit),
    )


def _lay_out(figure: go.Figure, terms: Sequence[ComparedTerm]) -> None:
    reach = max((abs(value) for term in terms for value in _ends(term)), default=1.0) * 1.1 or 1.0
    order = [calibrate_words.term_title(term.name) for term in reversed(terms)]
    figure.update_xaxes(
        title=t("GiB more or less than predicted"), range=[-reach, reach], fixedrange=True, zeroline=False
    )
    figure.update_yaxes(categoryorder="array", categoryarray=order, automargin=True, fixedrange=True, ticks="")
    figure.update_layout(
        height=_AXIS_HEIGHT_PIXELS + _ROW_HEIGHT_PIXELS * len(terms),
        margin={"l": 0, "r": 12, "t": 8, "b": 0},
        dragmode=False,
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )


def _ends(term: ComparedTerm) -> tuple[float, float, float]:
    return (term.low - term.predicted) / GIB, (term.high - term.predicted) / GIB, term.error / GIB


def error_alt(found: Reconciliation) -> str:
    """What the figure shows, in sentences."""
    parts = "; ".join(
        f"{calibrate_words.term_title(term.name)} {calibrate_words.error(term)}, {calibrate_words.verdict(term)}"
        for term in charted(found)
    )
    return t("Measured less predicted: {parts}.", parts=parts)
