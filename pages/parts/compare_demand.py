"""The form of a load, in the sidebar: lengths by percentiles, users or arrivals, and what may be preempted."""

from __future__ import annotations

import streamlit as st

from pages.parts import compare_request, problems
from pages.parts.compare_request import RATE, USERS, CompareInput
from pages.parts.compare_state import key
from pages.parts.language import t
from planner.demand import Demand, Lengths
from planner.facts import PlanError


def demand_of(asked: CompareInput) -> Demand:
    """The load that the form describes; raises `PlanError` at the field that makes none."""
    is_rate = asked.load == RATE
    return Demand(
        prompt=Lengths(
            name="prompt", p50_tokens=asked.prompt_p50, p95_tokens=asked.prompt_p95, p99_tokens=asked.prompt_p99
        ),
        output=Lengths(
            name="output", p50_tokens=asked.output_p50, p95_tokens=asked.output_p95, p99_tokens=asked.output_p99
        ),
        prefix_tokens=asked.prefix_tokens,
        users=None if is_rate else asked.users,
        requests_per_second=asked.rate if is_rate else None,
        most_preempted_fraction=asked.most_preempted_percent / 100,
    )


def lengths_form(problem: PlanError | None) -> None:
    """Draw the percentiles of prompt and output, and the shared prefix."""
    for name, title in (("prompt", t("Prompt, tokens")), ("output", t("Output, tokens"))):
        st.markdown(f"**{title}**")
        fields = [f"{name}_{percentile}" for percentile in ("p50", "p95", "p99")]
        for column, field in zip(st.columns(3, gap="small"), fields, strict=True):
            with column:
                st.number_input(field.rsplit("_", 1)[-1], key=key(field), step=1, persist_state="session")
        problems.say(problem, *fields)
    st.number_input(
        t("Shared prefix, tokens"),
        key=key("prefix_tokens"),
        step=128,
        help=t("A system prompt that all requests begin with, on top of the prompt's own length. 0: none."),
        persist_state="session",
    )
    problems.say(problem, "prefix_tokens")


def load_form(asked: CompareInput, problem: PlanError | None) -> None:
    """Draw how many come, at once or a second, and how many may be preempted."""
    st.segmented_control(
        t("Workload"),
        compare_request.LOADS,
        key=key("load"),
        required=True,
        format_func={USERS: t("Users at once"), RATE: t("Requests a second")}.__getitem__,
        width="stretch",
        label_visibility="collapsed",
        persist_state="session",
    )
    if asked.load == USERS:
        explained = t("Each user has one request under way, and sends the next when it is served.")
        st.number_input(t("Users at once"), key=key("users"), step=1, help=explained, persist_state="session")
        problems.say(problem, "users")
    else:
        explained = t("They arrive by chance (Poisson); how many are under way follows from how fast they are served.")
        st.number_input(
            t("Requests a second"), key=key("rate"), step=0.5, format="%g", help=explained, persist_state="session"
        )
        problems.say(problem, "requests_per_second")
    preempted_form(problem)


def preempted_form(problem: PlanError | None) -> None:
    """Draw how many requests may be preempted."""
    st.number_input(
        t("Preempted at most, %"),
        key=key("most_preempted_percent"),
        step=0.5,
        format="%g",
        help=t("Preemptions for each hundred requests served. 0: none at all."),
        persist_state="session",
    )
    problems.say(problem, "most_preempted_fraction")
