"""Tables of scored rows: by group, era, family, card, and the rows that were not predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from planner.score import Comparison, Scored
from planner.score_leave_out import leave_one_model_out

_GROUPS = ("0.17-0.20 on H100", "other, version stated", "version not stated")


def quantile(values: Sequence[float], fraction: float) -> float | None:
    """The value that `fraction` of `values` do not exceed (nearest rank), or None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(fraction * len(ordered) * 1000) // 1000) - 1))]


def relative_errors(scored: Iterable[Scored], name: str) -> list[float]:
    """The relative errors of the named quantity; a pool that the user fixed is not a prediction."""
    found = []
    for item in scored:
        comparison = item.find(name)
        if comparison is None or (name == "kv_pool" and item.is_pool_given) or comparison.logged <= 0:
            continue
        error = comparison.relative_error
        if error is not None:
            found.append(error)
    return found


def card_errors(scored: Iterable[Scored]) -> list[float]:
    """The pool's error as a share of the card's total, negative pools included."""
    pairs = [(item.find("kv_pool"), item) for item in scored if not item.is_pool_given]
    return [abs(c.predicted - c.logged) / item.total_gib for c, item in pairs if c is not None and item.total_gib]


def coverage(scored: Iterable[Scored], name: str) -> tuple[int, int, float]:
    """(rows inside the interval, rows, median half-width as a share of the logged value) of the named quantity."""
    found: list[Comparison] = []
    for item in scored:
        comparison = item.find(name)
        if (
            comparison is not None
            and comparison.is_covered is not None
            and not item.is_pool_given
            and comparison.logged > 0
        ):
            found.append(comparison)
    if not found:
        return 0, 0, 0.0
    widths = [((c.high or 0) - (c.low or 0)) / 2 / c.logged for c in found]
    return sum(bool(c.is_covered) for c in found), len(found), median(widths)


def verdicts(scored: Iterable[Scored]) -> tuple[int, int, int, int]:
    """(failures predicted, failures logged, false alarms, starts logged)."""
    known = [item for item in scored if item.reason is None and item.logged_start is not None]
    failed = [item for item in known if not item.logged_start]
    started = [item for item in known if item.logged_start]
    caught = sum(not item.predicted_start for item in failed)
    return caught, len(failed), sum(not item.predicted_start for item in started), len(started)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.2f} %"


def _predicted(scored: Iterable[Scored]) -> list[Scored]:
    return [item for item in scored if item.reason is None]


def _row(label: str, items: Sequence[Scored]) -> str:
    pool, weights = relative_errors(items, "kv_pool"), relative_errors(items, "weights")
    concurrency = relative_errors(items, "concurrency")
    models = len({item.model_id.lower() for item in items})
    cells = (
        label,
        str(len(items)),
        str(models),
        _percent(quantile(weights, 0.5)),
        _percent(quantile(pool, 0.5)),
        _percent(quantile(pool, 0.9)),
        _percent(quantile(card_errors(items), 0.9)),
        _percent(quantile(concurrency, 0.5)),
    )
    return "| " + " | ".join(cells) + " |"


_HEAD = (
    "| {} | rows | models | weights, median | pool, median | pool, p90 | pool, p90 of the card | concurrency, median |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def _table(title: str, scored: Sequence[Scored], key: Callable[[Scored], str]) -> str:
    labels = sorted({key(item) for item in scored})
    lines = [_row(label, [item for item in scored if key(item) == label]) for label in labels]
    return "\n".join([_HEAD.format(title), *lines])


def _band_line(label: str, items: Sequence[Scored]) -> str:
    inside, count, width = coverage(items, "kv_pool")
    share = _percent(inside / count) if count else "–"
    return f"| {label} | {count} | {share} | {_percent(width) if count else '–'} |"


def leave_one_out_tables(scored: Sequence[Scored]) -> str:
    """The groups' pools and bands with the fitted sum refitted without each row's own model."""
    outside = leave_one_model_out(_predicted(scored))
    lines = []
    for group in _GROUPS:
        items = [item for item in outside if item.group == group]
        pool, (inside, count, width) = relative_errors(items, "kv_pool"), coverage(items, "kv_pool")
        cells = (
            group,
            str(len(items)),
            str(len({item.model_id.lower() for item in items})),
            _percent(quantile(pool, 0.5)),
            _percent(quantile(pool, 0.9)),
            _percent(quantile(card_errors(items), 0.9)),
            _percent(inside / count) if count else "–",
            _percent(width) if count else "–",
        )
        lines.append("| " + " | ".join(cells) + " |")
    head = "| group | rows | models | pool, median | pool, p90 | pool, p90 of the card | inside the band | half-width |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- | --- | --- |", *lines, ""])


def markdown(scored: Sequence[Scored]) -> str:
    """The accuracy page: groups, bands, verdicts, families, eras, and every row that was not predicted."""
    predicted = _predicted(scored)
    by_group = [_row(group, [item for item in predicted if item.group == group]) for group in _GROUPS]
    bands = [_band_line(group, [item for item in predicted if item.group == group]) for group in _GROUPS]
    caught, failed, alarms, started = verdicts(predicted)
    stated = [item for item in predicted if item.group != "version not stated"]
    needed = quantile(relative_errors(predicted, "needed"), 1.0)
    skipped = [f"| {item.row_id} | {item.model_id} | {item.reason} |" for item in scored if item.reason is not None]
    return "\n".join(
        [
            "# Accuracy",
            "",
            f"Made by `python -m planner score --markdown` from {len(scored)} start-up rows, {len(predicted)} of them predicted.",
            "Errors are of the best value against the engine's log; rows of one model count as often as they occur.",
            "",
            "\n".join([_HEAD.format("group"), *by_group]),
            "",
            "## The 90 % band of the KV pool",
            "",
            "| group | rows | inside | median half-width |\n| --- | --- | --- | --- |",
            *bands,
            "",
            "## With each model left out",
            "",
            "Pools whose fitted sum (all but the weights) was refitted on the other models' rows of the same constants.",
            "",
            leave_one_out_tables(scored),
            "## Verdicts",
            "",
            f"Failed starts on memory predicted as failing: {caught} of {failed}. False alarms: {alarms} of {started} starts.",
            f"Largest error of the needed KV bytes: {_percent(needed)}.",
            "",
            "## By family, release stated",
            "",
            _table("family", stated, lambda item: item.family),
            "",
            "## By era, release stated",
            "",
            _table("era", stated, lambda item: item.era),
            "",
            "## By card, release stated",
            "",
            _table("card", stated, lambda item: item.gpu),
            "",
            "## Rows that were not predicted",
            "",
            "| row | model | reason |\n| --- | --- | --- |",
            *skipped,
            "",
        ]
    )


def _terms(item: Scored) -> str:
    parts = []
    for comparison in item.comparisons:
        mark = "" if comparison.is_covered is not False else "!"
        parts.append(f"{comparison.name} {comparison.predicted:.6g}/{comparison.logged:.6g}{mark}")
    return "  ".join(parts)


def text_report(scored: Sequence[Scored]) -> str:
    """One line a row (predicted/logged, `!` outside the band), then the tables."""
    lines = []
    for item in scored:
        if item.reason is not None:
            lines.append(f"{item.row_id}: not predicted: {item.reason}")
            continue
        wrong = item.logged_start is not None and item.predicted_start != item.logged_start
        verdict = "  WRONG VERDICT: " + item.plan_reason if wrong else ""
        parallel = f"tp{item.tensor_parallel_size} pp{item.pipeline_parallel_size}"
        lines.append(f"{item.row_id} [{item.version} {item.gpu} {parallel}] {_terms(item)}{verdict}")
    return "\n".join([*lines, "", markdown(scored)])
