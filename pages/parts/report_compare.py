"""The Compare page's four views as reports: each gives what it holds, and its button is drawn here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pages.parts import compare_charts, compare_state, report_compare_inputs, state, words
from pages.parts.compare_cells import UNBOUNDED, FitTable, column_title, model_titles, shown, summary
from pages.parts.compare_request import CompareInput
from pages.parts.language import t
from pages.parts.report_button import About, report_button
from pages.parts.report_figures import chart
from pages.parts.report_plan import inputs_table
from pages.parts.report_sections import Cell, Heading, Link, Number, Section, Table, Text, Verdict, from_markdown, table
from pages.parts.said import said, sentence
from planner.answer import Plan
from planner.dry_advice import Recommendation
from planner.dry_run import Knee, Level
from planner.facts import PlanError
from planner.request import PlanRequest
from planner.scenarios import Scenario

Rows = Sequence[dict[Any, Any]]  # of a page's data frame


def fit(found: FitTable, title: str, told: str) -> None:
    """The report of what fits where; `told` is the sentence below the title."""
    asked, request = _kept(), state.request_or_first()
    about = About(title=t("What fits"), subject=title, versions=(("vLLM", request.vllm_version),))
    asked_for = report_compare_inputs.fit_inputs(asked, request)
    report_button("what-fits", about, partial(_fit, found, told, asked_for))


def _kept() -> CompareInput:
    """What the page is asked; the link holds it from now on, for a report names the link of its own run."""
    compare_state.keep_link()
    return compare_state.asked_now()


def _fit(found: FitTable, told: str, asked_for: Table) -> Sequence[Section]:
    columns = (t("Model"), t("Weights"), "KV", *map(column_title, found.columns), t("Own limit"))
    rows = tuple(
        (
            title,
            row.weights_format,
            row.kv_dtype,
            *_fit_cells(found, place),
            Number(shown=words.count(row.own_limit_tokens), exact=row.own_limit_tokens),
        )
        for place, (title, row) in enumerate(zip(model_titles(found.rows), found.rows, strict=True))
    )
    answer = summary(found)
    return (
        Verdict(text=answer, reason=from_markdown(told.removeprefix(answer).strip())),
        Heading(text=t("What was asked")),
        asked_for,
        Table(title=t("What fits"), columns=columns, rows=rows),
        Heading(text=t("What was assumed")),
        _assumed_plan(),
    )


def _fit_cells(found: FitTable, place: int) -> Iterator[Cell]:
    for value in found.rows[place].numbers.tolist():
        text = from_markdown(shown(value, found.measure))
        yield text if value < 0 or value >= UNBOUNDED else Number(shown=text, exact=value)


def _assumed_plan() -> Text:
    text = t(
        "Each cell is a whole plan by the same rules as the Plan page; flags that are not named are vLLM's defaults."
    )
    return Text(text=text, is_small=True)


def scenarios(held: Sequence[Scenario], rows: Rows) -> None:
    """The report of plans side by side."""
    _kept()
    subject = ", ".join(scenario.name for scenario in held)
    releases = ", ".join(dict.fromkeys(scenario.plan.vllm_version for scenario in held))
    about = About(title=t("Side by side"), subject=subject, versions=(("vLLM", releases),))
    links = [_plan_link(scenario.plan.request) for scenario in held]
    report_button("side-by-side", about, partial(_scenarios, held, rows, links))


def _plan_link(request: PlanRequest) -> str | None:
    """The address of the plan itself; None where no browser tells its own, or the model is too large for an address."""
    try:
        base, _, query = state.link(request).partition("?")
    except PlanError:
        return None
    return f"{base.rsplit('/', 1)[0]}/?{query}" if base else None


def _scenarios(held: Sequence[Scenario], rows: Rows, links: Sequence[str | None]) -> Sequence[Section]:
    heads: list[Section] = []
    for scenario, link in zip(held, links, strict=True):
        plan = scenario.plan
        heads.append(Heading(text=scenario.name))
        heads.append(
            Verdict(text=words.verdict(plan), reason=said(plan.reason), tone="good" if plan.will_start else "bad")
        )
        heads += [Text(text=said(note), is_small=True) for note in scenario.notes]
        if link is not None:
            heads.append(Link(text=t("This plan"), url=link))
    return (
        *heads,
        Heading(text=t("Line by line")),
        table(t("The scenarios line by line"), rows),
        Heading(text=t("What was assumed")),
        Text(text=t("Each column is a whole plan; its own report says where each number comes from.")),
    )


def cards(subject: str, answers: Rows, judged: Rows) -> None:
    """The report of the fewest cards: one row a card, and every split that was judged."""
    asked, request = _kept(), state.request_or_first()
    about = About(
        title=t("The fewest cards that hold the load"), subject=subject, versions=(("vLLM", request.vllm_version),)
    )
    asked_for = report_compare_inputs.cards_inputs(asked, request)
    report_button("fewest-cards", about, partial(_cards, answers, judged, asked_for))


def _fewest(answers: Rows) -> Iterator[Verdict]:
    """The card with the fewest cards, which stands first where any holds."""
    for row in answers[:1]:
        number, card, why = (from_markdown(str(row[name])) for name in (t("Cards"), t("Card"), t("Why")))
        if number.replace(",", "").isdigit():
            yield Verdict(text=t("{number} × {card}", number=number, card=card), reason=why, tone="good")
        else:
            yield Verdict(text=t("No card that was tried holds the load"), reason=f"{card}: {number}", tone="bad")


def _cards(answers: Rows, judged: Rows, asked_for: Table) -> Sequence[Section]:
    told = t(
        "Splits are tried with the fewest cards first. The formula rules out what cannot hold the mean load; what is left is simulated step by step, with the time of a step from the card's bandwidth and speed (a roofline, not a measurement)."
    )
    return (
        *_fewest(answers),
        table(t("The answer on each card"), answers),
        Heading(text=t("What was asked")),
        asked_for,
        Heading(text=t("How it was found")),
        Text(text=told),
        table(t("Every split that was judged, in order"), judged),
    )


def dry(
    plan: Plan, levels: Sequence[Level], knee: Knee, advice: Sequence[Recommendation], tables: tuple[Rows, Rows]
) -> None:
    """The report of a dry run; `tables` are the levels' rows and the batch sizes'."""
    about = About(title=t("Dry run"), subject=words.subject(plan), versions=(("vLLM", plan.vllm_version),))
    inputs = (inputs_table(plan), report_compare_inputs.load_inputs(_kept()))
    report_button("dry-run", about, partial(_dry, levels, knee, advice, tables, inputs))


def _value(advice: Recommendation) -> str:
    return f"{advice.value} ({t('keep it')})" if advice.is_kept else str(advice.value)


def _why(advice: Recommendation) -> str:
    return " ".join(sentence(text) for text in (advice.reason, advice.trade) if text)


def _dry(
    levels: Sequence[Level],
    knee: Knee,
    advice: Sequence[Recommendation],
    tables: tuple[Rows, Rows],
    inputs: Sequence[Table],
) -> Sequence[Section]:
    title = t("No knee yet:") if knee.is_open else t("The knee is at {users} users:", users=words.count(knee.users))
    flags = tuple((words.flag_name(each.flag), _value(each), _why(each)) for each in advice)
    return (
        Verdict(text=title.rstrip(":："), reason=sentence(knee.reason)),
        Table(title=t("What to set"), columns=(t("Flag"), t("Value"), t("Why")), rows=flags),
        Heading(text=t("What was asked")),
        *inputs,
        Heading(text=t("Level by level")),
        chart(
            t("Tokens a second, all users together"),
            compare_charts.throughput(levels, knee.users),
            compare_charts.throughput_alt(levels, knee),
            needs_numbers=False,
        ),
        chart(
            t("Pool used and users that wait"),
            compare_charts.pool(levels, knee.users),
            compare_charts.pool_alt(levels),
            needs_numbers=False,
        ),
        chart(
            t("Time to the first token"),
            compare_charts.first_token(levels, knee.users),
            compare_charts.first_token_alt(levels),
            needs_numbers=False,
        ),
        chart(
            t("Time between tokens"),
            compare_charts.between_tokens(levels, knee.users),
            compare_charts.between_tokens_alt(levels),
            needs_numbers=False,
        ),
        table(t("Each level of the sweep"), tables[0]),
        table(t("Each size of a batch"), tables[1]),
        Heading(text=t("What was assumed")),
        Text(
            text=t(
                "Simulated: every user sends the next request when the last is served, all start at once. The time of a step is a roofline of the card's bandwidth and speed, not a measurement."
            )
        ),
    )
