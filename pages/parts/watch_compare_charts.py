"""Curves of two recordings over each other: usage, running requests, preemptions. Imports no Streamlit."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types

from live.chunks import Numbers
from live.compare_recordings import Aligned
from pages.parts.language import t
from pages.parts.simulate_charts import BLUE, INK, ORANGE

_MINUTE, _HOUR = 60.0, 3600.0


def overlaid(aligned: Aligned, field: str, title: str, *, lead_seconds: float = 0.0) -> go.Figure:
    """One field of both sides over the time since their moment 0; usage in percent."""
    is_fraction = field.endswith("_fraction")
    seconds = aligned.seconds - lead_seconds
    unit, width = _time_unit(float(seconds[-1] - seconds[0]) if len(seconds) else 0.0)
    scale = 100.0 if is_fraction else 1.0
    lines = [
        _line("A", seconds / width, aligned.first[field] * scale, BLUE, "solid"),
        _line("B", seconds / width, aligned.second[field] * scale, ORANGE, "dash"),
    ]
    ordinate: dict[str, Any] = {"range": [0, 102]} if is_fraction else {"rangemode": "tozero"}
    layout: dict[str, Any] = {
        "template": {"layout": {}},  # Streamlit fills it with its theme
        "height": 240,
        "margin": {"l": 0, "r": 8, "t": 30, "b": 0},
        "hovermode": "x unified",
        "dragmode": False,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "xaxis": {"title": unit, "fixedrange": True, "zeroline": False},
        "yaxis": {"title": title, "automargin": True, "fixedrange": True} | ordinate,
        "shapes": [_zero()] if lead_seconds else [],
    }
    return go.Figure(data=lines, layout=layout)


def _time_unit(seconds: float) -> tuple[str, float]:
    """The unit of the time axis and its seconds."""
    if seconds > 3 * _HOUR:
        return t("hours since the moment 0"), _HOUR
    if seconds > 3 * _MINUTE:
        return t("minutes since the moment 0"), _MINUTE
    return t("seconds since the moment 0"), 1.0


def _line(name: str, x: Numbers, y: Numbers, colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": x.astype(np.float32),
        "y": y.astype(np.float32),
        "name": name,
        "mode": "lines",
        "connectgaps": False,
        "line": {"width": 2, "color": colour, "dash": dash},
        "hovertemplate": "%{y:,.4~g}",
    }


def _zero() -> dict[str, Any]:
    line = {"width": 1, "color": INK, "dash": "dot"}
    return {"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1, "line": line}
