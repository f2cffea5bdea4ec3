"""Sentences and table rows of the Accuracy page: scores in, words out. Imports no Streamlit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from pages.parts import words
from pages.parts.language import mark, t
from pages.parts.said import said
from planner.overhead_support import ConstantSupport
from planner.peers import PeerFigure
from planner.score import Comparison, Scored
from planner.score_causes import Cause, cause_of
from planner.score_stats import (
    GROUPS,
    QUANTITIES,
    Verdicts,
    band_coverage,
    card_errors,
    compared,
    errors,
    num_models,
    quantile,
    relative_errors,
)

Row = dict[str, Any]
GROUP_WORDS = {
    "0.17-0.20 on H100": mark("0.17 to 0.20 on H100"),
    "other, version stated": mark("Other cards and releases, release stated"),
    "version not stated": mark("Release not on record"),
}
QUANTITY_WORDS = {
    "weights": mark("Weights"),
    "kv_pool": mark("KV cache pool"),
    "tokens": mark("KV cache tokens"),
    "blocks": mark("KV blocks"),
    "concurrency": mark("Concurrency"),
    "activation": mark("Activation peak"),
    "non_torch": mark("Non-torch"),
    "graph_estimate": mark("CUDA graphs, vLLM's estimate"),
    "needed": mark("Needed by one request, failed starts"),
    "estimated_length": mark("Longest length that fits, failed starts"),
}
_WORST = 10
_ADDRESS = re.compile(r"https://\S+")


def percent(value: float | None) -> str:
    """A fraction as a percentage to three digits or three places: "0.017 %", "4.81 %"; a dash for nothing."""
    if value is None:
        return "–"
    if value and abs(value) < 0.001:
        return f"{value * 100:.3f}\N{NO-BREAK SPACE}%"
    return f"{value * 100:.3g}\N{NO-BREAK SPACE}%".replace("-", "−")


def headline(rows: Sequence[Scored]) -> str:
    """How right the planner is, in one sentence."""
    found, band = relative_errors(rows, "kv_pool"), band_coverage(rows)
    if not found:
        return t("No start of these logs a KV cache pool.")
    return t(
        "Over {starts} real starts of {models} models, half of the KV cache pools were predicted within {median} of what vLLM "
        "logged and nine of ten within {p90}; {inside} of them lie in the 90 % band.",
        starts=words.count(len(found)),
        models=words.count(num_models(item for item, _ in compared(rows, "kv_pool"))),
        median=percent(quantile(found, 0.5)),
        p90=percent(quantile(found, 0.9)),
        inside=percent(band.fraction),
    )


def group_name(group: str) -> str:
    """A group of starts in the reader's language."""
    return said(GROUP_WORDS.get(group, group))


def pool_error(item: Scored) -> float | None:
    """The signed error of the pool, as a fraction of the logged one."""
    pool = item.pool
    return None if pool is None or pool.logged <= 0 else (pool.predicted - pool.logged) / pool.logged


def address(item: Scored) -> str | None:
    """The address of the row's log, where its source is one."""
    found = _ADDRESS.match(item.source)
    return found[0] if found else None


def _linked(item: Scored) -> str:
    """The row's id, which leads to its log where its source is an address."""
    found = address(item)
    return f"[{words.plain(item.row_id)}]({found})" if found else words.plain(item.row_id)


def start_rows(rows: Sequence[Scored]) -> list[Row]:
    """One row a start that logs a pool, the worst first."""
    shown = [(item, pool_error(item)) for item in rows]
    known = [(item, error) for item, error in shown if error is not None]
    return [_start_row(item, error) for item, error in sorted(known, key=lambda pair: -abs(pair[1]))]


def _start_row(item: Scored, error: float) -> Row:
    pool = item.pool
    return {
        t("Start"): item.row_id,
        t("Error, %"): round(100 * error, 3),
        t("Logged, GiB"): pool.logged if pool else None,
        t("Predicted, GiB"): round(pool.predicted, 2) if pool else None,
        t("In the band"): t("yes") if pool and pool.is_covered else t("no"),
        t("Model"): item.model_id,
        t("Card"): f"{item.tensor_parallel_size * item.pipeline_parallel_size} × {item.gpu}",
        "vLLM": item.version,
        t("Source"): item.source,
        t("Link"): address(item),
    }


def source_note(rows: Sequence[Scored]) -> str:
    """How many of the starts' sources are addresses: the others are named in words, and no link of theirs is missing."""
    shown = [item for item in rows if pool_error(item) is not None]
    linked = sum(address(item) is not None for item in shown)
    return t(
        "{linked} of {all} sources are addresses, which the last column opens; the others are named in words, without an address.",
        linked=linked,
        all=len(shown),
    )


def quantity_rows(rows: Sequence[Scored]) -> list[Row]:
    """The errors of each logged quantity."""
    found = [(name, errors(rows, name)) for name, _ in QUANTITIES]
    return [
        {
            t("Quantity"): said(QUANTITY_WORDS[name]),
            t("Starts (models)"): _starts_of_models(each.rows, each.models),
            t("Mean error"): percent(each.mean),
            t("Median"): percent(each.median),
            t("Nine of ten within"): percent(each.p90),
        }
        for name, each in found
        if each.rows
    ]


def band_rows(rows: Sequence[Scored]) -> list[Row]:
    """How often the 90 % band holds the logged pool, and how wide it is, group by group."""
    split = [(group_name(group), [item for item in rows if item.group == group]) for group in GROUPS]
    found = [(name, band_coverage(items)) for name, items in split]
    return [
        {
            t("Group"): name,
            t("Starts"): words.count(band.rows),
            t("In the band"): percent(band.fraction),
            t("Mean half-width"): percent(band.mean_half_width),
            t("Median half-width"): percent(band.median_half_width),
            t("Mean half-width, of the card"): percent(band.half_width_of_card),
        }
        for name, band in found
        if band.rows
    ]


def _starts_of_models(starts: int, models: int) -> str:
    return f"{words.count(starts)} ({words.count(models)})"


def split_rows(rows: Sequence[Scored], title: str, name_of: Callable[[Scored], str]) -> list[Row]:
    """The errors in percent split by one property of the starts, for a table that sorts; `title` names it."""
    labels = sorted({name_of(item) for item in rows})
    return [_split_row(title, label, [item for item in rows if name_of(item) == label]) for label in labels]


def _split_row(title: str, label: str, items: Sequence[Scored]) -> Row:
    pool = relative_errors(items, "kv_pool")
    return {
        title: label,
        t("Starts"): len(items),
        t("Models"): num_models(items),
        t("Pool, median, %"): _in_percent(quantile(pool, 0.5)),
        t("Pool, nine of ten, %"): _in_percent(quantile(pool, 0.9)),
        t("The same, of the card, %"): _in_percent(quantile(card_errors(items), 0.9)),
        t("Weights, median, %"): _in_percent(quantile(relative_errors(items, "weights"), 0.5)),
        t("Concurrency, median, %"): _in_percent(quantile(relative_errors(items, "concurrency"), 0.5)),
    }


def _in_percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 4)


def left_out_rows(rows: Sequence[Scored]) -> list[Row]:
    """The errors of the pool group by group."""
    split = [(group, [item for item in rows if item.group == group]) for group in GROUPS]
    return [
        {
            t("Group"): group_name(group),
            t("Starts (models)"): _starts_of_models(
                len(compared(items, "kv_pool")), num_models(item for item, _ in compared(items, "kv_pool"))
            ),
            t("Pool, median"): percent(quantile(relative_errors(items, "kv_pool"), 0.5)),
            t("Nine of ten"): percent(quantile(relative_errors(items, "kv_pool"), 0.9)),
        }
        for group, items in split
        if items
    ]


def verdict_rows(found: Verdicts) -> list[Row]:
    """Logged against predicted: starts and failures on memory."""
    return [
        {
            t("vLLM"): t("started"),
            t("Predicted to start"): words.count(found.starts - found.false_alarms),
            t("Predicted to fail"): words.count(found.false_alarms),
        },
        {
            t("vLLM"): t("failed on memory"),
            t("Predicted to start"): words.count(found.failures - found.failures_predicted),
            t("Predicted to fail"): words.count(found.failures_predicted),
        },
    ]


def worst_rows(rows: Sequence[Scored]) -> list[Row]:
    """The ten starts with the largest error of the pool, each with what is known of why."""
    known = [(item, comparison) for item, comparison in compared(rows, "kv_pool")]
    ordered = sorted(known, key=lambda pair: -(pair[1].relative_error or 0.0))[:_WORST]
    return [_worst_row(item, comparison) for item, comparison in ordered]


def _worst_row(item: Scored, pool: Comparison) -> Row:
    note = " " + t("The source says: {note}", note=item.note) if item.note else ""
    told = t(
        "predicted {predicted} GiB, logged {logged} GiB: {error}",
        predicted=f"{pool.predicted:.2f}".replace("-", "−"),
        logged=f"{pool.logged:.2f}".replace("-", "−"),
        error=percent(pool_error(item)),
    )
    return {
        t("Start"): f"{_linked(item)} {words.plain(f'({item.gpu}, vLLM {item.version})')}",
        t("Pool"): told,
        t("Why"): words.plain(f"{cause_words(item, cause_of(item))}{note}"),
    }


def cause_words(item: Scored, cause: Cause) -> str:
    """Why a pool is off, as far as its log tells, in a sentence or two."""
    term = item.find(cause.kind)
    if term is not None:
        return t(
            "{quantity}: predicted {predicted}, logged {logged} GiB.",
            quantity=said(QUANTITY_WORDS[cause.kind]),
            predicted=f"{term.predicted:.2f}",
            logged=f"{term.logged:.2f}",
        )
    if cause.kind == "several":
        return t("Several terms together: {terms}.", terms=_terms(cause))
    amount = f"{abs(cause.unexplained_gib):.2f}"
    told = (
        t("Unexplained: {amount} GiB more left the budget than the rules know.", amount=amount)
        if cause.unexplained_gib > 0
        else t("Unexplained: {amount} GiB less left the budget than the rules know.", amount=amount)
    )
    printed = (
        t("The log prints besides: {terms}.", terms=_terms(cause))
        if cause.terms
        else t("The log prints no other term.")
    )
    return " ".join(each for each in (told, printed, _suspected(item, cause)) if each)


def _terms(cause: Cause) -> str:
    """The printed terms, each with the GiB that it took beyond the prediction."""
    return ", ".join(
        f"{said(QUANTITY_WORDS[name])} {part:+.2f} GiB".replace("-0.00", "+0.00").replace(" -", " −")
        for name, part in cause.terms
    )


def _suspected(item: Scored, cause: Cause) -> str:
    if cause.suspicion == "system_memory":
        return t("Memory of this card is the system's: page cache and other processes count.")
    if cause.suspicion == "no_release":
        return t("The release is not on record.")
    if cause.suspicion == "thin_constants":
        return t("The constants rest on little: {what}.", what=item.fitted_class)
    return ""


def skipped_rows(rows: Sequence[Scored]) -> list[Row]:
    """The starts that were not predicted, and why."""
    return [
        {
            t("Start"): _linked(item),
            t("Model"): words.plain(item.model_id),
            t("Why"): words.plain(said(item.reason)),
        }
        for item in rows
        if item.reason is not None
    ]


def peer_rows(figures: Sequence[PeerFigure]) -> list[Row]:
    """What other planners publish, as they state it."""
    return [
        {
            t("Planner"): words.plain(each.name),
            t("Quantity"): words.plain(said(each.quantity)),
            t("Published"): words.plain(said(each.figure)),
            t("Under these conditions"): words.plain(said(each.conditions)),
            t("Source"): words.plain(said(each.source)),
        }
        for each in figures
    ]


def constant_lines(constants: Sequence[ConstantSupport]) -> list[str]:
    """The constants that a single start or model supports, a line each."""
    return [
        t(
            "`{name}`: {source} (starts: {rows}, models: {models})",
            name=each.name,
            source=words.plain(said(each.source)),
            rows=words.count(each.rows),
            models=words.count(each.models),
        )
        for each in constants
    ]
