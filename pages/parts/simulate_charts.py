"""Figures of a simulation over its steps, and of one step beside contiguous allocation. Imports no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types
from numpy.typing import NDArray

from pages.parts import simulate_words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.simulate_v0 import V0Run
from pages.parts.simulate_words import SlotUse
from planner.timeline import Timeline
from planner.units import MIB

MOST_POINTS = 1_600
INK = "#75818c"  # read on the light and the dark background alike
BLUE, ORANGE, SKY, RED, GREY = "#0072b2", "#e69f00", "#56b4e9", "#d55e00", "#8a939c"

Floats = NDArray[np.float64]


def thinned(values: Floats, most_points: int = MOST_POINTS) -> tuple[Floats, Floats]:
    """Steps and values of at most `most_points` points: the lowest and highest of each bucket, in their order."""
    number = len(values)
    if number <= most_points:
        return np.arange(number, dtype=np.float64), values
    size = -(-2 * number // most_points)
    starts = np.arange(0, number, size)
    kept = set()
    for start in starts:
        bucket = values[start : start + size]
        kept |= {int(start + bucket.argmin()), int(start + bucket.argmax())}
    places = np.array(sorted(kept | {0, number - 1}))
    return places.astype(np.float64), values[places]


def usage(timeline: Timeline, step: int) -> go.Figure:
    """Blocks in use, and those cached and free above them."""
    usable = timeline.config.num_usable_blocks
    used = usable - timeline.column("free_blocks")
    cached = timeline.column("cached_free_blocks")
    figure = go.Figure(
        [
            _line(t("in use"), used, BLUE, fill="tozeroy"),
            _line(t("in use or cached"), used + cached, SKY, dash="dash"),
        ]
    )
    figure.add_hline(y=usable, line_width=1, line_color=INK, line_dash="dot")
    figure.add_annotation(
        x=0,
        xref="paper",
        y=usable,
        text=t("pool: {usable}", usable=f"{usable:,}"),
        xanchor="left",
        yanchor="top",
        showarrow=False,
    )
    return _over_steps(figure, t("Blocks"), step, timeline.num_steps)


def queue(timeline: Timeline, step: int) -> go.Figure:
    """Running and waiting requests, and where requests were preempted."""
    preemptions = np.diff(timeline.column("preemptions"), prepend=0.0)
    places = np.flatnonzero(preemptions)
    running = timeline.column("num_running")
    shown = (
        places[np.unique(np.linspace(0, len(places) - 1, min(len(places), 80)).astype(int))] if len(places) else places
    )
    figure = go.Figure(
        [
            _line(t("running"), running, BLUE),
            _line(t("waiting"), timeline.column("num_waiting"), ORANGE, dash="dash"),
            go.Scatter(
                x=shown,
                y=running[shown],
                name=t("preempted"),
                mode="markers",
                marker={"symbol": "triangle-down", "size": 9, "color": RED, "line": {"width": 1, "color": "white"}},
                customdata=preemptions[shown],
                hovertemplate=f"%{{customdata:.0f}} {t('preempted')}",
            ),
        ]
    )
    return _over_steps(figure, t("Requests"), step, timeline.num_steps)


def hits(timeline: Timeline, step: int) -> go.Figure:
    """Prompt tokens looked up so far, and those found in the cache."""
    figure = go.Figure(
        [
            _line(t("looked up"), timeline.column("queried_tokens"), GREY, dash="dash"),
            _line(t("found"), timeline.column("hit_tokens"), BLUE, fill="tozeroy"),
        ]
    )
    return _over_steps(figure, t("Prompt tokens so far"), step, timeline.num_steps)


def tiers(timeline: Timeline, names: Sequence[str], step: int) -> go.Figure | None:
    """Blocks in each lower tier; None where there is none."""
    if timeline.tiers is None:
        return None
    held = [np.asarray(column, dtype=np.float64) for column in timeline.tiers.blocks_held]
    colours, dashes = (BLUE, ORANGE), ("solid", "dash")
    lines = [
        _line(said(name), values, colours[place % 2], dash=dashes[place % 2])
        for place, (name, values) in enumerate(zip(names, held, strict=True))
    ]
    return _over_steps(go.Figure(lines), t("Blocks below the card"), step, timeline.num_steps)


def moved(timeline: Timeline, step: int) -> go.Figure | None:
    """MiB moved down and up in each step, and what came back soon after it went; None without tiers."""
    if timeline.tiers is None:
        return None
    down, up = (
        np.asarray(column, dtype=np.float64) / MIB for column in (timeline.tiers.bytes_down, timeline.tiers.bytes_up)
    )
    figure = go.Figure([_line(t("down"), down, ORANGE, dash="dash"), _line(t("up"), up, BLUE)])
    thrash = np.asarray(timeline.tiers.thrashed_blocks, dtype=np.float64)
    places = np.flatnonzero(thrash)[:500]
    figure.add_scatter(
        x=places,
        y=up[places],
        name=t("thrash: back within 64 steps"),
        mode="markers",
        marker={"symbol": "x", "size": 9, "color": RED},
        customdata=thrash[places],
        hovertemplate=f"%{{customdata:.0f}} {t('blocks came straight back')}",
    )
    return _over_steps(figure, t("MiB a step"), step, timeline.num_steps)


def v0_blocks(run: V0Run, step: int) -> go.Figure:
    """Blocks that a V0 run has in use, on the card and in host memory."""
    card = np.array([run.config.num_gpu_blocks - frame.free_gpu_blocks for frame in run.frames], dtype=np.float64)
    host = np.array([run.config.num_cpu_blocks - frame.free_cpu_blocks for frame in run.frames], dtype=np.float64)
    figure = go.Figure(
        [_line(t("on the card"), card, BLUE, fill="tozeroy"), _line(t("in host memory"), host, ORANGE, dash="dash")]
    )
    return _over_steps(figure, t("Blocks in V0"), step, len(run.frames))


def slots(uses: Sequence[SlotUse]) -> go.Figure:
    """One stacked bar an allocator: slots that hold tokens, are set aside empty, are broken up, are free."""
    names = [
        f"<b>{use.name}</b><br>{t('{requests} running', requests=simulate_words.count(use.num_running, 'request'))}"
        for use in uses
    ]
    parts: tuple[tuple[str, str, str, list[int]], ...] = (
        (t("hold tokens"), BLUE, "", [use.held for use in uses]),
        (t("set aside, empty"), ORANGE, "/", [use.empty for use in uses]),
        (t("free, but broken up"), RED, "x", [use.broken for use in uses]),
        (t("free"), "rgba(138,147,156,0.25)", "", [use.free for use in uses]),
    )
    figure = go.Figure(
        [
            go.Bar(
                name=name,
                y=names,
                x=values,
                orientation="h",
                marker={"color": colour, "pattern": {"shape": shape, "fillmode": "overlay", "solidity": 0.3}},
                hovertemplate=f"%{{x:,}} {t('slots')} {name}<extra></extra>",
                width=0.62,
            )
            for name, colour, shape, values in parts
        ]
    )
    figure.update_layout(barmode="stack", height=70 + 54 * len(uses), margin={"l": 0, "r": 12, "t": 34, "b": 24})
    figure.update_yaxes(
        categoryorder="array", categoryarray=names[::-1], automargin=True, showgrid=False, fixedrange=True
    )
    figure.update_xaxes(title=t("Token slots"), fixedrange=True)
    return legend_on_top(figure)


def _line(name: str, values: Floats, colour: str, *, dash: str = "solid", fill: str = "none") -> go.Scatter:
    steps, shown = thinned(values)
    return go.Scatter(
        x=steps,
        y=shown,
        name=name,
        mode="lines",
        line={"width": 2, "color": colour, "dash": dash, "shape": "hv"},
        fill=fill,
        hovertemplate="%{y:,.0f}",
    )


def _over_steps(figure: go.Figure, title: str, step: int, num_steps: int) -> go.Figure:
    figure.add_vline(x=step, line_width=2, line_color=INK)
    figure.update_xaxes(title=t("Step"), range=[0, max(1, num_steps - 1)], fixedrange=True)
    figure.update_yaxes(title=title, rangemode="tozero", automargin=True, fixedrange=True)
    figure.update_layout(height=240, margin={"l": 0, "r": 8, "t": 30, "b": 0}, hovermode="x unified", dragmode=False)
    return legend_on_top(figure)


def legend_on_top(figure: go.Figure) -> go.Figure:
    """The figure with its legend above the plot."""
    figure.update_layout(
        showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, dragmode=False
    )
    return figure
