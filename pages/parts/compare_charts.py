"""Figures of a dry run: values in, Plotly figures and their alternative texts out. Imports no Streamlit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types

from pages.parts import words
from pages.parts.language import t
from pages.parts.said import said
from planner.dry_run import Knee, Level
from planner.latency import Percentiles

_INK = "#75818c"
_WAIT_TICKS = tuple(step * 10**power for power in range(7) for step in (1, 2, 5))  # ms
_TICKS = tuple(2**power for power in range(13))


def wait_words(seconds: float) -> str:
    """A wait with three digits: "23.4 ms", "1.85 s"."""
    if seconds >= 1:
        return f"{words.three_digits(seconds)} s"
    return f"{words.three_digits(1000 * seconds)} ms"


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


def first_token(levels: Sequence[Level], knee_users: int | None) -> go.Figure:
    """The time to the first token against users, p50 and p99."""
    return _waits([(level.users, level.load.latency.first_token) for level in levels], knee_users)


def between_tokens(levels: Sequence[Level], knee_users: int | None) -> go.Figure:
    """The time between tokens against users, p50 and p99."""
    return _waits([(level.users, level.load.latency.between_tokens) for level in levels], knee_users)


def _waits(seen: Sequence[tuple[int, Percentiles]], knee_users: int | None) -> go.Figure:
    users = np.array([each for each, _ in seen])
    lines = (
        ("p99", [1000 * waits.p99_seconds for _, waits in seen], "dot"),
        ("p50", [1000 * waits.p50_seconds for _, waits in seen], "solid"),
    )
    figure = go.Figure(
        [
            go.Scatter(
                x=users, y=np.array(values), name=name, mode="lines+markers", line={"width": 2.5, "dash": dash},
                hovertemplate=f"{name}: %{{y:,.3g}} ms<extra></extra>",
            )
            for name, values, dash in lines
        ]
    )  # fmt: skip
    most = max((1000 * waits.p99_seconds for _, waits in seen), default=1.0)
    ticks = [tick for tick in _WAIT_TICKS if tick <= 2 * most]
    texts = [f"{tick:,}" for tick in ticks]
    figure.update_yaxes(title="ms", type="log", tickvals=ticks, ticktext=texts, fixedrange=True, automargin=True)
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    return _finished(figure, users, knee_users)


FIGURES: Mapping[str, Callable[[Sequence[Level], int | None], go.Figure]] = {
    "throughput": throughput,
    "pool": pool,
    "first_token": first_token,
    "between_tokens": between_tokens,
}


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


def first_token_alt(levels: Sequence[Level]) -> str:
    """What the curves of the first token show."""
    first, last = levels[0].load.latency.first_token, levels[-1].load.latency.first_token
    return t(
        "The p99 to the first token goes from {least} with {few} users to {most} with {many}.",
        least=wait_words(first.p99_seconds),
        few=words.count(levels[0].users),
        most=wait_words(last.p99_seconds),
        many=words.count(levels[-1].users),
    )


def between_tokens_alt(levels: Sequence[Level]) -> str:
    """What the curves of the time between tokens show."""
    first, last = levels[0].load.latency.between_tokens, levels[-1].load.latency.between_tokens
    return t(
        "The p99 between tokens goes from {least} with {few} users to {most} with {many}.",
        least=wait_words(first.p99_seconds),
        few=words.count(levels[0].users),
        most=wait_words(last.p99_seconds),
        many=words.count(levels[-1].users),
    )
