"""Figures of the trade-offs. Imports no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types

from pages.parts.language import t
from pages.parts.said import said
from pages.parts.simulate_charts import BLUE, INK, ORANGE, RED, SKY, legend_on_top
from pages.parts.simulate_weigh import CLAIM_BEFORE, CLAIM_CONCURRENCY, CLAIM_PAGED
from pages.parts.simulate_words import POLICY_WORDS
from planner.block_tradeoffs import BlockSizePoint, ConcurrencyPoint

_LOOKS = ((ORANGE, "dash", "square"), (SKY, "dashdot", "diamond"), (RED, "dot", "triangle-up"))


def empty_slots(points: Sequence[BlockSizePoint]) -> go.Figure:
    """The share of taken slots that stays empty, by block size."""
    return _by_size(points, [point.empty_slots_fraction for point in points], t("Empty slots"), ".0%")


def table_bytes(points: Sequence[BlockSizePoint]) -> go.Figure:
    """The size of all block tables at their peak, by block size."""
    return _by_size(points, [float(point.peak_table_bytes) for point in points], t("Bytes of block tables"), ".2s")


def prefix_hits(points: Sequence[BlockSizePoint]) -> go.Figure:
    """The share of prompt tokens found in the cache, by block size."""
    return _by_size(points, [point.hit_fraction for point in points], t("Prompt tokens found"), ".0%")


def use_by_concurrency(points: Sequence[ConcurrencyPoint]) -> go.Figure:
    """How full each allocator keeps what it takes, by requests at once, with the claim's two lines."""
    limits = np.array([point.max_num_seqs for point in points], dtype=np.float64)
    running = np.array([point.mean_running for point in points])
    figure = go.Figure(
        [_use(t("Paging"), limits, [point.paged_fraction for point in points], (BLUE, "solid", "circle"), running)]
    )
    for place, (policy, _) in enumerate(points[0].contiguous if points else ()):
        fractions = [point.contiguous[place][1] for point in points]
        figure.add_trace(_use(said(POLICY_WORDS[policy]), limits, fractions, _LOOKS[place], running))
    for level, side, text in (
        (CLAIM_PAGED, "top", t("the claim with paging: over 95 %")),
        (CLAIM_BEFORE, "bottom", t("the claim before: under 60 %")),
    ):
        figure.add_hline(y=level, line_width=1, line_dash="dot", line_color=INK)
        figure.add_annotation(x=0, xref="paper", y=level, yanchor=side, xanchor="left", text=text, showarrow=False)
    figure.add_vline(x=CLAIM_CONCURRENCY, line_width=1, line_dash="dot", line_color=INK)
    figure.update_xaxes(
        type="log",
        title="max_num_seqs",
        tickvals=limits,
        ticktext=[f"{limit:.0f}" for limit in limits],
        fixedrange=True,
    )
    figure.update_yaxes(
        title=t("Taken slots that hold a token"), tickformat=".0%", range=[0, 1.08], fixedrange=True, automargin=True
    )
    figure.update_layout(height=380, margin={"l": 0, "r": 12, "t": 34, "b": 0}, hovermode="x unified")
    return legend_on_top(figure)


def _use(
    name: str, limits: object, fractions: Sequence[float], look: tuple[str, str, str], running: object
) -> go.Scatter:
    colour, dash, symbol = look
    return go.Scatter(
        x=limits,
        y=np.array(fractions),
        name=name,
        mode="lines+markers",
        line={"width": 2.5, "color": colour, "dash": dash},
        marker={"symbol": symbol, "size": 8},
        customdata=running,
        hovertemplate=f"%{{y:.1%}} (%{{customdata:.1f}} {t('at once on average')})",
    )


def _by_size(points: Sequence[BlockSizePoint], values: Sequence[float], title: str, form: str) -> go.Figure:
    sizes = [str(point.block_size) for point in points]
    figure = go.Figure(
        go.Bar(
            x=sizes,
            y=np.array(values),
            marker_color=BLUE,
            texttemplate=f"%{{y:{form}}}",
            textposition="outside",
            textfont_size=11,
            textangle=0,
            cliponaxis=False,
            hovertemplate=f"{t('blocks of')} %{{x}}: %{{y:{form.replace('.0%', '.2%')}}}<extra></extra>",
        )
    )
    figure.update_xaxes(title=t("Tokens in a block"), type="category", fixedrange=True, showgrid=False)
    figure.update_yaxes(title=title, tickformat=form, fixedrange=True, automargin=True, rangemode="tozero")
    figure.update_layout(height=260, margin={"l": 0, "r": 8, "t": 24, "b": 0}, dragmode=False, showlegend=False)
    return figure
