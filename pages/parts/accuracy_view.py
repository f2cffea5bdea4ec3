"""The Accuracy page, top to bottom: one sentence, filters, every start, bands, errors, verdicts, the worst, what was left out, peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from pages.parts import accuracy_charts, accuracy_state, accuracy_words, words
from pages.parts.accuracy_state import key, value
from pages.parts.language import mark, t
from pages.parts.said import said
from planner.overhead_support import thin_constants
from planner.peers import peer_figures
from planner.score import Scored
from planner.score_record import AccuracyRecord
from planner.score_stats import band_coverage, quantile, relative_errors, verdict_table

_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}
_FIELD_WORDS = {
    "group": mark("Group"),
    "family": mark("Architecture"),
    "era": mark("vLLM"),
    "card": mark("Card"),
    "parallel": mark("Tensor parallelism"),
}
_RULE_WORDS = {"all": mark("As the rules stand"), "left_out": mark("Own model left out")}
_VIEW_WORDS = {"pools": mark("Predicted against logged"), "errors": mark("Error by pool")}


def filters(rows: Sequence[Scored]) -> None:
    """Which starts count: groups, architectures, releases, cards, tensor parallelism."""
    st.subheader(t("Which starts"), anchor=False)
    for field in accuracy_state.FIELDS:
        st.multiselect(
            said(_FIELD_WORDS[field]),
            accuracy_state.options(rows, field),
            key=key(field),
            placeholder=t("all"),
            format_func=accuracy_words.group_name if field == "group" else said,
            persist_state="session",
        )
    st.button(
        t("Show all"),
        key=key("clear"),
        on_click=accuracy_state.clear_filters,
        disabled=not accuracy_state.is_filtered(),
    )
    st.segmented_control(
        t("Rules"),
        list(_RULE_WORDS),
        key=key("rules"),
        default="all",
        required=True,
        format_func=lambda each: said(_RULE_WORDS[each]),
        help=t(
            "Left out: what is fitted to logs was refitted without each start's own model, where other models share it."
        ),
    )


def headline(rows: Sequence[Scored]) -> None:
    """How right the planner is: one sentence and its figures."""
    st.header(t("How close predictions were"), anchor=False)
    st.markdown(words.plain(accuracy_words.headline(rows)))
    errors, band, found = relative_errors(rows, "kv_pool"), band_coverage(rows), verdict_table(rows)
    percent = accuracy_words.percent
    with st.container(horizontal=True, gap="small"):
        _metric(t("Median error"), percent(quantile(errors, 0.5)), t("Of the logged KV cache pool."))
        _metric(
            t("Nine of ten within"),
            percent(quantile(errors, 0.9)),
            t("Small pools on full cards weigh most here."),
        )
        _metric(
            t("In the band"),
            percent(band.fraction),
            t("The 90 % band holds {inside} of {starts} pools.", inside=band.inside, starts=band.rows),
        )
        _metric(
            t("Half-width"),
            percent(band.median_half_width),
            t(
                "Of the 90 % band, in percent of the pool, median: a band that is too wide says nothing. The mean is {mean}, or {of_card} of the card: "
                "nearly empty pools weigh most in it.",
                mean=percent(band.mean_half_width),
                of_card=percent(band.half_width_of_card),
            ),
        )
        _metric(
            t("Failures foreseen"),
            t("{caught} of {all}", caught=found.failures_predicted, all=found.failures),
            t(
                "Starts that failed on memory. {alarms} of {starts} starts were called failures wrongly.",
                alarms=found.false_alarms,
                starts=found.starts,
            ),
        )
    st.caption(
        t(
            "The constants were fitted to these same logs; on a card or release that none covers a plan can be further off."
        )
        + " "
        + t("“Own model left out” shows what is left of the accuracy on a model that the rules have not seen.")
    )


def _metric(label: str, shown: str, explanation: str) -> None:
    st.metric(label, shown, border=True, help=words.plain(explanation), width="stretch")


def starts(rows: Sequence[Scored]) -> None:
    """Every start: a figure, and a table with the source of each."""
    st.subheader(t("Every start"), anchor=False)
    st.segmented_control(
        t("Shown as"),
        list(_VIEW_WORDS),
        key=key("view"),
        default="pools",
        required=True,
        label_visibility="collapsed",
        format_func=lambda each: said(_VIEW_WORDS[each]),
    )
    is_errors = value("view") == "errors"
    figure = accuracy_charts.errors(rows) if is_errors else accuracy_charts.pools(rows)
    left, right = st.columns([1, 1], gap="medium")
    with left:
        st.plotly_chart(figure, key=key("chart"), config=_QUIET_CHART, alt=accuracy_charts.alt(rows))
        st.caption(t("Hover a point for its start and source. Both axes are logarithmic."))
    with right:
        _start_table(rows)


def _start_table(rows: Sequence[Scored]) -> None:
    frame = pd.DataFrame(accuracy_words.start_rows(rows))
    if frame.empty:
        st.info(t("No start of these logs a KV cache pool."), icon=":material/info:")
        return
    st.dataframe(
        frame,
        key=key("table"),
        hide_index=True,
        height=450,
        column_config={
            t("Start"): st.column_config.TextColumn(width="medium", pinned=True),
            t("Source"): st.column_config.TextColumn(width="medium"),
            t("Link"): st.column_config.LinkColumn(display_text=t("log")),
            t("Logged, GiB"): st.column_config.NumberColumn(format="%.2f"),
            t("Predicted, GiB"): st.column_config.NumberColumn(format="%.2f"),
            t("Error, %"): st.column_config.NumberColumn(format="%.2f"),
        },
        alt=t("Every start with its logged and predicted pool, the error and its source"),
    )
    st.caption(accuracy_words.source_note(rows))


def bands(rows: Sequence[Scored]) -> None:
    """Whether the 90 % band holds what it says, and how wide it is."""
    st.subheader(t("The 90 % band"), anchor=False)
    _table(accuracy_words.band_rows(rows), t("How often the band holds the logged pool, by group"))


def quantities(rows: Sequence[Scored]) -> None:
    """Errors of everything that the logs print, and splits of them."""
    st.subheader(t("Error by quantity"), anchor=False)
    _table(accuracy_words.quantity_rows(rows), t("Errors of each logged quantity"))
    with st.expander(t("By architecture, release, card and parallelism"), icon=":material/table:", key=key("splits")):
        for field in ("family", "era", "card", "parallel"):
            title = said(_FIELD_WORDS[field])
            frame = pd.DataFrame(accuracy_words.split_rows(rows, title, accuracy_state.FIELDS[field]))
            st.dataframe(frame, key=key(f"by_{field}"), hide_index=True, alt=title)


def verdicts(rows: Sequence[Scored]) -> None:
    """Starts and failures, as logged and as predicted."""
    st.subheader(t("Will it start?"), anchor=False)
    _table(accuracy_words.verdict_rows(verdict_table(rows)), t("Logged against predicted starts and failures"))


def worst(rows: Sequence[Scored]) -> None:
    """The ten starts that are furthest off, each with what is known of why."""
    st.subheader(t("The ten furthest off"), anchor=False)
    _table(accuracy_words.worst_rows(rows), t("The ten largest errors with their causes"))


def left_out(found: AccuracyRecord) -> None:
    """What the accuracy is on models that the rules have not seen."""
    st.subheader(t("With each model left out"), anchor=False)
    st.caption(
        t(
            "What is fitted to logs, refitted on the other models' starts of the same constants; each model counts once in the fit."
        )
    )
    _table(accuracy_words.left_out_rows(found.left_out), t("Errors with each model left out"))
    _table(accuracy_words.band_rows(found.left_out), t("The band with each model left out"))


def thin() -> None:
    """The constants that a single start or model supports."""
    found = thin_constants()
    title = t("Constants that one start or one model supports ({number})", number=len(found))
    with st.expander(title, icon=":material/warning:", key=key("thin")):
        st.caption(
            t("A plan that rests on one of these says so at its number; its band is wide, and it can still be off.")
        )
        st.markdown("\n".join(f"- {line}" for line in accuracy_words.constant_lines(found)))


def skipped(found: AccuracyRecord) -> None:
    """The starts that could not be predicted, and why."""
    rows = accuracy_words.skipped_rows(found.scored)
    title = t("Starts that were not predicted ({number})", number=len(rows))
    with st.expander(title, icon=":material/block:", key=key("skipped")):
        _table(rows, title)


def peers() -> None:
    """What other planners publish, as they state it."""
    st.subheader(t("What other planners publish"), anchor=False)
    st.caption(t("As their authors state it, on their own starts: not measured by us, and not on these starts."))
    _table(accuracy_words.peer_rows(peer_figures()), t("Published figures of other planners with their conditions"))


def _table(rows: list[dict[str, Any]], alt: str) -> None:
    if not rows:
        st.caption(t("No start of these logs it."))
        return
    st.table(pd.DataFrame(rows), border="horizontal", hide_index=True, alt=alt)
