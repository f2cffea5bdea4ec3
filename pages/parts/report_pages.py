"""The report of each page: gathers what the page holds and draws its button."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from live.alert_log import kept_rules
from live.recorder import Recorder
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
from pages.parts.report_button import About, in_session, report_button
from pages.parts.report_sections import Section, Text
from pages.parts.said import said
from pages.parts.simulate_job import SimulationJob
from pages.parts.simulate_setup import Setup
from pages.parts.simulate_weigh import WeighJob
from pages.parts.state import Answer
from planner.simulate import SimulationResult


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
    """The Watch page's report, of the engine as it is when the button is pressed."""
    snapshot = watched.status().snapshot
    models = [] if snapshot is None else [each.identity.model_name or "" for each in snapshot.engines]
    version = None if snapshot is None else snapshot.vllm_version
    about = About(
        title=t("Engine watched"),
        subject=", ".join(dict.fromkeys(filter(None, models))) or watched.address,
        versions=(("vLLM", version or t("not told")),),
    )
    report_button("watch", about, in_session(partial(_watch_sections, watched)))


def _watch_sections(watched: Recorder | Replay) -> Sequence[Section]:
    seen = watch_seen.seen_of(watched, watched.status())
    if seen is None:
        return (Text(text=t("No sample of the engine is there yet.")),)
    page = report_watch.Shown(
        watched=watched,
        seen=seen,
        interval_ms=watched.recording.summary().interval_ms,
        seconds=60.0 * float(watch_state.value("minutes") or 15),
        rules=kept_rules(watched.recording),
    )
    return report_watch.watch_sections(page)
