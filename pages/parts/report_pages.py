"""The report of each page: gathers what the page holds and draws its button."""

from __future__ import annotations

from functools import partial

import streamlit as st

from live.alert_log import kept_rules
from live.recorder import Recorder
from live.recording_schema import RecordingError
from live.replay import Replay
from pages.parts import (
    report_plan,
    report_simulate,
    report_watch,
    simulate_state,
    state,
    watch_seen,
    watch_state,
    words,
)
from pages.parts.language import t
from pages.parts.report_button import About, report_button
from pages.parts.said import said
from pages.parts.simulate_job import SimulationJob
from pages.parts.simulate_setup import Setup
from pages.parts.simulate_weigh import WeighJob
from pages.parts.state import Answer
from planner.simulate import SimulationResult

_WATCH_SECONDS = 5.0


def plan(answered: Answer) -> None:
    """The Plan page's report."""
    found = answered.plan
    slices = state.cached_sweep(answered) if found.pool.groups else ()
    about = About(
        title=t("Memory plan"),
        subject=words.subject(found),
        versions=(("vLLM", found.vllm_version),),
    )
    report_button("plan", about, partial(report_plan.plan_sections, found, state.cached_what_ifs(answered), slices))


def simulation(job: SimulationJob, result: SimulationResult) -> None:
    """The Simulate page's report."""
    asked = simulate_state.asked_now()
    state.keep_link_extra("sim", simulate_state.link_text())
    step = min(simulate_state.step_now(), result.summary.num_steps - 1)
    about = About(title=t("Simulation"), subject=said(job.setup.title))
    report_button("simulation", about, partial(report_simulate.run_sections, asked, job, result, max(0, step)))


def trade_offs(setup: Setup, job: WeighJob) -> None:
    """The Trade-offs page's report, once all points are there."""
    asked = simulate_state.asked_now()
    state.keep_link_extra("sim", simulate_state.link_text())
    about = About(title=t("Trade-offs"), subject=said(setup.title))
    report_button("trade-offs", about, partial(report_simulate.weigh_sections, asked, setup, job))


def watch(watched: Recorder | Replay) -> None:
    """The Watch page's report, of the engine as it was within the last seconds."""
    seconds = None if watch_state.value("is_paused") else _WATCH_SECONDS
    st.fragment(partial(_watch, watched), run_every=seconds, key=watch_state.key("part_report"))()


def _watch(watched: Recorder | Replay) -> None:
    try:
        seen = watch_seen.seen_of(watched, watched.status())
        rules = kept_rules(watched.recording)
        interval_ms = watched.recording.summary().interval_ms
    except RecordingError:
        return  # the view says what is wrong
    if seen is None:
        return
    page = report_watch.Shown(
        watched=watched,
        seen=seen,
        interval_ms=interval_ms,
        seconds=60.0 * float(watch_state.value("minutes") or 15),
        rules=rules,
    )
    about = About(
        title=t("Engine watched"),
        subject=seen.sample.identity.model_name or seen.status.address,
        versions=(("vLLM", seen.snapshot.vllm_version or t("not told")),),
    )
    report_button("watch", about, partial(report_watch.watch_sections, page))
