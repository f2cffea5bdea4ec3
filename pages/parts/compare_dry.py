"""The dry run: concurrency from 1 up on the Plan page's engine, the knee, and two flags with the reason."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd
import streamlit as st

from pages.parts import compare_charts, compare_demand, compare_state, problems, report_compare, state, words
from pages.parts.compare_request import USERS, CompareInput
from pages.parts.compare_state import key
from pages.parts.language import t
from pages.parts.said import said, sentence
from planner.demand import Demand
from planner.dry_run import (
    BatchTrial,
    Knee,
    Level,
    Recommendation,
    knee_of,
    levels_up_to,
    recommend,
    sweep_levels,
    try_batches,
)
from planner.facts import PlanError

_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """All of a dry run: the levels, the knee, the batch sizes tried, what is recommended."""

    levels: tuple[Level, ...]
    knee: Knee
    trials: tuple[BatchTrial, ...]
    recommendations: tuple[Recommendation, ...]


def view(asked: CompareInput) -> None:
    """Draw the form, what the levels come to, and what to set."""
    problem, demand = None, None
    try:
        demand = compare_demand.demand_of(replace(asked, load=USERS, users=1))
        levels_up_to(asked.most_users)
    except PlanError as error:
        problem = error
    with st.sidebar:
        st.subheader(t("The load"), anchor=False)
        compare_demand.lengths_form(problem)
        st.number_input(
            t("Users at most"),
            key=key("most_users"),
            step=1,
            help=t("The sweep goes from 1 to so many users, each with one request under way."),
            persist_state="session",
        )
        problems.say(problem, "most_users")
        compare_demand.preempted_form(problem)
    st.header(t("Dry run: more and more users"), anchor=False)
    answered = state.answer()
    problem = answered if isinstance(answered, PlanError) else problem
    if problem is not None or demand is None or isinstance(answered, PlanError):
        st.error(words.plain(said(problem.text if problem else "")), icon=":material/error:")
        return
    st.caption(words.plain(words.subject(answered.plan)))
    if not answered.plan.will_start:
        st.error(words.plain(said(answered.plan.reason)), icon=":material/cancel:")
        return
    _run(asked, answered, demand)


def _run(asked: CompareInput, answered: state.Answer, demand: Demand) -> None:
    question = (answered.digest, answered.request, demand, asked.most_users)
    found: DryRun | None = compare_state.held_run("dry", question)
    if found is None:
        try:
            found = _made(asked, answered, demand)
        except PlanError as error:
            st.error(words.plain(said(error.text)), icon=":material/error:")
            return
        compare_state.hold_run("dry", question, found)
    levels, batches = level_rows(found.levels, found.knee), batch_rows(found.trials)
    tables = (levels.to_dict("records"), batches.to_dict("records"))
    report_compare.dry(answered.plan, found.levels, found.knee, found.recommendations, tables)
    _draw(found)


def _made(asked: CompareInput, answered: state.Answer, demand: Demand) -> DryRun:
    """The run, with its curves drawn as the levels come."""
    bar, chart = st.empty(), st.empty()
    total, levels = len(levels_up_to(asked.most_users)), []
    for level in sweep_levels(answered.plan, answered.model, demand, asked.most_users):
        levels.append(level)
        bar.progress(len(levels) / (total + 1), text=t("{users} users", users=words.count(level.users)))
        chart.plotly_chart(compare_charts.throughput(levels, None), config=_QUIET_CHART, alt=t("Throughput so far"))
    knee = knee_of(levels, most_preempted_fraction=demand.most_preempted_fraction)
    bar.progress(total / (total + 1), text=t("Trying sizes of a batch"))
    trials = tuple(try_batches(answered.request, answered.model, demand, knee.users))
    bar.empty()
    chart.empty()
    return DryRun(levels=tuple(levels), knee=knee, trials=trials, recommendations=recommend(knee, trials))


def _draw(found: DryRun) -> None:
    knee = found.knee
    title = t("No knee yet:") if knee.is_open else t("The knee is at {users} users:", users=words.count(knee.users))
    st.markdown(f":material/flag: **{title}** {words.plain(said(knee.reason))}")
    for advice in found.recommendations:
        with st.container(border=True):
            st.markdown(f"`{words.flag_name(advice.flag)} {advice.value}`")
            st.caption(words.plain(sentence(advice.reason)))
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown(f"**{t('Tokens a second, all users together')}**")
        figure = compare_charts.throughput(found.levels, knee.users)
        st.plotly_chart(
            figure,
            key=key("dry_throughput"),
            config=_QUIET_CHART,
            alt=compare_charts.throughput_alt(found.levels, knee),
        )
    with right:
        st.markdown(f"**{t('Pool used and users that wait')}**")
        figure = compare_charts.pool(found.levels, knee.users)
        st.plotly_chart(figure, key=key("dry_pool"), config=_QUIET_CHART, alt=compare_charts.pool_alt(found.levels))
    st.dataframe(level_rows(found.levels, knee), hide_index=True, height="content", alt=t("Each level of the sweep"))
    st.caption(
        t(
            "Simulated: every user sends the next request when the last is served, all start at once. The time of a step is a "
            "roofline of the card's bandwidth and speed, not a measurement."
        )
    )
    with st.expander(t("Sizes of a batch that were tried"), icon=":material/table:", key=key("dry_batches")):
        st.dataframe(batch_rows(found.trials), hide_index=True, height="content", alt=t("Each size of a batch"))


def level_rows(levels: tuple[Level, ...], knee: Knee) -> pd.DataFrame:
    """One row a level, the knee marked."""
    return pd.DataFrame(
        [
            {
                t("Users"): f"{words.count(level.users)}{' ⚑' if level.users == knee.users else ''}",
                t("Run, mean"): f"{level.load.mean_running:.1f}",
                t("Wait, mean"): f"{level.load.mean_waiting:.1f}",
                t(
                    "Pool used, mean / peak"
                ): f"{100 * level.load.mean_used_fraction:.0f} / {100 * level.load.peak_used_fraction:.0f} %",
                t("Preemptions"): f"{level.load.num_preemptions:,} / {level.load.num_finished:,}",
                t(
                    "Step, mean / longest"
                ): f"{1000 * level.load.mean_step_seconds:.1f} / {1000 * level.load.longest_step_seconds:.0f} ms",
                t("Tokens a second"): f"{level.load.output_tokens_per_second:,.0f}",
            }
            for level in levels
        ]
    )


def batch_rows(trials: tuple[BatchTrial, ...]) -> pd.DataFrame:
    """One row a size of a batch."""
    return pd.DataFrame(
        [
            {
                "--max-num-batched-tokens": words.count(trial.max_num_batched_tokens),
                t("Pool, tokens"): words.count(trial.pool_tokens),
                t("Preemptions"): "–" if trial.load is None else words.count(trial.load.num_preemptions),
                t("Longest step"): "–" if trial.load is None else f"{1000 * trial.load.longest_step_seconds:.0f} ms",
                t("Tokens a second"): "–" if trial.load is None else f"{trial.load.output_tokens_per_second:,.0f}",
                t("Why not"): words.plain(said(trial.refusal)) or "–",
            }
            for trial in trials
        ]
    )
