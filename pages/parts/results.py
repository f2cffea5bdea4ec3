"""The answer, top to bottom: verdict, what to change, the card part by part, capacity, what-ifs, command, details."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from pages.parts import charts, downloads, state, tables, words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.state import Answer, key
from planner.answer import Advice, Plan, RankPlan
from planner.facts import Finding, PlanError

_FIRST_ADVICE = 3  # shown at once; the rest is folded away
_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}


def verdict(plan: Plan) -> None:
    """Whether vLLM starts, in words and with a sign, and the four figures that people ask for."""
    colour, icon = ("green", "check_circle") if plan.will_start else ("red", "cancel")
    st.caption(words.plain(words.subject(plan)))
    st.header(f":{colour}[:material/{icon}:] {words.verdict(plan)}", anchor=False)
    st.markdown(words.plain(said(plan.reason)))
    if plan.pool.groups:
        _metrics(plan)
    else:
        st.caption(t("This model keeps no KV cache: requests are bounded by max\\_num\\_seqs alone."))


def _metrics(plan: Plan) -> None:
    pool, low, high = plan.pool, plan.pool_low, plan.pool_high
    estimate = plan.ranks[plan.bounding_rank].kv_pool
    with st.container(horizontal=True, gap="small"):
        _metric(
            t("Requests of {max_model_len} tokens", max_model_len=words.count(pool.max_model_len)),
            words.concurrency(pool.max_concurrency),
            words.concurrency_band(low.max_concurrency, high.max_concurrency),
            t(
                "How many requests of the longest length run at once. vLLM logs this as “Maximum concurrency”. Exactly "
                "{max_concurrency}.",
                max_concurrency=f"{pool.max_concurrency:.6g}",
            ),
        )
        _metric(
            t("KV cache tokens"),
            words.count(pool.tokens),
            words.count_band(low.tokens, high.tokens),
            t("Tokens that the pool holds over all requests. vLLM logs this as “GPU KV cache size”."),
        )
        _metric(
            t("KV blocks"),
            words.count(pool.num_blocks),
            words.count_band(low.num_blocks, high.num_blocks),
            t(
                "Blocks of {block_size} tokens, {bytes_per_block} each.",
                block_size=words.count(pool.block_size),
                bytes_per_block=words.exact_bytes(pool.bytes_per_block),
            ),
        )
        _metric(
            t("KV cache pool"),
            words.gib(estimate.best_bytes),
            words.band(estimate),
            words.estimate_help(estimate),
        )


def _metric(label: str, shown: str, band: str, explanation: str) -> None:
    st.metric(label, shown, band, delta_color="off", delta_arrow="off", border=True, help=explanation, width="stretch")


def changes(plan: Plan) -> None:
    """What makes a failing plan start, each change with a button that makes it; vLLM's own words below."""
    if plan.advice:
        st.subheader(t("What would serve more") if plan.will_start else t("What to change"), anchor=False)
        for index, advice in enumerate(plan.advice[:_FIRST_ADVICE]):
            _advice(index, advice)
    if plan.advice[_FIRST_ADVICE:]:
        with st.expander(t("{count} more ways", count=len(plan.advice) - _FIRST_ADVICE), key=key("more_advice")):
            for index, advice in enumerate(plan.advice[_FIRST_ADVICE:], _FIRST_ADVICE):
                _advice(index, advice)
    if plan.vllm_error:
        with st.expander(t("What vLLM would print"), icon=":material/terminal:", key=key("vllm_error")):
            st.code(plan.vllm_error, language=None, wrap_lines=True)


def _advice(index: int, advice: Advice) -> None:
    with st.container(border=True, horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        with st.container(gap=None):
            st.markdown(f"**{words.plain(said(advice.change))}**")
            st.caption(words.plain(said(advice.effect)))
        if advice.flag is not None and state.has_field(advice.flag):
            st.button(
                t("Apply"),
                key=key(f"apply_{index}"),
                help=t("Set {flag} in the form", flag=words.plain(words.flag_name(advice.flag))),
                on_click=state.apply_flag,
                args=(advice.flag, advice.value),
            )


def findings(found: Sequence[Finding]) -> None:
    """What the reader must know, gravest first; notes are folded away."""
    grave = [finding for finding in found if finding.severity != "info"]
    notes = [finding for finding in found if finding.severity == "info"]
    for finding in sorted(grave, key=lambda finding: finding.severity != "refusal"):
        draw = st.error if finding.severity == "refusal" else st.warning
        text = f"**{words.plain(words.finding_title(finding))}.** {words.plain(said(finding.text))}"
        draw(text, icon=words.SEVERITY_ICONS[finding.severity])
    if notes:
        with st.expander(t("Notes on this plan ({count})", count=len(notes)), icon=":material/info:", key=key("notes")):
            for finding in notes:
                name = f"**{words.plain(words.flag_name(finding.field))}:** " if finding.field else ""
                st.markdown(f"- {name}{words.plain(said(finding.text))}")


def budget(plan: Plan) -> None:
    """The card part by part; with stages that differ, all of them and one in detail."""
    st.subheader(t("Where the card's memory goes"), anchor=False)
    rank = plan.ranks[plan.bounding_rank]
    if len(plan.ranks) > 1:
        st.caption(t("One card of each pipeline stage; the fullest one sets the pool for all."))
        bars = charts.rank_bars(plan, is_dark=state.is_dark())
        st.plotly_chart(bars, key=key("rank_bars"), config=_QUIET_CHART, alt=charts.ranks_alt(plan))
        rank = _chosen_rank(plan)
    figure = charts.budget_waterfall(rank)
    st.plotly_chart(figure, key=key("waterfall"), config=_QUIET_CHART, alt=charts.budget_alt(rank))
    st.caption(
        t(
            "Each bar starts where the one above ends. Thin lines are 90 % bands; hatched parts lie outside vLLM's "
            "share. Hover for the formula with its numbers, or open the table."
        )
    )
    with st.expander(t("Every part exactly"), icon=":material/table:", key=key("exact")):
        lines = charts.ordered_lines(rank)
        _table(tables.line_rows(lines), t("Every part of the card with exact bytes, band and source"))
        _table(tables.role_rows(rank), t("The weights of the card by what they are for"))


def host(plan: Plan) -> None:
    """What the host's memory must hold, over all cards; nothing when no flag asks for it."""
    if plan.host:
        st.subheader(t("In the host's memory"), anchor=False)
        _table(tables.line_rows(plan.host), t("Parts in the host's memory, over all cards"))


def _chosen_rank(plan: Plan) -> RankPlan:
    """The stage that the reader looks at: first the one that sets the pool."""
    stages = [rank.pp_rank for rank in plan.ranks]
    chosen = st.segmented_control(
        t("Stage in detail"),
        stages,
        key=key(f"stage_of_{len(stages)}"),
        default=plan.bounding_rank,
        required=True,
        format_func=lambda stage: t("Stage {stage}", stage=stage),
    )
    return plan.ranks[plan.bounding_rank if chosen is None else chosen]


def capacity(answered: Answer) -> None:
    """Blocks, bytes, groups, and how many requests run at the length that the reader expects."""
    plan, pool = answered.plan, answered.plan.pool
    if not pool.groups:
        return
    st.subheader(t("What the pool holds"), anchor=False)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _table(tables.capacity_rows(plan), t("Figures of the KV cache pool"))
    with right:
        _mean_length(answered)
    _table(tables.group_rows(pool), t("KV cache groups"))


def _mean_length(answered: Answer) -> None:
    pool = answered.plan.pool
    length = st.number_input(
        t("Mean length of your requests, tokens"),
        min_value=1,
        value=None,
        step=256,
        key=key("mean_length_tokens"),
        placeholder=t("prompt and answer together"),
        help=t("Requests seldom reach the longest length: this many run at once at their mean."),
        persist_state="session",
    )
    if length is None:
        st.caption(t("Give a length to see how many such requests run at once."))
        return
    times = state.concurrency_at(answered, min(length, pool.max_model_len))
    st.metric(
        t("Requests of {length} tokens", length=words.count(min(length, pool.max_model_len))),
        words.concurrency(times),
        border=True,
        help=t(
            "Blocks of the pool over blocks of one such request. Exactly {times}. max\\_num\\_seqs caps it.",
            times=f"{times:.6g}",
        ),
    )


def what_ifs(answered: Answer) -> None:
    """Four small tables: one flag changed, the rest as it is."""
    st.subheader(t("What if"), anchor=False)
    found = state.cached_what_ifs(answered)
    for pair in (found[:2], found[2:]):
        for column, table in zip(st.columns(2, gap="medium"), pair, strict=True):
            with column:
                st.markdown(f"**{said(table.title)}**  \n`{words.flag_name(table.flag)}`")
                _table(tables.what_if_rows(table), t("{title}: what changes with the flag", title=said(table.title)))


def by_length(answered: Answer) -> None:
    """How many requests run at once by their length."""
    slices = state.cached_sweep(answered) if answered.plan.pool.groups else ()
    if not any(part.refusal is None for part in slices):
        return
    st.markdown(f"**{t('Requests at once, by their length')}**")
    figure = charts.length_curves(slices, answered.plan.pool.max_model_len)
    st.plotly_chart(figure, key=key("by_length"), config=_QUIET_CHART, alt=charts.length_alt(slices))
    st.caption(
        t("Both axes are logarithmic. A line ends where one request no longer fits; the dotted line is this plan.")
    )


def share(answered: Answer) -> None:
    """The command to run, the link that brings this plan back, and the plan as files."""
    plan = answered.plan
    st.subheader(t("Run it, share it"), anchor=False)
    st.code(plan.serve_command, language="bash", wrap_lines=True)
    _link(answered)
    stem = downloads.file_stem(plan)
    with st.container(horizontal=True):
        _download("JSON", downloads.plan_json(plan, answered.model), f"{stem}.json", "application/json")
        _download("CSV", downloads.lines_csv(plan), f"{stem}.csv", "text/csv")


def _link(answered: Answer) -> None:
    try:
        address = state.link(answered.request)
    except PlanError as problem:
        st.info(words.plain(said(problem.text)), icon=":material/link_off:")
        return
    has_more = answered.request.config_json is not None and answered.documents.tensors is not None
    st.caption(
        t("The link holds config.json and the flags; weight headers read from the file do not travel with it.")
        if has_more
        else t("The link holds the whole request: whoever opens it sees this plan.")
    )
    st.code(address, language=None, wrap_lines=True)


def _download(label: str, content: str, file_name: str, mime: str) -> None:
    st.download_button(
        label,
        content,
        file_name,
        mime,
        key=key(f"download_{label}"),
        icon=":material/download:",
        on_click="ignore",
    )


def resolved(plan: Plan) -> None:
    """Every flag as vLLM resolves it for this release, card and usage."""
    given = sum(default.is_given for default in plan.resolved)
    title = t(
        "How vLLM resolves its flags ({given} given, {defaults} defaults)",
        given=given,
        defaults=len(plan.resolved) - given,
    )
    with st.expander(title, icon=":material/tune:", key=key("resolved")):
        _table(tables.resolved_rows(plan.resolved), t("Flags as vLLM resolves them"))


def _table(rows: list[tables.Row], alt: str) -> None:
    if not rows:
        return
    frame = pd.DataFrame(rows)
    formats: dict[Any, Any] = {
        said(column): tables.FORMATS[column] for column in frame.columns if column in tables.FORMATS
    }  # as pandas types them
    frame.columns = pd.Index([said(column) for column in frame.columns])
    st.table(frame.style.format(formats, na_rep="–"), border="horizontal", hide_index=True, alt=alt)
