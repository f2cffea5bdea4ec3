"""One start beside its plan: the verdict, every term as a figure and a table, the identity, reasons, advice, and what may be kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from pages.parts import calibrate_charts, calibrate_state, calibrate_words, words
from pages.parts.calibrate_state import Dropped, Shown, key
from pages.parts.language import t
from pages.parts.said import said
from planner.calibration import refusal
from planner.calibration_evidence import evidence_of
from planner.facts import Finding, PlanError

_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}
_MOST_UNREAD = 50


def draw(shown: Shown) -> None:
    """The whole comparison."""
    _verdict(shown)
    _actions(shown)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _chart(shown)
    with right:
        _reasons(shown)
        _advice(shown)
    _table(shown)
    _identity(shown)


def _verdict(shown: Shown) -> None:
    found = shown.found
    headline = found.headline
    if headline is None:
        icon, colour, title = "help", "gray", t("Nothing to compare")
    elif headline.is_inside:
        icon, colour, title = "check_circle", "green", t("The plan holds")
    else:
        icon, colour, title = "rule", "orange", t("The plan is off")
    st.header(f":{colour}[:material/{icon}:] {title}", anchor=False)
    st.markdown(calibrate_words.read_line(found))
    _outcome(shown)
    for note in shown.notes:
        st.caption(words.plain(said(note)))
    if found.plan.calibration is not None:
        st.caption(t("Predicted with calibration {name}.", name=f"`{found.plan.calibration}`"))


def _outcome(shown: Shown) -> None:
    """What became of the start, and whether the plan said so."""
    start = shown.found.start
    if start.outcome == "failed":
        failure = words.plain((start.failure or "")[:400])
        st.error(t("This start failed. {failure}", failure=failure), icon=":material/cancel:")
    if shown.found.is_verdict_right is False:
        planned = (
            t("the plan says that it starts")
            if shown.found.plan.will_start
            else t("the plan says that it does not start")
        )
        st.warning(t("Of this start {planned}.", planned=planned), icon=":material/warning:")


def _actions(shown: Shown) -> None:
    with st.container(horizontal=True, gap="small"):
        st.button(
            t("Calibrate this host"),
            key=key("calibrate"),
            icon=":material/tune:",
            on_click=partial(calibrate_state.calibrate, shown),
            disabled=not evidence_of(shown.general, shown.found.start),
            help=t(
                "Keeps the figures of this start, its model, flags and file name in one file on this host; no line of the log."
            ),
        )
        st.button(
            t("Open on the Plan page"),
            key=key("to_plan"),
            icon=":material/memory:",
            on_click=partial(calibrate_state.to_plan_page, shown),
        )
    refused = [text for each in evidence_of(shown.general, shown.found.start) if (text := refusal(each)) is not None]
    for text in refused:
        st.warning(words.plain(said(text)), icon=":material/block:")


def _chart(shown: Shown) -> None:
    if not calibrate_charts.charted(shown.found):
        return
    st.subheader(t("Measured around predicted"), anchor=False)
    st.plotly_chart(
        calibrate_charts.error_figure(shown.found),
        key=key("figure"),
        config=_QUIET_CHART,
        alt=calibrate_charts.error_alt(shown.found),
    )


def _table(shown: Shown) -> None:
    rows = calibrate_words.term_rows(shown.found)
    if rows:
        st.subheader(t("Term by term"), anchor=False)
        st.dataframe(pd.DataFrame(rows), hide_index=True, key=key("terms"))


def _identity(shown: Shown) -> None:
    identity = shown.found.identity
    icon = {True: ":material/check:", False: ":material/close:", None: ":material/remove:"}[identity.closes]
    st.subheader(t("Do the printed figures add up?"), anchor=False)
    st.markdown(f"{icon} {words.plain(calibrate_words.identity_line(identity))}")


def _reasons(shown: Shown) -> None:
    st.subheader(t("Why it may differ"), anchor=False)
    reasons = shown.found.reasons
    if not reasons:
        st.markdown(t("Nothing in the log speaks for another card, release, length or checkpoint than planned."))
    for reason in reasons:
        st.markdown(f"- {words.plain(said(reason.text))}")


def _advice(shown: Shown) -> None:
    found = calibrate_state.advice_of(shown)
    st.subheader(t("With the measured values"), anchor=False)
    if isinstance(found, PlanError):
        st.warning(words.plain(said(found.text)), icon=":material/block:")
        return
    st.markdown(words.plain(said(found.plan.reason)))
    if found.longest_tokens is not None:
        st.markdown(t("For the model's longest, {tokens} tokens:", tokens=words.count(found.longest_tokens)))
    for each in found.advice[:4]:
        st.markdown(f"- {watch_code(each.change)}: {words.plain(said(each.effect))}")
    if not found.advice and found.longest_tokens is not None:
        st.markdown(t("No single change makes it start."))


def watch_code(text: str) -> str:
    """`text` of ours as it is typed: its flag in code, the remark behind it in words."""
    head, bracket, rest = text.partition(" (")
    remark = words.plain(said(f"{bracket}{rest}".strip())) if bracket else ""
    return f"`{head.replace('`', '')}` {remark}".strip()


def all_of_them(found: Sequence[Dropped], gpu: str | None) -> None:
    """Where several starts were given: one press for all of them."""
    if len(found) < 2:
        return
    st.button(
        t("Calibrate with all {count} starts", count=len(found)),
        key=key("calibrate_all"),
        icon=":material/tune:",
        on_click=partial(calibrate_state.calibrate_all, found, gpu),
        help=t("Each by the model that its log names; several starts that agree are believed more than one."),
    )


def unread(dropped: Dropped, findings: tuple[Finding, ...]) -> None:
    """What of the log was not understood or not said: findings, and lines that look like memory lines."""
    lines, told = dropped.log.unread[:_MOST_UNREAD], (*dropped.log.findings, *findings)
    if not lines and not told:
        return
    with st.expander(
        t("Not said or not understood: {count}", count=len(dropped.log.unread) + len(told)),
        icon=":material/help:",
        key=key("unread"),
    ):
        for finding in told:
            st.markdown(f"{words.SEVERITY_ICONS[finding.severity]} {words.plain(said(finding.text))}")
        if lines:
            st.markdown(t("Lines:"))
        for line in lines:
            st.text(f"{line.number}: {line.text[:300]}")
