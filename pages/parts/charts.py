"""Figures from plans: values in, Plotly figures and their alternative texts out. Imports no Streamlit.

Colours are not set here: trace *i* takes the *i*-th of the theme's category colours, so each figure holds one trace per
place of that list, empty where a plan has no such part.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types

from pages.parts import words
from pages.parts.language import t
from pages.parts.said import said
from planner.answer import BudgetLine, Plan, RankPlan
from planner.sweep import SweepSlice
from planner.units import GIB

ROW_HEIGHT_PIXELS = 52
_AXIS_HEIGHT_PIXELS = 74
_HOVER_WIDTH_CHARACTERS = 52
_DASHES = ("solid", "dash", "dashdot")
_COUNTS = [digit * 10**power for power in range(7) for digit in (1, 3)]
_TICKS = [2**power for power in range(10, 24, 2)]
_ON_LIGHT_BARS, _ON_DARK_BARS = "#11161b", "#ffffff"  # the dark theme's bars are light, the light theme's dark
_INK = "#75818c"  # lines and bands: read on the light and the dark background alike
_DIRECT_LABEL_FRACTION = 0.09  # a segment narrower than this part of the card has no room for its label


def ordered_lines(rank: RankPlan) -> tuple[BudgetLine, ...]:
    """The budget lines of `rank` that hold or lack memory, in the order in which a reader meets them."""
    present = [line for line in rank.lines if line.estimate.best_bytes]
    return tuple(sorted(present, key=lambda line: (not line.is_inside_budget, words.colour_index(line.name))))


def budget_waterfall(rank: RankPlan) -> go.Figure:
    """The card of `rank` part by part: each bar starts where the last one ended, thin lines are the 90 % bands."""
    lines = ordered_lines(rank)
    starts = _starts(lines)
    figure = go.Figure([_waterfall_trace(index, lines, starts) for index in range(words.NUM_COLOURS)])
    total_gib = _total_bytes(lines) / GIB
    _mark(figure, total_gib, t("card {size}", size=words.gib(_total_bytes(lines))), "right")
    budget_bytes = _budget_bytes(lines)
    _mark(figure, budget_bytes / GIB, t("vLLM's share {size}", size=words.gib(budget_bytes)), "left")
    figure.update_yaxes(
        categoryorder="array",
        categoryarray=[_row_label(line) for line in reversed(lines)],
        automargin=True,
        showgrid=False,
        ticks="",
    )
    _lay_out(figure, num_rows=len(lines))
    return figure


def rank_bars(plan: Plan, *, is_dark: bool = False) -> go.Figure:
    """One stacked bar a pipeline stage: where each card's memory goes, the stage that bounds the pool named."""
    figure = go.Figure([_stack_trace(index, plan) for index in range(words.NUM_COLOURS)])
    figure.update_traces(insidetextfont={"color": _ON_LIGHT_BARS if is_dark else _ON_DARK_BARS, "size": 13})
    labels = [rank_label(plan, rank) for rank in plan.ranks]
    figure.update_layout(barmode="relative")
    figure.update_yaxes(categoryorder="array", categoryarray=labels[::-1], automargin=True, showgrid=False, ticks="")
    _lay_out(figure, num_rows=len(labels))
    figure.update_layout(margin_t=4, height=figure.layout.height - 36)
    return figure


def length_curves(slices: Sequence[SweepSlice], length_tokens: int) -> go.Figure:
    """How many requests run at once by their length, a line a variant; broken off where a request no longer fits."""
    figure = go.Figure([_curve(place, part) for place, part in enumerate(slices) if part.refusal is None])
    figure.add_vline(x=length_tokens, line_width=1.5, line_color=_INK, line_dash="dot")
    figure.update_xaxes(type="log", title=t("Tokens of each request"), fixedrange=True, tickvals=_TICKS)
    figure.update_xaxes(ticktext=[f"{tick // 1024}K" if tick < 2**20 else "1M" for tick in _TICKS])
    figure.update_yaxes(type="log", title=t("Requests at once"), fixedrange=True, automargin=True)
    figure.update_yaxes(tickvals=_COUNTS, ticktext=[f"{number:,}" for number in _COUNTS])
    figure.update_layout(
        height=340,
        margin={"l": 0, "r": 12, "t": 8, "b": 0},
        dragmode=False,
        hovermode="x unified",
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    return figure


def length_alt(slices: Sequence[SweepSlice]) -> str:
    """What the curves show, in one sentence a line."""
    told = [part for part in slices if part.refusal is None and part.max_concurrency.size]
    sentences = [
        t(
            "{variant}: {at_first} at {first} tokens, {at_last} at {last}",
            variant=variant_label(part),
            at_first=words.concurrency(float(part.max_concurrency[0, 0])),
            first=words.count(part.max_model_lens[0]),
            at_last=words.concurrency(float(part.max_concurrency[0, -1])),
            last=words.count(part.max_model_lens[-1]),
        )
        for part in told
    ]
    return t("Requests at once by length. {sentences}.", sentences=words.listed_long(sentences))


def variant_label(part: SweepSlice) -> str:
    """What a line stands for: tensor parallelism and the format of keys and values."""
    return f"TP {part.tensor_parallel_size} · KV {part.kv_cache_dtype}"


def budget_alt(rank: RankPlan) -> str:
    """What the waterfall of `rank` shows, in sentences for those who do not see it."""
    lines = ordered_lines(rank)
    parts = words.listed_long(
        t("{part} ({band})", part=words.line_title(line), band=words.band(line.estimate)) for line in lines
    )
    pool = rank.kv_pool.best_bytes
    finding = (
        t("{size} are left for the KV cache", size=words.gib(pool))
        if pool >= 0
        else t("{size} are missing", size=words.gib(-pool))
    )
    return t(
        "Of a card of {size}, {finding}. Parts: {parts}.",
        size=words.gib(_total_bytes(lines)),
        finding=finding,
        parts=parts,
    )


def ranks_alt(plan: Plan) -> str:
    """What the bars of all stages show, in one sentence."""
    pools = words.listed_long(
        f"{t('stage {number}', number=rank.pp_rank)} {words.gib(rank.kv_pool.best_bytes)}" for rank in plan.ranks
    )
    return t(
        "Pipeline stage {bounding_rank} bounds the KV cache pool. Pools: {pools}.",
        bounding_rank=plan.bounding_rank,
        pools=pools,
    )


def rank_label(plan: Plan, rank: RankPlan) -> str:
    """What a pipeline stage is called on the axis."""
    bound = f"<br>{t('sets the pool')}" if rank.pp_rank == plan.bounding_rank else ""
    return t(
        "Stage {pp_rank} · {num_layers} layers{bound}", pp_rank=rank.pp_rank, num_layers=rank.num_layers, bound=bound
    )


def hover_text(line: BudgetLine) -> str:
    """The hover of a budget line: size, exact bytes, band, formula with numbers filled in, basis."""
    estimate = line.estimate
    rows = [f"<b>{html.escape(words.line_title(line))}</b>", words.exact_bytes(estimate.best_bytes)]
    if estimate.low_bytes != estimate.high_bytes:
        low, high = words.exact_bytes(estimate.low_bytes), words.exact_bytes(estimate.high_bytes)
        rows.append(t("90 % between {low_bytes} and {high_bytes}", low_bytes=f"{low}<br>", high_bytes=high))
    rows.extend(_wrapped(part_meaning) for part_meaning in [words.part_words(line.name).meaning] if part_meaning)
    if estimate.formula:
        rows.append(_wrapped(f"= {said(estimate.formula)}"))
    rows.append(_wrapped(words.basis(estimate.basis).capitalize()))
    return "<br>".join(rows)


def _starts(lines: Sequence[BudgetLine]) -> list[int]:
    """Where each bar starts: the sum of all lines before it."""
    return [0, *accumulate(line.estimate.best_bytes for line in lines)][: len(lines)]


def _total_bytes(lines: Sequence[BudgetLine]) -> int:
    return sum(line.estimate.best_bytes for line in lines)


def _budget_bytes(lines: Sequence[BudgetLine]) -> int:
    return _total_bytes([line for line in lines if line.is_inside_budget])


def _row_label(line: BudgetLine) -> str:
    return f"{words.part_words(line.name).label}<br><b>{words.gib(line.estimate.best_bytes)}</b>"


def _pattern(line: BudgetLine) -> str:
    """Hatching says what colour says: outside vLLM's budget "/", missing memory "x", inside none."""
    if line.estimate.best_bytes < 0:
        return "x"
    return "" if line.is_inside_budget else "/"


def _waterfall_trace(index: int, lines: Sequence[BudgetLine], starts: Sequence[int]) -> go.Bar:
    own = [(line, start) for line, start in zip(lines, starts, strict=True) if words.colour_index(line.name) == index]
    estimates = [line.estimate for line, _ in own]
    return go.Bar(
        orientation="h",
        y=[_row_label(line) for line, _ in own],
        x=[estimate.best_bytes / GIB for estimate in estimates],
        base=[start / GIB for _, start in own],
        marker={"pattern": {"shape": [_pattern(line) for line, _ in own], "fillmode": "overlay", "solidity": 0.25}},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [(estimate.high_bytes - estimate.best_bytes) / GIB for estimate in estimates],
            "arrayminus": [(estimate.best_bytes - estimate.low_bytes) / GIB for estimate in estimates],
            "thickness": 2,
            "width": 6,
            "color": _INK,
        },
        customdata=[hover_text(line) for line, _ in own],
        hovertemplate="%{customdata}<extra></extra>",
        width=0.62,
    )


def _stack_trace(index: int, plan: Plan) -> go.Bar:
    own = [
        (rank_label(plan, rank), line)
        for rank in plan.ranks
        for line in ordered_lines(rank)
        if words.colour_index(line.name) == index
    ]
    total_bytes = plan.gpu_total.best_bytes
    return go.Bar(
        orientation="h",
        y=[label for label, _ in own],
        x=[line.estimate.best_bytes / GIB for _, line in own],
        text=[_segment_text(line, total_bytes) for _, line in own],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        marker={"pattern": {"shape": [_pattern(line) for _, line in own], "fillmode": "overlay", "solidity": 0.25}},
        customdata=[hover_text(line) for _, line in own],
        hovertemplate="%{customdata}<extra></extra>",
        width=0.62,
    )


def _segment_text(line: BudgetLine, total_bytes: int) -> str:
    """The label inside a segment: name and size, or nothing where it would not fit."""
    if abs(line.estimate.best_bytes) < _DIRECT_LABEL_FRACTION * total_bytes:
        return ""
    return f"{words.part_words(line.name).label}<br>{words.gib(line.estimate.best_bytes)}"


def _curve(place: int, part: SweepSlice) -> go.Scatter:
    times = np.where(part.fits[0], part.max_concurrency[0], np.nan)
    return go.Scatter(
        x=np.array(part.max_model_lens),
        y=times,
        name=variant_label(part),
        mode="lines",
        line={"width": 2.5, "dash": _DASHES[place % len(_DASHES)]},
        hovertemplate=f"%{{y:.3s}} {t('at once')}",
    )


def _mark(figure: go.Figure, at_gib: float, text: str, side: str) -> None:
    """A labelled vertical line, its words above the bars."""
    figure.add_vline(x=at_gib, line_width=1.5, line_color=_INK, line_dash="dot" if side == "left" else "solid")
    figure.add_annotation(
        x=at_gib,
        xanchor="right",
        y=1,
        yref="paper",
        yanchor="bottom",
        yshift=2 if side == "right" else 18,
        text=text,
        showarrow=False,
    )


def _lay_out(figure: go.Figure, *, num_rows: int) -> None:
    figure.update_layout(
        showlegend=False,
        height=_AXIS_HEIGHT_PIXELS + ROW_HEIGHT_PIXELS * num_rows,
        margin={"l": 0, "r": 12, "t": 40, "b": 30},
        hoverlabel={"align": "left"},
        dragmode=False,
    )
    figure.update_xaxes(ticksuffix=" GiB", nticks=6, fixedrange=True, zeroline=True, rangemode="tozero")
    figure.update_yaxes(fixedrange=True)


def _wrapped(text: str) -> str:
    return "<br>".join(html.escape(row) for row in textwrap.wrap(text, _HOVER_WIDTH_CHARACTERS))
