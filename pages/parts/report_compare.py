"""The Compare page's four views as reports: each gives what it holds, and its button is drawn here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pages.parts import compare_charts, words
from pages.parts.compare_cells import UNBOUNDED, FitTable, column_title, model_titles, shown
from pages.parts.language import t
from pages.parts.report_button import About, report_button
from pages.parts.report_figures import chart
from pages.parts.report_sections import Cell, Heading, Number, Section, Table, Text, Verdict, from_markdown, table
from pages.parts.said import said, sentence
from planner.answer import Plan
from planner.dry_advice import Recommendation
from planner.dry_run import Knee, Level
from planner.scenarios import Scenario

Rows = Sequence[dict[Any, Any]]  # of a page's data frame


def fit(found: FitTable, title: str, told: str) -> None:
    """The report of what fits where; `told` is the sentence below the title."""
    report_button("what-fits", About(title=t("What fits"), subject=title), partial(_fit, found, told))


def _fit(found: FitTable, told: str) -> Sequence[Section]:
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
    return (Text(text=from_markdown(told)), Table(title=t("What fits"), columns=columns, rows=rows), _assumed_plan())


def _fit_cells(found: FitTable, place: int) -> Iterator[Cell]:
    for value in found.rows[place].numbers.tolist():
        text = shown(value, found.measure)
        yield text if value < 0 or value >= UNBOUNDED else Number(shown=text, exact=value)


def _assumed_plan() -> Text:
    text = t(
        "Each cell is a whole plan by the same rules as the Plan page; flags that are not named are vLLM's defaults."
    )
    return Text(text=text, is_small=True)


def scenarios(held: Sequence[Scenario], rows: Rows) -> None:
    """The report of plans side by side."""
    subject = ", ".join(scenario.name for scenario in held)
    report_button("side-by-side", About(title=t("Side by side"), subject=subject), partial(_scenarios, held, rows))


def _scenarios(held: Sequence[Scenario], rows: Rows) -> Sequence[Section]:
    heads: list[Section] = []
    for scenario in held:
        plan = scenario.plan
        heads.append(Heading(text=scenario.name, level=3))
        heads.append(
            Verdict(text=words.verdict(plan), reason=said(plan.reason), tone="good" if plan.will_start else "bad")
        )
        heads += [Text(text=said(note), is_small=True) for note in scenario.notes]
    return (*heads, Heading(text=t("Line by line")), table(t("The scenarios line by line"), rows))


def cards(subject: str, answers: Rows, judged: Rows) -> None:
    """The report of the fewest cards: one row a card, and every split that was judged."""
    about = About(title=t("The fewest cards that hold the load"), subject=subject)
    report_button("fewest-cards", about, partial(_cards, answers, judged))


def _cards(answers: Rows, judged: Rows) -> Sequence[Section]:
    told = t(
        "Splits are tried with the fewest cards first. The formula rules out what cannot hold the mean load; what is left is simulated step by step, with the time of a step from the card's bandwidth and speed (a roofline, not a measurement)."
    )
    return (
        table(t("The answer on each card"), answers),
        Heading(text=t("How it was found")),
        Text(text=told),
        table(t("Every split that was judged, in order"), judged),
    )


def dry(
    plan: Plan, levels: Sequence[Level], knee: Knee, advice: Sequence[Recommendation], tables: tuple[Rows, Rows]
) -> None:
    """The report of a dry run; `tables` are the levels' rows and the batch sizes'."""
    about = About(title=t("Dry run"), subject=words.subject(plan), versions=(("vLLM", plan.vllm_version),))
    report_button("dry-run", about, partial(_dry, levels, knee, advice, tables))


def _value(advice: Recommendation) -> str:
    return f"{advice.value} ({t('keep it')})" if advice.is_kept else str(advice.value)


def _why(advice: Recommendation) -> str:
    return " ".join(sentence(text) for text in (advice.reason, advice.trade) if text)


def _dry(
    levels: Sequence[Level], knee: Knee, advice: Sequence[Recommendation], tables: tuple[Rows, Rows]
) -> Sequence[Section]:
    title = t("No knee yet:") if knee.is_open else t("The knee is at {users} users:", users=words.count(knee.users))
    flags = tuple((words.flag_name(each.flag), _value(each), _why(each)) for each in advice)
    return (
        Verdict(text=title.rstrip(":："), reason=sentence(knee.reason)),
        Table(title=t("What to set"), columns=(t("Flag"), t("Value"), t("Why")), rows=flags),
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
        Text(
            text=t(
                "Simulated: every user sends the next request when the last is served, all start at once. The time of a step is a roofline of the card's bandwidth and speed, not a measurement."
            )
        ),
    )
