"""Figures of a dry run: values in, Plotly figures and their alternative texts out. Imports no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types

from pages.parts import words
from pages.parts.language import t
from pages.parts.said import said
from planner.dry_run import Knee, Level

_INK = "#75818c"
_TICKS = tuple(2**power for power in range(13))


def throughput(levels: Sequence[Level], knee_users: int | None) -> go.Figure:
    """Tokens a second against users, the knee marked."""
    users = np.array([level.users for level in levels])
    speed = np.array([level.load.output_tokens_per_second for level in levels])
    hover = t("%{x} users: %{y:,.0f} tokens/s")
    figure = go.Figure(
        go.Scatter(x=users, y=speed, mode="lines+markers", line={"width": 2.5}, hovertemplate=f"{hover}<extra></extra>")
    )
    figure.update_yaxes(title=t("Tokens a second"), rangemode="tozero", fixedrange=True, automargin=True)
    return _finished(figure, users, knee_users)


def pool(levels: Sequence[Level], knee_users: int | None) -> go.Figure:
    """The pool's mean and peak use and the users that wait, against users."""
    users = np.array([level.users for level in levels])
    lines = (
        (t("Pool, peak"), [100 * level.load.peak_used_fraction for level in levels], "dot"),
        (t("Pool, mean"), [100 * level.load.mean_used_fraction for level in levels], "solid"),
        (t("Waiting users"), [100 * level.load.mean_waiting / level.users for level in levels], "dash"),
    )
    figure = go.Figure(
        [
            go.Scatter(
                x=users, y=np.array(values), name=name, mode="lines+markers", line={"width": 2.5, "dash": dash},
                hovertemplate=f"{name}: %{{y:.0f}} %<extra></extra>",
            )
            for name, values, dash in lines
        ]
    )  # fmt: skip
    figure.update_yaxes(title=t("Percent"), range=[0, 104], fixedrange=True, automargin=True)
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    return _finished(figure, users, knee_users)


def _finished(figure: go.Figure, users: np.ndarray, knee_users: int | None) -> go.Figure:
    ticks = [tick for tick in _TICKS if users.min() <= tick <= users.max()]
    figure.update_xaxes(
        type="log", title=t("Users at once"), tickvals=ticks, ticktext=[f"{tick:,}" for tick in ticks], fixedrange=True
    )
    if knee_users is not None:
        figure.add_vline(x=knee_users, line_width=1.5, line_color=_INK, line_dash="dot")
        figure.add_annotation(
            x=float(np.log10(knee_users)), y=1, yref="paper", yanchor="top", xanchor="right", xshift=-4, showarrow=False,
            text=t("knee: {users}", users=f"{knee_users:,}"),
        )  # fmt: skip
    figure.update_layout(height=320, margin={"l": 0, "r": 12, "t": 28, "b": 0}, dragmode=False, hovermode="x unified")
    return figure


def throughput_alt(levels: Sequence[Level], knee: Knee) -> str:
    """What the curve of throughput shows."""
    first, last = levels[0], levels[-1]
    return t(
        "Tokens a second grow from {first} with {few} users to {last} with {many}; the knee is at {knee}: {reason}",
        first=words.count(first.load.output_tokens_per_second),
        few=words.count(first.users),
        last=words.count(last.load.output_tokens_per_second),
        many=words.count(last.users),
        knee=words.count(knee.users),
        reason=said(knee.reason),
    )


def pool_alt(levels: Sequence[Level]) -> str:
    """What the curves of the pool show."""
    last = levels[-1]
    return t(
        "With {users} users the pool is {mean} full on average and {peak} at its peak; {waiting} users wait on average.",
        users=words.count(last.users),
        mean=f"{100 * last.load.mean_used_fraction:.0f} %",
        peak=f"{100 * last.load.peak_used_fraction:.0f} %",
        waiting=f"{last.load.mean_waiting:.1f}",
    )
