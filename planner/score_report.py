"""Tables of scored rows: by quantity, group, era, family, card, TP, and the rows that were not predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.score import Scored
from planner.score_leave_out import leave_one_model_out
from planner.score_stats import (
    GROUPS,
    QUANTITIES,
    band_coverage,
    card_errors,
    coverage,
    errors,
    num_models,
    predicted,
    quantile,
    relative_errors,
    verdicts,
)

__all__ = [
    "card_errors",
    "coverage",
    "leave_one_out_tables",
    "markdown",
    "quantile",
    "relative_errors",
    "text_report",
    "verdicts",
]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.2f} %"


def _row(label: str, items: Sequence[Scored]) -> str:
    pool, weights = relative_errors(items, "kv_pool"), relative_errors(items, "weights")
    concurrency = relative_errors(items, "concurrency")
    models = num_models(items)
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


_BAND_HEAD = (
    "| {} | rows | inside | mean half-width | median half-width | mean half-width, of the card |\n"
    "| --- | --- | --- | --- | --- | --- |"
)


def _band_line(label: str, items: Sequence[Scored]) -> str:
    found = band_coverage(items)
    shares = (found.fraction, found.mean_half_width, found.median_half_width, found.half_width_of_card)
    return f"| {label} | {found.rows} | " + " | ".join(_percent(share) for share in shares) + " |"


def _bands(title: str, scored: Sequence[Scored], labels: Sequence[str], key: Callable[[Scored], str]) -> str:
    lines = [_band_line(label, [item for item in scored if key(item) == label]) for label in labels]
    return "\n".join([_BAND_HEAD.format(title), *lines])


def _quantity_table(scored: Sequence[Scored]) -> str:
    lines = []
    for name, title in QUANTITIES:
        found = errors(scored, name)
        if found.rows:
            cells = (title, str(found.rows), str(found.models), *map(_percent, (found.mean, found.median, found.p90)))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(
        ["| quantity | rows | models | mean | median | p90 |", "| --- | --- | --- | --- | --- | --- |", *lines]
    )


def leave_one_out_tables(scored: Sequence[Scored]) -> str:
    """The groups' pools and bands with the fitted sum refitted without each row's own model."""
    outside = leave_one_model_out(predicted(scored))
    lines = []
    for group in GROUPS:
        items = [item for item in outside if item.group == group]
        pool, band = relative_errors(items, "kv_pool"), band_coverage(items)
        cells = (
            group,
            str(len(items)),
            str(num_models(items)),
            _percent(quantile(pool, 0.5)),
            _percent(quantile(pool, 0.9)),
            _percent(quantile(card_errors(items), 0.9)),
            *map(_percent, (band.fraction, band.mean_half_width, band.median_half_width)),
        )
        lines.append("| " + " | ".join(cells) + " |")
    head = "| group | rows | models | pool, median | pool, p90 | pool, p90 of the card | inside the band | mean half-width | median half-width |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |", *lines, ""])


_Section = tuple[str, str]  # heading, text


def markdown(scored: Sequence[Scored]) -> str:
    """The accuracy page: groups, quantities, bands, verdicts, families, eras, cards, and every row that was not predicted."""
    shown = predicted(scored)
    sections = [*_whole(scored, shown), *_split(shown), ("Rows that were not predicted", _skipped(scored))]
    head = [
        "# Accuracy",
        "",
        f"Made by `python -m planner score --markdown` from {len(scored)} start-up rows, {len(shown)} of them predicted.",
        "Errors are of the best value against the engine's log; rows of one model count as often as they occur.",
        "",
        "\n".join([_HEAD.format("group"), *(_row(group, _of(shown, group)) for group in GROUPS)]),
        "",
    ]
    for heading, text in sections:
        head += [f"## {heading}", "", text, ""]
    return "\n".join(head)


def _of(scored: Sequence[Scored], group: str) -> list[Scored]:
    return [item for item in scored if item.group == group]


def _whole(scored: Sequence[Scored], shown: Sequence[Scored]) -> list[_Section]:
    """The sections over all rows."""
    eras = sorted({item.era for item in shown})
    refitted = (
        "Pools whose fitted sum (all but the weights) was refitted on the other models' rows of the same constants."
    )
    return [
        ("By quantity", _quantity_table(shown)),
        ("The 90 % band of the KV pool", _bands("group", shown, GROUPS, lambda item: item.group)),
        ("The band by era", _bands("era", shown, eras, lambda item: item.era)),
        ("With each model left out", f"{refitted}\n\n{leave_one_out_tables(scored).rstrip()}"),
        ("Verdicts", _verdict_text(shown)),
    ]


def _verdict_text(shown: Sequence[Scored]) -> str:
    caught, failed, alarms, started = verdicts(shown)
    needed = quantile(relative_errors(shown, "needed"), 1.0)
    return (
        f"Failed starts on memory predicted as failing: {caught} of {failed}. False alarms: {alarms} of {started} starts.\n"
        f"Largest error of the needed KV bytes: {_percent(needed)}."
    )


def _split(shown: Sequence[Scored]) -> list[_Section]:
    """The sections by family, era, card and tensor parallelism, of rows with a stated release."""
    stated = [item for item in shown if item.group != "version not stated"]
    return [
        ("By family, release stated", _table("family", stated, lambda item: item.family)),
        ("By era, release stated", _table("era", stated, lambda item: item.era)),
        ("By card, release stated", _table("card", stated, lambda item: item.gpu)),
        ("By parallelism, release stated", _table("parallelism", stated, _parallelism)),
    ]


def _parallelism(item: Scored) -> str:
    return f"TP {item.tensor_parallel_size}, PP {item.pipeline_parallel_size}"


def _skipped(scored: Sequence[Scored]) -> str:
    rows = [f"| {item.row_id} | {item.model_id} | {item.reason} |" for item in scored if item.reason is not None]
    return "\n".join(["| row | model | reason |", "| --- | --- | --- |", *rows])


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
