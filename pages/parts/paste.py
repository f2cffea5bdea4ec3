"""A pasted vllm serve, docker or YAML text fills the form; a pasted error line is explained against the plan."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from pages.parts import state, words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.state import key
from planner.answer import Plan
from planner.command_line import ParsedCommand, parse_command
from planner.error_lines import ErrorReading, explain, read_error
from planner.facts import Finding, PlanError
from planner.versions import NEWEST

_EXAMPLE = "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 --max-model-len 32k"


@dataclass(frozen=True, slots=True, kw_only=True)
class PasteReport:
    """What came of the last paste: the fields filled, what was not understood, or the error line's numbers."""

    num_fields: int = 0
    findings: tuple[Finding, ...] = ()
    error: ErrorReading | None = None
    problem: str = ""


def paste_input() -> None:
    """Draw the place to paste into; what came of it stands beside the plan."""
    with st.expander(t("Paste a command or an error"), icon=":material/content_paste:", key=key("group_paste")):
        st.text_area(
            t("vllm serve, docker run, a YAML args file, or vLLM's error line"),
            key=key("paste"),
            placeholder=_EXAMPLE,
            height=140,
            persist_state="session",
        )
        st.button(t("Read it"), key=key("paste_read"), icon=":material/input:", on_click=_read, width="stretch")
        report: PasteReport | None = state.value("paste_report")
        if report is not None:
            st.caption(words.plain(_summary(report)))


def paste_report(plan: Plan | None) -> None:
    """Draw what the last paste led to, until it is dismissed."""
    report: PasteReport | None = state.value("paste_report")
    if report is None or not (report.error or report.problem or _not_said_by(plan, report.findings)):
        return
    with st.container(border=True, key=key("paste_box")):
        st.markdown(f"**{t('From what you pasted')}**")
        if report.problem:
            st.markdown(f":material/error: {words.plain(said(report.problem))}")
        for finding in _not_said_by(plan, report.findings):
            st.markdown(f"{words.SEVERITY_ICONS[finding.severity]} {words.plain(said(finding.text))}")
        if report.error is not None and plan is None:
            st.markdown(t("An error of vLLM's: it can be explained once the form makes a plan."))
        elif report.error is not None and plan is not None:
            for sentence in explain(report.error, plan):
                st.markdown(f"- {words.plain(said(sentence))}")
        st.button(t("Dismiss"), key=key("paste_dismiss"), type="tertiary", icon=":material/close:", on_click=_dismiss)


def _not_said_by(plan: Plan | None, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings that the plan itself does not make."""
    known = set() if plan is None else {(finding.code, finding.field) for finding in plan.findings}
    return tuple(finding for finding in findings if (finding.code, finding.field) not in known)


def _dismiss() -> None:
    state.keep("paste_report", None)


def _read() -> None:
    """Read the pasted text as an error line or as a command, and keep what came of it."""
    text = (state.value("paste") or "").strip()
    if not text:
        state.keep("paste_report", None)
        return
    error = read_error(text)
    state.keep("paste_report", PasteReport(error=error) if error is not None else _read_command(text))


def _read_command(text: str) -> PasteReport:
    try:
        parsed = parse_command(text, state.value("vllm_version") or NEWEST)
        findings = (*parsed.findings, *_card_note(parsed))
        if not parsed.fields:
            return PasteReport(findings=findings)
        state.fill(parsed.apply(state.request_or_first()))
    except PlanError as problem:
        return PasteReport(problem=problem.text)
    return PasteReport(num_fields=len(parsed.fields), findings=findings)


def _card_note(parsed: ParsedCommand) -> tuple[Finding, ...]:
    """The cards that a container is given, when they are fewer or more than the flags use."""
    if parsed.num_cards is None:
        return ()
    fields = dict(parsed.fields)
    used = int(str(fields.get("tensor_parallel_size", 1))) * int(str(fields.get("pipeline_parallel_size", 1)))
    if used == parsed.num_cards:
        return ()
    text = t(
        "The container is given {num_cards} cards, and one engine of these flags uses {used}.",
        num_cards=parsed.num_cards,
        used=used,
    )
    return (Finding(code="cards-differ", severity="info", text=text),)


def _summary(report: PasteReport) -> str:
    if report.error is not None:
        return t("An error line of vLLM's: explained beside the plan.")
    if report.problem:
        return t("The form is unchanged: see beside the plan.")
    settings = (
        t("{num_fields} settings filled in.", num_fields=words.count(report.num_fields))
        if report.num_fields
        else t("Nothing filled in.")
    )
    return (
        t("{settings} {findings} remarks beside the plan.", settings=settings, findings=len(report.findings))
        if report.findings
        else settings
    )
