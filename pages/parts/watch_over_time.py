"""The watched engine over time: its charts, marks and gaps. Made once a second for all readers of one recorder, then only sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import streamlit as st

from live.downsample import drawn
from live.recording import Mark, Window
from live.watched import Watched, WatchStatus
from pages.parts import (
    watch_charts,
    watch_expected,
    watch_prediction,
    watch_seen,
    watch_state,
    watch_tiers,
    watch_words,
    words,
)
from pages.parts.language import language, t
from pages.parts.said import said
from pages.parts.watch_charts import MadeFigure
from pages.parts.watch_expected import Expectation, Points
from pages.parts.watch_seen import Seen
from pages.parts.watch_state import key

_MOST_POINTS, _MOST_EVENTS = 900, 50
_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """The charts by their names, what usage's expectation is made of, and the marks and gaps as lines, the last first."""

    charts: dict[str, MadeFigure]
    usage_text: str
    num_events: int
    events: tuple[str, ...]


def over_time(watched: Watched, interval_ms: int) -> None:
    """The section of the page: usage, then two columns, tiers, marks and gaps."""
    seen = watch_seen.seen_of(watched, watched.status())
    if seen is None:
        return
    found = _shared(watched, seen, interval_ms)
    _chart(t("KV usage"), found, "usage")
    st.caption(found.usage_text)
    left, right = st.columns(2)
    with left:
        _chart(t("Requests"), found, "requests")
    with right:
        _chart(t("Preemptions and the queue"), found, "preemptions")
    with left:
        _chart(t("Prefix hits"), found, "hits")
    with right:
        _chart(t("Offload to the host"), found, "offload")
    if "cards" in found.charts:
        _chart(t("Memory of the machine's cards in use"), found, "cards")
    watch_tiers.tiers(seen)
    _events(found)


def _shared(watched: Watched, seen: Seen, interval_ms: int) -> OverTime:
    """What is drawn for this moment, these minutes, marks, engine, plan and language, for whoever asks."""
    seconds, capacity = 60.0 * float(watch_state.value("minutes")), _capacity_fraction(seen)
    pool_tokens = None if seen.plan is None else seen.plan.pool.tokens
    known = None if seen.known is None else (seen.known.name, seen.known.start_ms)
    marks = watched.marks(seconds)
    what = (
        "over time",
        seen.status.moment,
        seconds,
        marks,
        seen.sample.identity,
        capacity,
        pool_tokens,
        known,
        language(),
    )
    return watched.shared.once(what, lambda: _made(watched, seen, seconds, marks, interval_ms))


def _made(watched: Watched, seen: Seen, seconds: float, marks: tuple[Mark, ...], interval_ms: int) -> OverTime:
    recording = watch_seen.recording_of(watched)
    cards = () if recording is None else watch_charts.card_series(recording.series_names())
    window = watched.window((*watch_seen.series_names(seen.sample), *cards), seconds)
    stage = watch_charts.Stage(
        drawn=drawn(window, interval_ms, _MOST_POINTS),
        identity=seen.sample.identity,
        start_ms=_start_ms(window, seen.status, seconds),
        end_ms=seen.status.time_ms,
        marks=marks,
    )
    points = Points(time_ms=stage.drawn.time_ms, series=stage.whole, sample=seen.sample)
    expected = watch_expected.expectation(points, seen.known, seen.held)
    events = sorted(_event_lines(stage), reverse=True)
    return OverTime(
        charts=_figures(stage, expected, _capacity_fraction(seen), cards),
        usage_text=_usage_words(seen, expected),
        num_events=len(events),
        events=tuple(
            watch_words.sentence(f"{watch_words.clock(time_ms)} · {text}") for time_ms, text in events[:_MOST_EVENTS]
        ),
    )


def _figures(
    stage: watch_charts.Stage, expected: Expectation | None, capacity: float | None, cards: tuple[str, ...]
) -> dict[str, MadeFigure]:
    figures = {
        "usage": watch_charts.usage(stage, expected, capacity),
        "requests": watch_charts.requests(stage),
        "preemptions": watch_charts.preemptions(stage),
        "hits": watch_charts.hits(stage),
    }
    if stage.has("offload_store_bytes", "offload_load_bytes"):
        figures["offload"] = watch_charts.offload(stage)
    if cards:
        figures["cards"] = watch_charts.cards(stage, cards)
    return {name: MadeFigure(figure) for name, figure in figures.items()}


def _capacity_fraction(seen: Seen) -> float | None:
    """The plan's pool as a share of the engine's own."""
    tokens = watch_prediction.pool_tokens(seen.sample)
    return seen.plan.pool.tokens / tokens if seen.plan is not None and tokens else None


def _usage_words(seen: Seen, expected: Expectation | None) -> str:
    parts, capacity = [], _capacity_fraction(seen)
    if expected is not None:
        parts.append(expected.text)
    if capacity is not None and seen.plan is not None:
        parts.append(
            t(
                "The plan's pool of {tokens} tokens is {share} of the engine's.",
                tokens=words.count(seen.plan.pool.tokens),
                share=watch_words.percent(capacity),
            )
        )
    if not parts:
        return t("Nothing is expected yet: no request has finished, and no plan is of this model.")
    return " ".join(parts)


def _start_ms(window: Window, status: WatchStatus, seconds: float) -> int:
    first = int(window.time_ms[0]) if len(window.time_ms) else status.time_ms
    return max(status.time_ms - int(seconds * 1000), min(first, status.time_ms - 60_000))


def _chart(title: str, found: OverTime, name: str) -> None:
    st.markdown(f"**{title}**")
    figure = found.charts.get(name)
    if figure is None:
        st.caption(t("Not exported by this version, or no KV offloading is configured."))
        return
    st.plotly_chart(figure, key=key(f"chart_{name}"), config=_QUIET_CHART, alt=t("{title} over time", title=title))


def _event_lines(stage: watch_charts.Stage) -> Iterator[tuple[int, str]]:
    for mark in stage.marks:
        yield mark.time_ms, f"{mark.kind.replace('_', ' ')}: {said(mark.text)}"
    for gap in stage.drawn.gaps:
        yield gap.start_ms, f"{t('gap')}, {gap.state.replace('_', ' ')}: {said(gap.text)}"


def _events(found: OverTime) -> None:
    if not found.num_events:
        return
    with st.expander(t("Marks and gaps ({count})", count=found.num_events), key=key("events")):
        for line in found.events:
            st.markdown(line)
