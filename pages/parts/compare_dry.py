"""The dry run: concurrency from 1 up on the Plan page's engine, the knee, and two flags with the reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import streamlit as st

from pages.parts import (
    compare_charts,
    compare_demand,
    compare_progress,
    compare_state,
    problems,
    report_compare,
    state,
    words,
)
from pages.parts.compare_job import CompareJob
from pages.parts.compare_request import USERS, CompareInput
from pages.parts.compare_state import key
from pages.parts.language import t
from pages.parts.said import said, sentence
from planner.answer import Plan
from planner.demand import Demand
from planner.dry_advice import Recommendation, recommend
from planner.dry_run import BATCHES, BatchTrial, Knee, Level, knee_of, levels_up_to, sweep_levels, try_batches
from planner.facts import PlanError
from planner.inventory import ModelFacts
from planner.latency import Percentiles
from planner.served_load import ServedLoad, resolved_integer

_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """All of a dry run: the levels, the knee, the batch sizes tried, what is recommended."""

    levels: tuple[Level, ...] = ()
    knee: Knee | None = None  # None before the sweep is over
    trials: tuple[BatchTrial, ...] = ()
    recommendations: tuple[Recommendation, ...] = ()


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
    work = partial(_made, answered.plan, answered.model, demand, asked.most_users)
    found: DryRun | None = compare_progress.result_of("dry", compare_state.job_of("dry", question, work), _so_far)
    if found is None:
        return
    if found.knee is None:
        st.info(t("Nothing was simulated before it was stopped."), icon=":material/info:")
        return
    levels, batches = level_rows(found.levels, found.knee), batch_rows(found.trials)
    tables = (levels.to_dict("records"), batches.to_dict("records"))
    report_compare.dry(answered.plan, found.levels, found.knee, found.recommendations, tables)
    _draw(found, found.knee)


def _made(present: Plan, model: ModelFacts, demand: Demand, most_users: int, job: CompareJob[DryRun]) -> DryRun:
    """The run, level by level, then the sizes of a batch at the knee; what there is when it is stopped."""
    numbers, levels = levels_up_to(most_users), list[Level]()
    for level in sweep_levels(present, model, demand, most_users, should_stop=job.should_stop):
        levels.append(level)
        fraction = 0.8 * len(levels) / len(numbers)
        job.note(fraction, f"{level.users:,} / {most_users:,}", DryRun(levels=tuple(levels)))
    if not levels:
        return DryRun()
    knee = knee_of(levels, most_preempted_fraction=demand.most_preempted_fraction)
    trials: list[BatchTrial] = []
    if not job.should_stop():
        for trial in try_batches(present.request, model, demand, knee.users, should_stop=job.should_stop):
            trials.append(trial)
            fraction = 0.8 + 0.2 * len(trials) / (len(BATCHES) + 1)
            job.note(fraction, f"--max-num-batched-tokens {trial.max_num_batched_tokens}", DryRun(levels=tuple(levels)))
    whole = trials if not job.should_stop() else []  # some sizes alone recommend nothing
    advice = recommend(
        knee,
        whole,
        max_num_seqs=resolved_integer(present, "max_num_seqs"),
        most_preempted_fraction=demand.most_preempted_fraction,
    )
    return DryRun(levels=tuple(levels), knee=knee, trials=tuple(whole), recommendations=advice)


def _so_far(found: DryRun) -> None:
    """The curve as the levels come."""
    if found.levels:
        figure = compare_charts.throughput(found.levels, None)
        st.plotly_chart(figure, key=key("dry_so_far"), config=_QUIET_CHART, alt=t("Throughput so far"))


def _draw(found: DryRun, knee: Knee) -> None:
    title = t("No knee yet:") if knee.is_open else t("The knee is at {users} users:", users=words.count(knee.users))
    st.markdown(f":material/flag: **{title}** {words.plain(said(knee.reason))}")
    for advice in found.recommendations:
        with st.container(border=True):
            kept = f" · {t('keep it')}" if advice.is_kept else ""
            st.markdown(f"`{words.flag_name(advice.flag)} {advice.value}`{kept}")
            st.caption(words.plain(sentence(advice.reason)))
            if advice.trade:
                st.caption(f":material/swap_horiz: {words.plain(sentence(advice.trade))}")
    _charts(found, knee)
    st.dataframe(level_rows(found.levels, knee), hide_index=True, height="content", alt=t("Each level of the sweep"))
    st.caption(
        t(
            "Simulated: every user sends the next request when the last is served, all start at once. The time of a step is a "
            "roofline of the card's bandwidth and speed, not a measurement."
        )
    )
    st.caption(
        t(
            "First token: from sending a request, so with its time in the queue and all of its prefill. Between tokens: over "
            "all tokens after the first, preemptions with them. Network and tokenisation are not counted."
        )
    )
    with st.expander(t("Sizes of a batch that were tried"), icon=":material/table:", key=key("dry_batches")):
        st.dataframe(batch_rows(found.trials), hide_index=True, height="content", alt=t("Each size of a batch"))


def _charts(found: DryRun, knee: Knee) -> None:
    left, right = st.columns(2, gap="medium")
    drawn = (
        (
            left,
            t("Tokens a second, all users together"),
            "throughput",
            compare_charts.throughput_alt(found.levels, knee),
        ),
        (right, t("Pool used and users that wait"), "pool", compare_charts.pool_alt(found.levels)),
        (left, t("Time to the first token"), "first_token", compare_charts.first_token_alt(found.levels)),
        (right, t("Time between tokens"), "between_tokens", compare_charts.between_tokens_alt(found.levels)),
    )
    for column, title, name, alt in drawn:
        with column:
            st.markdown(f"**{title}**")
            figure = compare_charts.FIGURES[name](found.levels, knee.users)
            st.plotly_chart(figure, key=key(f"dry_{name}"), config=_QUIET_CHART, alt=alt)


def latency_words(load: ServedLoad | None, name: str) -> str:
    """The p50 and p99 of a wait of `load`: "first_token" or "between_tokens"."""
    found: Percentiles | None = None if load is None else getattr(load.latency, name)
    if found is None or not found.num_samples:
        return "–"
    return f"{compare_charts.wait_words(found.p50_seconds)} / {compare_charts.wait_words(found.p99_seconds)}"


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
                t("First token, p50 / p99"): latency_words(level.load, "first_token"),
                t("Between tokens, p50 / p99"): latency_words(level.load, "between_tokens"),
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
                "--max-num-batched-tokens": f"{words.count(trial.max_num_batched_tokens)}{' ●' if trial.is_present else ''}",
                t("Pool, tokens"): words.count(trial.pool_tokens),
                t("Preemptions"): "–" if trial.load is None else words.count(trial.load.num_preemptions),
                t("Longest step"): "–" if trial.load is None else f"{1000 * trial.load.longest_step_seconds:.0f} ms",
                t("First token, p50 / p99"): latency_words(trial.load, "first_token"),
                t("Between tokens, p50 / p99"): latency_words(trial.load, "between_tokens"),
                t("Tokens a second"): "–" if trial.load is None else f"{trial.load.output_tokens_per_second:,.0f}",
                t("Why not"): words.plain(said(trial.refusal)) or "–",
            }
            for trial in trials
        ]
    )
