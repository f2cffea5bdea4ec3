"""The lessons' figures: values in, Plotly figures out. Imports no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types

from live.chunks import Numbers
from pages.parts import words
from pages.parts.language import t
from pages.parts.learn_numbers import FolkAndExact, PoolUse, SharedRun
from pages.parts.simulate_charts import BLUE, GREY, INK, ORANGE, RED, SKY
from planner.units import GIB, KIB

_LOOKS = ((BLUE, "solid"), (ORANGE, "dash"), (SKY, "dashdot"), (RED, "dot"), (GREY, "longdash"))
_MARGIN = {"l": 0, "r": 12, "t": 8, "b": 0}
_LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}


def role_bars(parts: Sequence[tuple[str, int]]) -> go.Figure:
    """Bytes of each part of the weights, the largest on top."""
    ordered = sorted(parts, key=lambda part: part[1])
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=[name for name, _ in ordered],
            x=[size / GIB for _, size in ordered],
            marker_color=BLUE,
            text=[words.small_bytes(size) for _, size in ordered],
            textposition="auto",
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )
    figure.update_xaxes(ticksuffix=" GiB", fixedrange=True, rangemode="tozero", nticks=6)
    figure.update_yaxes(fixedrange=True, automargin=True, ticks="")
    figure.update_layout(height=70 + 36 * len(ordered), margin=_MARGIN, dragmode=False, showlegend=False)
    return figure


def cost_per_token(pairs: Sequence[FolkAndExact]) -> go.Figure:
    """KiB that one token costs, by the rule of thumb and exactly, a pair of bars a model."""
    names = [_short(pair.model_id) for pair in pairs]
    figure = go.Figure(
        [
            _bars(
                t("rule of thumb: 2 × layers × hidden size × 2 bytes"), names, [p.folk_bytes for p in pairs], GREY, "/"
            ),
            _bars(t("as vLLM keeps it"), names, [p.exact_bytes for p in pairs], BLUE, ""),
        ]
    )
    figure.update_xaxes(fixedrange=True, automargin=True)
    figure.update_yaxes(title=t("KiB a token"), fixedrange=True, automargin=True, rangemode="tozero")
    figure.update_layout(barmode="group", height=360, margin=_MARGIN, legend=_LEGEND, dragmode=False)
    return figure


def _bars(name: str, models: Sequence[str], sizes: Sequence[int], colour: str, pattern: str) -> go.Bar:
    return go.Bar(
        name=name,
        x=list(models),
        y=[size / KIB for size in sizes],
        marker={"color": colour, "pattern": {"shape": pattern}},
        texttemplate="%{y:.3s}",
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{x}: %{y:.4s} KiB<extra>%{fullData.name}</extra>",
    )


def cost_by_length(curves: Sequence[tuple[str, Sequence[int], Sequence[int]]]) -> go.Figure:
    """GiB that one request needs by its length, a line a model; both axes are logarithmic."""
    figure = go.Figure()
    for place, (name, lengths, sizes) in enumerate(curves):
        colour, dash = _LOOKS[place % len(_LOOKS)]
        figure.add_scatter(
            x=np.array(lengths),
            y=np.array(sizes) / GIB,
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2.5},
            hovertemplate="%{y:.3s} GiB",
        )
    ticks = [2**power for power in range(10, 18)]
    figure.update_xaxes(type="log", title=t("Tokens of the request"), tickvals=ticks, fixedrange=True)
    figure.update_xaxes(ticktext=[f"{tick // 1024}K" for tick in ticks])
    figure.update_yaxes(type="log", title="GiB", fixedrange=True, automargin=True)
    figure.update_layout(height=380, margin=_MARGIN, legend=_LEGEND, hovermode="x unified", dragmode=False)
    return figure


def pool_use(uses: Sequence[PoolUse], names: Sequence[str]) -> go.Figure:
    """Requests served at once on average, a bar an allocator."""
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=list(names)[::-1],
            x=[use.mean_running for use in uses][::-1],
            customdata=[use.held_fraction for use in uses][::-1],
            marker={
                "color": [BLUE if use.allocator == "paged" else GREY for use in uses][::-1],
                "pattern": {"shape": ["" if use.allocator == "paged" else "/" for use in uses][::-1]},
            },
            texttemplate="%{x:.1f}",
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{x:.1f}, %{customdata:.0%}<extra></extra>",
        )
    )
    figure.update_xaxes(
        title=t("Requests at once, on average"), fixedrange=True, range=[0, 1.1 * max(use.mean_running for use in uses)]
    )
    figure.update_yaxes(fixedrange=True, automargin=True, ticks="")
    figure.update_layout(height=250, margin=_MARGIN, dragmode=False, showlegend=False)
    return figure


def sharing(runs: Sequence[SharedRun]) -> go.Figure:
    """Blocks that requests with one system prompt hold, with and without sharing, by their number."""
    numbers = [run.num_requests for run in runs]
    figure = go.Figure(
        [
            _line(t("without sharing"), numbers, [run.without_sharing for run in runs], GREY, "dash"),
            _line(t("with prefix caching"), numbers, [run.with_sharing for run in runs], BLUE, "solid"),
        ]
    )
    figure.update_xaxes(title=t("Requests with the same system prompt"), tickvals=numbers, fixedrange=True)
    figure.update_yaxes(title=t("Blocks at the peak"), fixedrange=True, automargin=True, rangemode="tozero")
    figure.update_layout(height=320, margin=_MARGIN, legend=_LEGEND, hovermode="x unified", dragmode=False)
    return figure


def usage_and_queue(used: Sequence[float], preempted: Sequence[int], usable: int, title: str) -> go.Figure:
    """Blocks in use over the steps, with a mark where a request was preempted."""
    steps = np.arange(len(used), dtype=np.float64)
    values = np.array(used, dtype=np.float64)
    places = np.array(preempted, dtype=np.int64)
    figure = go.Figure(
        [
            go.Scatter(
                x=steps, y=values, name=t("in use"), mode="lines", line={"color": BLUE, "width": 2}, fill="tozeroy"
            ),
            go.Scatter(
                x=steps[places],
                y=values[places],
                name=t("a request is preempted"),
                mode="markers",
                marker={"symbol": "triangle-down", "size": 10, "color": RED, "line": {"width": 1, "color": "white"}},
            ),
        ]
    )
    figure.add_hline(y=usable, line_width=1, line_color=INK, line_dash="dot")
    figure.update_xaxes(title=t("Step"), fixedrange=True)
    figure.update_yaxes(title=title, fixedrange=True, automargin=True, rangemode="tozero")
    figure.update_layout(height=320, margin=_MARGIN, legend=_LEGEND, hovermode="x unified", dragmode=False)
    return figure


def recorded_session(seconds: Numbers, lines: Sequence[tuple[str, Numbers]], window: tuple[float, float]) -> go.Figure:
    """The recorded engine's series over time, with the minute that the question is about shaded."""
    figure = go.Figure()
    for place, (name, values) in enumerate(lines):
        colour, dash = _LOOKS[place % len(_LOOKS)]
        figure.add_scatter(
            x=seconds,
            y=values,
            name=name,
            mode="lines",
            line={"color": colour, "dash": dash, "width": 2},
            hovertemplate="%{y:.3s}",
        )
    figure.add_vrect(x0=window[0], x1=window[1], fillcolor=INK, opacity=0.18, line_width=0)
    figure.update_xaxes(title=t("Seconds since the recording began"), fixedrange=True)
    figure.update_yaxes(fixedrange=True, automargin=True, rangemode="tozero")
    figure.update_layout(height=340, margin=_MARGIN, legend=_LEGEND, hovermode="x unified", dragmode=False)
    return figure


def _line(name: str, x: Sequence[int], y: Sequence[int], colour: str, dash: str) -> go.Scatter:
    return go.Scatter(
        x=list(x), y=list(y), name=name, mode="lines+markers", line={"color": colour, "dash": dash, "width": 2.5}
    )


def _short(model_id: str) -> str:
    """The model's name without its organisation, broken where it is long."""
    name = model_id.rpartition("/")[2]
    return name if len(name) < 16 else name.replace("-", "<br>", 1) if name.count("-") < 2 else _broken(name)


def _broken(name: str) -> str:
    parts = name.split("-")
    middle = (len(parts) + 1) // 2
    return "-".join(parts[:middle]) + "-<br>" + "-".join(parts[middle:])
