"""What a simulation does over its steps, in figures: pool, queue, prefix cache and the tiers below the card."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pages.parts import simulate_charts, simulate_words, words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.simulate_job import SimulationJob
from pages.parts.simulate_state import key
from pages.parts.step_player import StepPlayer
from planner.simulate import SimulationSummary

_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}


def over_time(player: StepPlayer, job: SimulationJob, step: int) -> None:
    """What the run does over its steps: pool, queue, prefix cache, tiers; the step of the map is marked."""
    timeline = player.run.timeline
    offload = job.setup.options.offload
    names = [said(tier.name) for tier in offload.tiers] if offload else []
    found = job.result.summary if job.result else None
    usable = timeline.config.num_usable_blocks
    peak = (
        t(
            "at most {used} of {usable}",
            used=f"{found.peak_used_blocks:,}",
            usable=f"{usable:,}",
        )
        if found
        else ""
    )
    figures: list[tuple[str, Any, str]] = [
        (
            t("Blocks of the pool"),
            simulate_charts.usage(timeline, step),
            t("Blocks in use over the steps: {peak}.", peak=peak),
        ),
        (
            t("Requests"),
            simulate_charts.queue(timeline, step),
            _queue_words(found),
        ),
        (
            t("Prefix cache"),
            simulate_charts.hits(timeline, step),
            t("Prompt tokens looked up and found: {count} found.", count=f"{found.hit_tokens if found else 0:,}"),
        ),
        (
            t("Tiers below the card"),
            simulate_charts.tiers(timeline, names, step),
            t("Blocks held by {names}.", names=_and(names)),
        ),
        (t("Bytes moved"), simulate_charts.moved(timeline, step), _moved_words(timeline)),
    ]
    drawn = [each for each in figures if each[1] is not None]
    for place in range(0, len(drawn), 2):
        for column, (title, figure, alt) in zip(st.columns(2, gap="medium"), drawn[place : place + 2], strict=False):
            with column:
                st.markdown(f"**{title}**")
                st.plotly_chart(figure, key=key(f"chart_{title}"), config=_QUIET_CHART, alt=alt)
    if timeline.tiers is not None:
        st.caption(_moved_words(timeline))
    st.caption(t("The upright line is the step of the map."))


def _queue_words(found: SimulationSummary | None) -> str:
    if found is None:
        return ""
    most = t(
        "{peak_running} and {peak_waiting} at most",
        peak_running=f"{found.peak_running:,}",
        peak_waiting=f"{found.peak_waiting:,}",
    )
    return t(
        "Running and waiting requests: {most}; {num_preemptions}.",
        most=most,
        num_preemptions=simulate_words.count(found.num_preemptions, "preemption"),
    )


def _moved_words(timeline: Any) -> str:  # a Timeline, with tiers or without
    if timeline.tiers is None:
        return ""
    columns = timeline.tiers
    thrash = sum(columns.thrashed_blocks)
    told = t(
        "{bytes_down} went down and {bytes_up} came back",
        bytes_down=words.small_bytes(sum(columns.bytes_down)),
        bytes_up=words.small_bytes(sum(columns.bytes_up)),
    )
    return t(
        "{told}, in {seconds} s of loading; {hit_tokens} tokens were loaded instead of computed. {thrash} came back "
        "within 64 steps of going: thrash.",
        told=told,
        seconds=words.three_digits(sum(columns.seconds_moving)),
        hit_tokens=f"{sum(columns.hit_tokens):,}",
        thrash=simulate_words.count(thrash, "block"),
    )


def _and(names: list[str]) -> str:
    return t("{first} and {last}", first=names[0], last=names[1]) if len(names) > 1 else "".join(names)
