"""Two recordings compared: what is chosen, their curves over each other, the table of differences, and what differs in setting."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from live.alignment import Alignment, by_clock, by_mark, by_start
from live.compare_recordings import Chosen, align, engine_keys
from live.recording import Mark, Recording
from live.recording_differences import differences, setting_differences, watched_minutes
from live.recording_schema import RecordingError
from pages.parts import watch_compare_charts, watch_compare_state, watch_compare_words, watch_state, watch_words, words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.watch_compare_state import SIDES, field
from pages.parts.watch_state import key
from planner.facts import PlanError

_FIELDS = ("kv_usage_fraction", "num_requests_running", "num_preemptions")
_MOST_POINTS, _MOST_MARKS = 900, 200
_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}


def compare() -> None:
    """The choice of two recordings and how they differ; it runs by itself, apart from the page."""
    st.subheader(t("Compare two recordings"), anchor=False)
    st.fragment(_compare, key=key("part_compare"))()


def _compare() -> None:
    paths = watch_compare_state.choices()
    if not paths:
        st.caption(t("There is no recording yet to compare."))
        return
    if not st.toggle(t("Compare"), key=key("compare_on")):
        return
    watch_compare_state.fill(paths)
    chosen = [_choose(side, paths) for side in SIDES]
    try:
        with watch_compare_state.opened(chosen[0]) as first, watch_compare_state.opened(chosen[1]) as second:
            _draw(first, second)
    except (RecordingError, PlanError) as error:
        st.error(words.plain(said(error.text)), icon=":material/error:")


def _choose(side: str, paths: tuple[Path, ...]) -> Path:
    chosen: Path = st.selectbox(
        t("Recording {side}", side=side),
        paths,
        key=key(field(side, "path")),
        format_func=_name,
        width=520,
    )
    return chosen


def _name(path: Path) -> str:
    if watch_compare_state.is_running(path):
        return t("{name} (being recorded)", name=path.stem)
    if path in watch_state.packaged_recordings():
        return t("{name} (comes with KVScope)", name=path.stem)
    return path.stem


def _draw(first: Recording, second: Recording) -> None:
    engines = [_engine(side, recording) for side, recording in zip(SIDES, (first, second), strict=True)]
    alignment = _alignment(first, second)
    if alignment is None:
        return
    sides = [
        Chosen(recording=recording, engine=engine, start_ms=start_ms)
        for recording, engine, start_ms in zip(
            (first, second), engines, (alignment.first_ms, alignment.second_ms), strict=True
        )
    ]
    measured = [
        Chosen(recording=side.recording, engine=side.engine, start_ms=start_ms)
        for side, start_ms in zip(sides, (alignment.first_measured_ms, alignment.second_measured_ms), strict=True)
    ]
    _curves(sides, alignment)
    _tables(measured)


def _engine(side: str, recording: Recording) -> str:
    keys = engine_keys(recording)
    if not keys:
        text = f"{recording.path.name} holds no engine's series, so there is nothing to compare."
        raise PlanError("recording", recording.path.name, text)
    if len(keys) == 1:
        return keys[0]
    name = field(side, "engine")
    watch_compare_state.hold(name, keys)
    chosen: str = st.selectbox(t("Engine of {side}", side=side), keys, key=key(name), width=340)
    return chosen


def _alignment(first: Recording, second: Recording) -> Alignment | None:
    ways = {
        "start": t("by their starts"),
        "mark": t("by a mark of each"),
        "clock": t("by the clock"),
    }
    by = st.segmented_control(
        t("Laid over each other"), tuple(ways), key=key("compare_by"), format_func=ways.__getitem__, required=True
    )
    match by:
        case "mark":
            marks = [_mark(side, recording) for side, recording in zip(SIDES, (first, second), strict=True)]
            return None if marks[0] is None or marks[1] is None else by_mark(first, second, (marks[0], marks[1]))
        case "clock":
            return by_clock(first, second)
    return by_start(first, second)


def _mark(side: str, recording: Recording) -> Mark | None:
    marks = recording.marks()[-_MOST_MARKS:]
    if not marks:
        st.info(t("Recording {side} has no mark; choose another way.", side=side), icon=":material/flag:")
        return None
    name = field(side, "mark")
    watch_compare_state.hold(name, marks)
    chosen: Mark = st.selectbox(t("Mark of {side}", side=side), marks, key=key(name), format_func=_mark_name, width=520)
    return chosen


def _mark_name(mark: Mark) -> str:
    return f"{watch_words.clock(mark.time_ms)} · {mark.kind.replace('_', ' ')}: {said(mark.text)[:120]}"


def _curves(sides: list[Chosen], alignment: Alignment) -> None:
    aligned = align(sides[0], sides[1], _FIELDS, _MOST_POINTS)
    titles = {
        "kv_usage_fraction": t("% of the pool"),
        "num_requests_running": t("Running requests"),
        "num_preemptions": t("Preemptions since the left edge"),
    }
    for name in _FIELDS:
        label = watch_compare_words.field_label(name)
        st.markdown(f"**{label}**")
        figure = watch_compare_charts.overlaid(aligned, name, titles[name], lead_seconds=alignment.lead_ms / 1000)
        alt = t("{what} of both recordings over time; the table below has the numbers", what=label)
        st.plotly_chart(figure, key=key(f"compare_chart_{name}"), config=_QUIET_CHART, alt=alt)
    text = t(
        "Each point is the mean of {seconds} s; preemptions are counted from the left edge, through restarts.",
        seconds=f"{aligned.step_seconds:g}",
    )
    st.caption(text)


def _tables(sides: list[Chosen]) -> None:
    minutes = [f"{watched_minutes(side):,.1f}" for side in sides]
    st.markdown(
        t(
            "Measured over {first} min of A and {second} min of B in which they were sampled, from the moment 0 on.",
            first=minutes[0],
            second=minutes[1],
        )
    )
    rows = watch_compare_words.difference_rows(differences(sides[0], sides[1]))
    st.dataframe(pd.DataFrame(rows), hide_index=True, key=key("compare_table"))
    settings = watch_compare_words.setting_rows(setting_differences(sides[0], sides[1]))
    if settings:
        st.markdown(t("What the engines tell of themselves differs in:"))
        st.dataframe(pd.DataFrame(settings), hide_index=True, key=key("compare_settings"))
    else:
        st.caption(t("Both engines tell the same release, model and cache configuration."))
