"""A card's memory as one bar: vLLM's parts, other processes and what is free, measured by NVML and split by plan or log. No Streamlit."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types

from live.card_memory import CardMemory, CardPart
from pages.parts import words
from pages.parts.language import t
from planner.units import GIB

_LABELLED_FRACTION = 0.09  # of the card: a narrower part has no room for its name
_COLOUR_OF = {"engine": "kv_pool", "driver": "context", "free": "unreserved"}  # parts that no plan has


def part_name(part: CardPart) -> str:
    """What a part is called."""
    own = {
        "engine": t("The engine, undivided"),
        "unexplained": t("Engine, in no part of the plan"),
        "other_processes": t("Other processes"),
        "driver": t("Kept by the driver"),
        "free": t("Free"),
        "activation": t("Activation, still held"),
    }
    return own.get(part.name) or words.part_words(part.name).label


def memory_bars(cards: Sequence[CardMemory], *, is_dark: bool = False) -> go.Figure:
    """One stacked bar a card. Trace i takes the theme's i-th category colour, as on the Plan page."""
    figure = go.Figure([_trace(index, cards) for index in range(words.NUM_COLOURS)])
    figure.update_traces(insidetextfont={"color": "#11161b" if is_dark else "#ffffff", "size": 13})
    figure.update_layout(
        barmode="stack",
        showlegend=False,
        height=60 + 56 * len(cards),
        margin={"l": 0, "r": 12, "t": 4, "b": 30},
        dragmode=False,
    )
    figure.update_xaxes(ticksuffix=" GiB", nticks=6, fixedrange=True, rangemode="tozero")
    labels = [card_label(card) for card in cards]
    figure.update_yaxes(categoryorder="array", categoryarray=labels[::-1], automargin=True, fixedrange=True, ticks="")
    for card in cards:
        if card.budget_bytes is not None and len(cards) == 1:
            figure.add_vline(x=card.budget_bytes / GIB, line={"color": "#75818c", "dash": "dot", "width": 2})
    return figure


def card_title(card: CardMemory) -> str:
    """A card by its number and name; by its number alone where a recording does not tell the name."""
    number = card.gpu.index
    return f"{number}: {card.gpu.name}" if card.gpu.name else t("card {number}", number=number)


def card_label(card: CardMemory) -> str:
    """A card's title, for a figure."""
    return html.escape(card_title(card))


def _trace(index: int, cards: Sequence[CardMemory]) -> go.Bar:
    own = [(card, part) for card in cards for part in card.parts if _colour(part) == index and part.num_bytes]
    return go.Bar(
        orientation="h",
        y=[card_label(card) for card, _ in own],
        x=[part.num_bytes / GIB for _, part in own],
        text=[_label(card, part) for card, part in own],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        marker={"pattern": {"shape": [_pattern(part) for _, part in own], "fillmode": "overlay", "solidity": 0.25}},
        customdata=[_hover(part) for _, part in own],
        hovertemplate="%{customdata}<extra></extra>",
        width=0.62,
    )


def _colour(part: CardPart) -> int:
    return words.colour_index(_COLOUR_OF.get(part.name, part.name))


def _pattern(part: CardPart) -> str:
    """Outside vLLM's budget is hatched: colour is never the only sign."""
    return "" if part.is_inside_budget else "/"


def _label(card: CardMemory, part: CardPart) -> str:
    if part.num_bytes < _LABELLED_FRACTION * card.gpu.total_bytes:
        return ""
    return f"{part_name(part)}<br>{words.gib(part.num_bytes)}"


def _hover(part: CardPart) -> str:
    return f"<b>{part_name(part)}</b> {words.gib(part.num_bytes)}<br>{budget_words(part)}"


def budget_words(part: CardPart) -> str:
    """Whether vLLM counts a part in its budget."""
    if part.is_inside_budget is None:
        return t("not known whether in vLLM's budget")
    return t("in vLLM's budget") if part.is_inside_budget else t("outside vLLM's budget")


def memory_alt(card: CardMemory) -> str:
    """What a card's bar shows, in sentences."""
    parts = "; ".join(
        t("{part} {size}, {budget}", part=part_name(each), size=words.gib(each.num_bytes), budget=budget_words(each))
        for each in card.parts
        if each.num_bytes
    )
    return t(
        "Card {card} of {size}: {parts}.", card=card_label(card), size=words.gib(card.gpu.total_bytes), parts=parts
    )
