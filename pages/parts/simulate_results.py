"""The Simulate page's answer: what the run shows, the player with its map, and what stands behind the step it shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import pandas as pd
import streamlit as st

from pages.parts import (
    block_map,
    simulate_charts,
    simulate_downloads,
    simulate_lesson,
    simulate_over_time,
    simulate_state,
    simulate_v0,
    simulate_words,
    state,
    step_player,
    words,
)
from pages.parts.language import mark, t
from pages.parts.said import said
from pages.parts.simulate_job import SimulationJob
from pages.parts.simulate_request import FAILURES, LESSON
from pages.parts.simulate_setup import pool_words
from pages.parts.simulate_state import key, value
from pages.parts.step_player import StepPlayer
from planner.facts import PlanError
from planner.failure_presets import FailureKind, failure_preset
from planner.simulate import SimulationResult

_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}
_MOST_EVENTS = 2_000  # in the log's table, around the step
_MOST_TABLE_ROWS = 5_000
_POLL_SECONDS = 0.4
_EVENT_KINDS = (
    mark("arrived"), mark("admitted"), mark("shared"), mark("preempted"), mark("resumed"), mark("evicted"), mark("finished"),
)  # fmt: skip


def say_instead_of_run(problem: PlanError) -> None:
    """Draw `problem` in the map's place."""
    if problem.value == state.NOT_LOADED:
        st.header(t("Nothing to simulate yet"), anchor=False)
        st.info(words.plain(said(problem.text)), icon=":material/info:")
        return
    st.header(f":red[:material/error:] {t('This cannot be simulated')}", anchor=False)
    st.error(words.plain(said(problem.text)), icon=":material/error:")


@st.fragment(run_every=_POLL_SECONDS)
def progress(job: SimulationJob) -> None:
    """How far the simulation is, with a button that stops it; the page is drawn anew when it is done."""
    if job.wait(0):
        st.rerun()
    st.header(t("Simulating…"), anchor=False)
    st.progress(
        job.fraction,
        text=t(
            "{num_steps} steps, {fraction} of the tokens served",
            num_steps=words.count(job.num_steps),
            fraction=f"{job.fraction:.0%}",
        ),
    )
    st.button(t("Stop"), key=key("stop"), icon=":material/stop_circle:", on_click=job.stop)


def summary(job: SimulationJob, result: SimulationResult) -> None:
    """What the whole run comes to, in words and in figures."""
    config, found = result.timeline.config, result.summary
    st.caption(words.plain(f"{said(job.setup.title)} · {pool_words(config, job.setup.block_bytes)}"))
    st.header(simulate_words.run_title(found, config), anchor=False)
    kind = value("workload")
    story = failure_preset(cast("FailureKind", kind), seed=int(value("seed") or 0)).story if kind in FAILURES else ""
    st.markdown(words.plain(f"{said(story)} {simulate_words.run_finding(found)}".strip()))
    for note in job.setup.notes:
        st.info(words.plain(said(note)), icon=":material/info:")
    if found.is_stopped:
        st.warning(simulate_words.stopped_words(found), icon=":material/stop_circle:")
    with st.container(horizontal=True, gap="small"):
        for figure in simulate_words.run_figures(found, config):
            _metric(figure.label, figure.shown, figure.below, figure.explanation)


def _metric(label: str, shown: str, below: str | None, explanation: str) -> None:
    st.metric(label, shown, below, delta_color="off", delta_arrow="off", border=True, help=explanation, width="stretch")


def remedies() -> None:
    """For a preset that breaks: each flag change with what it did in a new simulation."""
    kind = value("workload")
    if kind not in FAILURES:
        return
    seed = int(value("seed") or 0)
    preset = failure_preset(cast("FailureKind", kind), seed=seed)
    st.subheader(t("What saves it"), anchor=False)
    with st.spinner(t("Trying what could save it…")):
        found = simulate_state.cached_remedies(kind, seed)
    st.caption(
        t(
            "Each change was simulated anew. The number is the {metric}; lower is better.",
            metric=words.plain(said(preset.metric)),
        )
    )
    for place, remedy in enumerate(found):
        with st.container(border=True, horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            with st.container(gap=None):
                sign = ":green[:material/check_circle:]" if remedy.is_saving else ":material/remove:"
                st.markdown(f"{sign} `{remedy.flags}`")
                st.caption(
                    words.plain(
                        f"{words.three_digits(remedy.before)} → {words.three_digits(remedy.after)} · {said(remedy.why)}"
                    )
                )
            st.button(
                t("Apply"),
                key=key(f"remedy_{place}"),
                on_click=simulate_state.apply_config,
                args=(remedy.config,),
                help=t("Set these flags in the form and play the run."),
            )


@st.fragment
def stage(player: StepPlayer, job: SimulationJob) -> None:
    """The player, the map, and what stands behind the step that it shows."""
    run = player.run
    if value("workload") == LESSON:
        _lesson()
    st.segmented_control(
        t("Colour by"),
        simulate_state.COLOURS,
        key=key("colour_by"),
        required=True,
        format_func={"request": t("Request"), "state": t("State"), "group": t("KV group")}.__getitem__,
        persist_state="session",
    )
    view = simulate_state.view_of(run)
    block_map.block_map(
        player.encode(view),
        key=simulate_state.MAP,
        on_step=simulate_state.follow_player,
        on_pick=partial(simulate_state.picked_block, run),
        on_choose=partial(simulate_state.chosen_request, run),
    )
    st.caption(
        t(
            "Keys: k plays and pauses, j and l step, n jumps to the next event, Home and End. On the map: arrows move "
            "the cursor, Enter picks its block, + and − zoom (or Ctrl and the wheel), Esc lets the request go."
        )
    )
    looked_at = st.segmented_control(
        t("Look at"),
        list(_LOOKS),
        key=key("look"),
        default=_FIRST_LOOK,
        format_func=said,
        required=True,
        label_visibility="collapsed",
        persist_state="session",
    )
    _LOOKS[looked_at or _FIRST_LOOK](player, job, view.step)


def _lesson() -> None:
    """Where to look in the first lesson, a button a stop, and what is seen at the step that the map shows."""
    shown = simulate_lesson.stop_at(simulate_state.step_now())
    with st.container(horizontal=True, gap="small"):
        for number, stop in enumerate(simulate_lesson.STOPS, 1):
            st.button(
                f"{number} · {said(stop.title)}",
                key=key(f"lesson_{number}"),
                icon=":material/visibility:" if stop is shown else None,
                on_click=simulate_state.jump,
                args=(stop.step,),
                help=t("Go to step {step}", step=stop.step),
            )
    st.markdown(words.plain(said(shown.text)))


def _one_request(player: StepPlayer, _job: SimulationJob, step: int) -> None:
    run, timeline = player.run, player.run.timeline
    block = value("block")
    if block is not None:
        st.markdown(
            f"**{words.plain(simulate_words.block_sentence(timeline.block(step, block), timeline.config.block_size))}**"
        )
    _, frame, _ = player.moment(step)
    known = [*frame.running, *frame.waiting]
    chosen = value("selected")
    if chosen in timeline.request_ids and chosen not in known:
        known.insert(0, chosen)
    st.selectbox(
        t("Request"),
        known,
        index=None,
        key=key("selected"),
        placeholder=t("Choose a request, or click one of its blocks"),
        help=t("Its blocks stand out on the map."),
        persist_state="session",
    )
    if chosen not in timeline.request_ids:
        st.caption(t("No request is chosen."))
        return
    goal = run.goals[timeline.ordinal(chosen)]
    rows = timeline.table(step, chosen)
    st.markdown(words.plain(simulate_words.request_sentence(frame, rows, chosen, goal)))
    if not rows:
        return
    sizes = [timeline.config.block_size_of(group) for group in timeline.config.groups]
    groups = step_player.group_names(timeline.config)
    table: list[dict[str, object]] = [
        ({t("KV group"): groups[row.group]} if len(groups) > 1 else {})
        | {
            t("Logical block"): row.index,
            t("Physical block"): str(row.block or "–"),
            t("Tokens"): f"{row.first_token:,}–{row.first_token + sizes[row.group] - 1:,}",
            t("Filled"): t("{part} of {whole}", part=row.num_tokens, whole=sizes[row.group])
            if row.block
            else t("left the window"),
            t("Shared with"): words.listed(row.shared_with) or "–",
        }
        for row in rows[:_MOST_TABLE_ROWS]
    ]
    st.dataframe(
        pd.DataFrame(table),
        hide_index=True,
        height=min(420, 38 + 35 * len(table)),
        alt=t("Block table of {chosen} at step {step}", chosen=chosen, step=step),
    )


def _log(player: StepPlayer, _job: SimulationJob, step: int) -> None:
    timeline = player.run.timeline
    events = timeline.events_between(max(0, step - 400), step + 1)[-_MOST_EVENTS:]
    only = st.pills(
        t("Only"),
        _EVENT_KINDS,
        key=key("only"),
        format_func=said,
        selection_mode="multi",
        persist_state="session",
    )
    shown = [event for event in reversed(events) if not only or event.kind in only]
    if not shown:
        st.caption(t("Nothing of this kind happened in the 400 steps up to step {step}.", step=f"{step:,}"))
        return
    st.caption(t("The latest first. Choose a row to go to its step."))
    frame = pd.DataFrame([{t("Step"): event.step, t("What happened"): said(event.text)} for event in shown])
    st.dataframe(
        frame,
        hide_index=True,
        height=min(420, 38 + 35 * len(shown)),
        key=key("log"),
        on_select=partial(simulate_state.jump_to_row, [event.step for event in shown]),
        selection_mode="single-row",
        column_config={
            t("Step"): st.column_config.NumberColumn(width="small"),
            t("What happened"): st.column_config.TextColumn(width="large"),
        },
        alt=t("What happened up to step {step}, the latest first", step=step),
    )


def _without_paging(player: StepPlayer, job: SimulationJob, step: int) -> None:
    if job.result is None or not job.contiguous:
        st.info(
            t("The comparison needs a whole run of moderate length with arrivals in steps."), icon=":material/info:"
        )
        return
    uses = simulate_words.slot_uses(player.run.timeline, job.contiguous, step)
    finding = simulate_words.slots_finding(uses, step)
    st.markdown(
        t("The same requests at the same step, with one unbroken run of token slots a request instead of blocks.")
    )
    st.plotly_chart(simulate_charts.slots(uses), key=key("slots"), config=_QUIET_CHART, alt=finding)
    st.caption(finding)
    st.caption(simulate_words.contiguous_finding(job.contiguous, job.result.summary, len(player.run.goals)))


def _under_v0(_player: StepPlayer, job: SimulationJob, step: int) -> None:
    st.caption(
        t("V0 was vLLM's engine up to 0.10. It has no prefix cache here; a full pool is met by swap or by recompute.")
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        blocks = st.number_input(
            t("{flag}, blocks", flag="--swap-space"), 0, 1_000_000, 64, key=key("v0_blocks"), persist_state="session"
        )
        mode = st.selectbox("--preemption-mode", simulate_v0.MODES, key=key("v0_mode"), persist_state="session")
        has_beams = st.toggle(t("Samples are beams"), key=key("v0_beams"), persist_state="session")
    try:
        run = simulate_state.v0_run_of(job, num_cpu_blocks=blocks, mode=mode, has_beams=has_beams)
    except PlanError as problem:
        st.error(words.plain(said(problem.text)), icon=":material/error:")
        return
    num_steps = job.result.summary.num_steps if job.result else 0
    finding = simulate_v0.v0_finding(run, num_steps)
    st.markdown(words.plain(finding))
    shown = min(step, len(run.frames) - 1)
    st.plotly_chart(simulate_charts.v0_blocks(run, shown), key=key("chart_v0"), config=_QUIET_CHART, alt=finding)
    st.markdown(words.plain(simulate_v0.v0_step(run, step)))


def _export(player: StepPlayer, _job: SimulationJob, _step: int) -> None:
    events = player.run.timeline.events
    st.caption(
        t("{events} events. The frame itself is saved with “Save PNG” beside the map.", events=words.count(len(events)))
    )
    with st.container(horizontal=True):
        for label, make, name, mime in (
            (t("Events as CSV"), simulate_downloads.events_csv, "kvscope-events.csv", "text/csv"),
            (t("Events as JSONL"), simulate_downloads.events_jsonl, "kvscope-events.jsonl", "application/jsonl"),
        ):
            st.download_button(
                label,
                partial(make, events),
                name,
                mime,
                key=key(f"download_{name}"),
                icon=":material/download:",
                on_click="ignore",
            )
    st.caption(t("The address of this page holds the pool, the workload, the seed and the step: share it as it is."))


_FIRST_LOOK = mark("One request")
_LOOKS: dict[str, Callable[[StepPlayer, SimulationJob, int], None]] = {
    _FIRST_LOOK: _one_request,
    mark("What happened"): _log,
    mark("Over time"): simulate_over_time.over_time,
    mark("Without paging"): _without_paging,
    mark("Under V0"): _under_v0,
    mark("Export"): _export,
}
