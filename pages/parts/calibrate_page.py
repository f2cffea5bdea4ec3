"""The upper half of the Calibrate page: from what was given to the comparison, or to what is still missing."""

from __future__ import annotations

import streamlit as st

from pages.parts import (
    calibrate_request,
    calibrate_sources,
    calibrate_state,
    calibrate_view,
    report_calibrate,
    state,
    words,
)
from pages.parts.language import t
from pages.parts.said import said
from planner.facts import PlanError


def start() -> None:
    """Ask what to compare, and compare it."""
    if calibrate_sources.choose_source() == calibrate_state.ENGINE:
        _engine()
    else:
        _log()


def _engine() -> None:
    found = calibrate_state.engine_choice()
    if found is None:
        return
    shown = calibrate_state.shown_engine(*found)
    if shown is None:
        st.info(
            t("The engine's model is neither the Plan page's nor in the catalogue: load it on the Plan page first."),
            icon=":material/info:",
        )
        return
    report_calibrate.calibration(shown)
    calibrate_view.draw(shown)


def _log() -> None:
    found = calibrate_sources.logs()
    if not found:
        calibrate_sources.newcomer()
        return
    starts = tuple(each for each in found if calibrate_state.says_something(each.log))
    calibrate_sources.nothing_read([each.name for each in found if not calibrate_state.says_something(each.log)])
    if not starts:
        return
    dropped = calibrate_sources.choose_start(starts)
    model_id, gpu = calibrate_sources.ask_for_the_rest(dropped)
    try:
        asked = calibrate_request.asked(dropped.log, model_id, gpu)
        shown = calibrate_state.shown_log(dropped, asked)
    except PlanError as problem:
        _say(problem)
        return
    report_calibrate.calibration(shown)
    calibrate_view.draw(shown)
    calibrate_view.all_of_them(starts, gpu)
    calibrate_view.unread(dropped, asked.findings)


def _say(problem: PlanError) -> None:
    text = words.plain(said(problem.text))
    if problem.value == state.NOT_LOADED:
        st.info(text, icon=":material/info:")
    else:
        st.error(text, icon=":material/error:")
