"""The Plan page as a report's sections: the same tables, words and figures. Pure; knows no Streamlit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pages.parts import charts, tables, words
from pages.parts.language import t
from pages.parts.report_figures import chart
from pages.parts.report_sections import (
    Code,
    Figure,
    Figures,
    FindingLine,
    Findings,
    Heading,
    Section,
    Table,
    Text,
    Verdict,
    table,
)
from pages.parts.said import said
from pages.parts.what_if import WhatIf
from planner.answer import BudgetLine, Plan, RankPlan
from planner.facts import Finding
from planner.sweep import SweepSlice


def plan_sections(plan: Plan, found: Sequence[WhatIf] = (), slices: Sequence[SweepSlice] = ()) -> tuple[Section, ...]:
    """The whole plan, top to bottom as the page shows it, and then what was assumed."""
    return tuple(_sections(plan, found, slices))


def _sections(plan: Plan, found: Sequence[WhatIf], slices: Sequence[SweepSlice]) -> Iterator[Section]:
    yield Verdict(text=words.verdict(plan), reason=said(plan.reason), tone="good" if plan.will_start else "bad")
    if plan.pool.groups:
        yield Figures(figures=_figures(plan))
    else:
        yield Text(
            text=t("This model keeps no KV cache: requests are bounded by max\\_num\\_seqs alone.").replace("\\", "")
        )
    yield from finding_sections(plan.findings)
    yield from _advice(plan)
    yield Heading(text=t("What was asked"))
    yield inputs_table(plan)
    yield Code(text=plan.serve_command)
    yield from _budget(plan)
    yield from _capacity(plan)
    yield from _what_ifs(found, slices, plan)
    yield from _assumed(plan)


def _figures(plan: Plan) -> tuple[Figure, ...]:
    """The four figures of the page's head, with their bands."""
    pool, low, high = plan.pool, plan.pool_low, plan.pool_high
    estimate = plan.ranks[plan.bounding_rank].kv_pool
    return (
        Figure(
            label=t("Requests of {max_model_len} tokens", max_model_len=words.count(pool.max_model_len)),
            value=words.concurrency(pool.max_concurrency),
            below=words.concurrency_band(low.max_concurrency, high.max_concurrency),
        ),
        Figure(
            label=t("KV cache tokens"),
            value=words.count(pool.tokens),
            below=words.count_band(low.tokens, high.tokens),
        ),
        Figure(
            label=t("KV blocks"),
            value=words.count(pool.num_blocks),
            below=words.count_band(low.num_blocks, high.num_blocks),
        ),
        Figure(label=t("KV cache pool"), value=words.gib(estimate.best_bytes), below=words.band(estimate)),
    )


def finding_sections(findings: Sequence[Finding]) -> Iterator[Section]:
    """What the reader must know, gravest first."""
    if findings:
        order = {"refusal": 0, "warning": 1, "info": 2}
        ordered = sorted(findings, key=lambda finding: order[finding.severity])
        yield Heading(text=t("What to know"))
        yield Findings(
            lines=tuple(
                FindingLine(severity=each.severity, title=words.finding_title(each), text=said(each.text))
                for each in ordered
            )
        )


def _advice(plan: Plan) -> Iterator[Section]:
    if plan.advice:
        title = t("What would serve more") if plan.will_start else t("What to change")
        yield Heading(text=title)
        rows = tuple((said(each.change), said(each.effect)) for each in plan.advice)
        yield Table(title=title, columns=(t("Change"), t("Effect")), rows=rows)
    if plan.vllm_error:
        yield Heading(text=t("What vLLM would print"), level=3)
        yield Code(text=plan.vllm_error)


def inputs_table(plan: Plan) -> Table:
    """Model, card, release and the flags that were given."""
    request = plan.request
    rows: list[tuple[str, str]] = [
        (t("Model"), request.model_id),
        (t("Card"), said(plan.gpu_name)),
        (t("Memory of the card"), words.gib(plan.gpu_total.best_bytes)),
        ("vLLM", f"{plan.vllm_version} ({t('era {era}', era=said(plan.era))})"),
    ]
    if request.revision:
        rows.insert(1, (t("Revision"), request.revision))
    if plan.calibration:
        rows.append((t("Calibration"), plan.calibration))
    given = [each for each in plan.resolved if each.is_given]
    rows += [(words.flag_name(each.name), words.shown_value(each.value)) for each in given]
    return Table(title=t("Inputs"), columns=(t("Input"), t("Value")), rows=tuple(rows))


def _budget(plan: Plan) -> Iterator[Section]:
    yield Heading(text=t("Where the card's memory goes"))
    if len(plan.ranks) > 1:
        yield Text(text=t("One card of each pipeline stage; the fullest one sets the pool for all."))
        yield chart(t("All pipeline stages"), charts.rank_bars(plan), charts.ranks_alt(plan), needs_numbers=False)
    for rank in plan.ranks:
        yield from _rank(plan, rank)
    if plan.host:
        yield Heading(text=t("In the host's memory"), level=3)
        yield _table(tables.line_rows(plan.host), t("Parts in the host's memory, over all cards"))


def _rank(plan: Plan, rank: RankPlan) -> Iterator[Section]:
    if len(plan.ranks) > 1:
        yield Heading(text=t("Stage {stage}", stage=rank.pp_rank), level=3)
    if rank.pp_rank == plan.bounding_rank:
        yield chart(
            t("The card part by part"), charts.budget_waterfall(rank), charts.budget_alt(rank), needs_numbers=False
        )
        yield Text(
            text=t(
                "Each bar starts where the one above ends. Thin lines are 90 % bands; hatched parts lie outside vLLM's share."
            ),
            is_small=True,
        )
    yield _table(
        tables.line_rows(charts.ordered_lines(rank)), t("Every part of the card with exact bytes, band and source")
    )
    yield _table(tables.role_rows(rank), t("The weights of the card by what they are for"))


def _capacity(plan: Plan) -> Iterator[Section]:
    if plan.pool.groups:
        yield Heading(text=t("What the pool holds"))
        yield _table(tables.capacity_rows(plan), t("Figures of the KV cache pool"))
        yield _table(tables.group_rows(plan.pool), t("KV cache groups"))


def _what_ifs(found: Sequence[WhatIf], slices: Sequence[SweepSlice], plan: Plan) -> Iterator[Section]:
    has_curves = any(part.refusal is None for part in slices)
    if found or has_curves:
        yield Heading(text=t("What if"))
    for each in found:
        yield _table(tables.what_if_rows(each), f"{said(each.title)} ({words.flag_name(each.flag)})")
    if has_curves:
        figure = charts.length_curves(slices, plan.pool.max_model_len)
        yield chart(t("Requests at once, by their length"), figure, charts.length_alt(slices))


def _assumed(plan: Plan) -> Iterator[Section]:
    """Where each number comes from, and how vLLM resolves what nobody gave."""
    yield Heading(text=t("What was assumed"))
    named = [(words.part_words(line.name).label, line.estimate.basis) for line in _distinct_lines(plan)]
    rows = tuple((label, said(words.BASIS_WORDS[basis.kind]), said(basis.note)) for label, basis in named)
    columns = (t("Part"), t("How it is known"), t("From what"))
    yield Table(title=t("How each number is known"), columns=columns, rows=rows)
    yield _table(tables.resolved_rows(plan.resolved), t("Flags as vLLM resolves them"))


def _distinct_lines(plan: Plan) -> tuple[BudgetLine, ...]:
    lines = [line for rank in plan.ranks for line in charts.ordered_lines(rank)]
    return tuple({(line.name, line.estimate.basis): line for line in [*lines, *plan.host]}.values())


def _table(rows: Sequence[tables.Row], title: str) -> Table:
    return table(title, rows, tables.FORMATS, said)
