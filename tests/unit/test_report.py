"""Reports: the page's numbers to the last digit, nothing interpreted, nothing fetched, and the same in all four kinds of file."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pages.parts import charts, report_data, report_html, report_markdown, tables, what_if, words
from pages.parts.language import CHINESE, speaking, t
from pages.parts.report_figures import PALETTE, chart
from pages.parts.report_numbers import numbers_of
from pages.parts.report_plan import plan_sections
from pages.parts.report_sections import (
    Code,
    Figure,
    Figures,
    FindingLine,
    Findings,
    Heading,
    Number,
    Report,
    Table,
    Text,
    Verdict,
    from_markdown,
    table,
)
from planner import planning
from planner.answer import Plan
from planner.model_catalog import catalogue_documents
from planner.request import EngineFlags, PlanRequest

ROOT = Path(__file__).parents[2]
MADE = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)
EVIL = '<script>alert("x")</script> `|*_[a](javascript:1)\n=1+1 & “é”'


def answered(**flags: object) -> tuple[Plan, Report]:
    request = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="H100 80GB SXM", flags=EngineFlags(**flags))
    documents = catalogue_documents(request.model_id)
    plan, model = planning.answer(request, documents)
    found, slices = what_if.what_ifs(request, model, plan), what_if.length_sweep(request, model, plan)
    sections = plan_sections(plan, found, slices)
    return plan, report(*sections)


def report(*sections: object, **more: object) -> Report:
    return Report(title="T", subject="S", sections=sections, made=MADE, link="http://x/?a=1&b=<2>", **more)


class Tags(HTMLParser):
    """The tags, their attributes and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def evil_sections() -> Iterator[object]:
    yield Verdict(text=EVIL, reason=EVIL, tone="bad")
    yield Heading(text=EVIL)
    yield Text(text=EVIL)
    yield Figures(figures=(Figure(label=EVIL, value=EVIL, below=EVIL),))
    yield Table(title=EVIL, columns=(EVIL, "n"), rows=((EVIL, Number(shown=EVIL, exact=1.5)), (None, None)))
    yield Findings(lines=(FindingLine(severity="refusal", title=EVIL, text=EVIL),))
    yield Code(text=EVIL + "\n````\n")


# -- numbers ------------------------------------------------------------------------------------------------------------


def test_every_cell_of_the_page_s_tables_stands_in_every_file() -> None:
    plan, made = answered()
    rows = [
        *tables.line_rows(charts.ordered_lines(plan.ranks[0])),
        *tables.capacity_rows(plan),
        *tables.group_rows(plan.pool),
    ]
    html, markdown = Tags(report_html.to_html(made)).text, report_markdown.to_markdown(made).replace("\\", "")

    for row in rows:
        for column, value in row.items():
            shown = (
                from_markdown(value)
                if isinstance(value, str)
                else tables.FORMATS[column](value)
                if value is not None
                else "–"
            )
            assert shown in html
            assert shown in markdown


def test_the_head_holds_the_page_s_words() -> None:
    plan, made = answered()
    html = Tags(report_html.to_html(made)).text

    expected = [
        words.verdict(plan),
        plan.reason,
        words.concurrency(plan.pool.max_concurrency),
        words.count(plan.pool.tokens),
    ]
    expected += [words.count_band(plan.pool_low.tokens, plan.pool_high.tokens), plan.serve_command]
    assert [text for text in expected if text not in html] == []


def test_exact_numbers_stand_in_json_and_csv() -> None:
    plan, made = answered()
    exact = {line.estimate.best_bytes for line in charts.ordered_lines(plan.ranks[0])}

    document = json.loads(report_data.to_json(made))
    in_json = {
        cell["exact"]
        for section in document["sections"]
        if section["kind"] == "table"
        for row in section["rows"]
        for cell in row
        if isinstance(cell, dict)
    }
    in_csv = {float(row["exact"]) for row in csv.DictReader(io.StringIO(report_data.to_csv(made))) if row["exact"]}
    assert exact <= in_json
    assert {float(value) for value in exact} <= in_csv


def test_each_number_says_how_it_is_known() -> None:
    plan, made = answered()
    (known,) = [each for each in made.sections if isinstance(each, Table) and each.title == "How each number is known"]

    assert {row[0] for row in known.rows} == {
        words.part_words(line.name).label for line in charts.ordered_lines(plan.ranks[0])
    }
    assert {row[1] for row in known.rows} <= set(words.BASIS_WORDS.values())


def test_a_plan_that_does_not_start_says_so_with_what_to_change() -> None:
    plan, made = answered(gpu_memory_utilization=0.2)

    html = Tags(report_html.to_html(made)).text
    assert not plan.will_start
    assert words.verdict(plan) in html
    assert plan.advice[0].change in html
    assert (plan.vllm_error or "").splitlines()[0] in html


# -- safety -------------------------------------------------------------------------------------------------------------


def test_nothing_is_interpreted_in_html() -> None:
    page = Tags(report_html.to_html(report(*evil_sections())))

    assert not [tag for tag, _ in page.tags if tag in {"script", "img", "iframe", "link", "object", "form", "base"}]
    assert not [name for _, given in page.tags for name in given if name.startswith("on") or name == "src"]
    assert page.text.count('<script>alert("x")</script>') >= 10


def test_nothing_is_fetched_and_only_the_link_leads_away() -> None:
    _, made = answered()
    page = Tags(report_html.to_html(made))

    assert [given["href"] for tag, given in page.tags if tag == "a"] == ["http://x/?a=1&b=<2>"]
    assert "url(http" not in report_html.to_html(made)
    policy = next(given["content"] for tag, given in page.tags if tag == "meta" and "http-equiv" in given)
    assert (policy or "").startswith("default-src 'none'")


def test_nothing_is_interpreted_in_markdown() -> None:
    text = report_markdown.to_markdown(report(*evil_sections()))

    outside = re.sub(r"(?ms)^`{3,}text$.*?^`{3,}$", "", text)
    assert "<script>" not in outside.replace("\\<", "")
    assert not re.search(r"(?<!\\)\[a\]\(", outside)
    assert all(line.count(" | ") == 1 for line in outside.splitlines() if line.startswith("| ") and "---" not in line)


def test_code_cannot_leave_its_fence() -> None:
    text = report_markdown.to_markdown(report(Code(text="a\n```\n````\nb")))

    assert "`````text\na\n```\n````\nb\n`````" in text


def test_no_cell_of_the_csv_is_a_formula() -> None:
    rows = list(
        csv.reader(
            io.StringIO(
                report_data.to_csv(report(*evil_sections(), Table(title="=1", columns=("=2",), rows=(("=3",),))))
            )
        )
    )

    assert not [cell for row in rows for cell in row if cell[:1] in {"=", "+", "@"}]


def test_json_knows_no_nan() -> None:
    made = report(Table(title="t", columns=("a",), rows=((Number(shown="–", exact=float("nan")),),)))

    assert json.loads(report_data.to_json(made))["sections"][0]["rows"] == [[{"shown": "–", "exact": None}]]


# -- the frame ----------------------------------------------------------------------------------------------------------


def test_the_language_stands_in_the_page() -> None:
    with speaking(CHINESE):
        made = report(Text(text=t("Plan")), language="zh-CN")

    page = Tags(report_html.to_html(made))
    assert page.tags[0] == ("html", {"lang": "zh-CN"})


def test_speaking_ends_with_its_block() -> None:
    with speaking(CHINESE):
        inside = t("Watch")

    assert inside != t("Watch") == "Watch"


def test_date_versions_and_link_stand_in_html_and_markdown() -> None:
    made = report(versions=(("KVScope", "0.1.0"), ("vLLM", "0.33.0")))

    for text in (Tags(report_html.to_html(made)).text, report_markdown.to_markdown(made)):
        assert "2026-11-29 12:30 UTC" in text
        assert "vLLM 0.33.0" in text
        assert "http://x/?a=1&b=" in text


def test_markdown_signs_of_a_page_are_undone() -> None:
    assert from_markdown(words.plain("a_b [c] **d** #1")) == "a_b [c] **d** #1"
    assert from_markdown("**8** (now)") == "8 (now)"
    assert from_markdown(":green[:material/check_circle:] yes").endswith("yes")


def test_a_page_s_rows_become_a_table_with_shown_and_exact() -> None:
    made = table("t", [{"Size": 2**30, "Name": "a\\_b", "None": None}], tables.FORMATS)

    assert made.rows == ((Number(shown=words.gib(2**30), exact=2**30), "a_b", None),)


def test_colours_are_the_theme_s() -> None:
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]["light"]

    assert list(PALETTE) == theme["chartCategoricalColors"]


# -- charts -------------------------------------------------------------------------------------------------------------


def test_a_waterfall_keeps_every_bar_where_it_was() -> None:
    plan, _ = answered()
    figure = charts.budget_waterfall(plan.ranks[0])
    drawn = chart("t", figure, charts.budget_alt(plan.ranks[0]))

    bars = sorted((bar.start, bar.end) for bars in drawn.bars for bar in bars.bars)
    assert bars[0][0] == 0
    assert all(first[1] == pytest.approx(second[0]) for first, second in itertools.pairwise(bars))
    assert drawn.y_axis.categories[0].startswith("Weights\n")
    assert [mark.text.split()[0] for mark in drawn.marks] == ["card", "vLLM's"]


def test_a_chart_has_a_title_a_description_and_its_numbers() -> None:
    plan, made = answered()
    html = report_html.to_html(made)
    page = Tags(html)

    names = [given["aria-labelledby"].split() for tag, given in page.tags if tag == "svg"]  # type: ignore[union-attr]
    ids = {given.get("id") for _, given in page.tags}
    assert len(names) == 2
    assert {name for pair in names for name in pair} <= ids
    assert charts.budget_alt(plan.ranks[0]) in page.text


def test_a_line_s_numbers_hold_both_ends() -> None:
    plan, made = answered()
    (curves,) = [each for each in made.sections if getattr(each, "lines", None) and getattr(each, "x_axis", None)]

    found = numbers_of(curves)
    assert found.rows[-1][0] == Number(shown=words.count(plan.pool.max_model_len), exact=plan.pool.max_model_len)
    assert len(found.rows) <= 12
    assert found.rows[-1][1].shown == words.three_digits(plan.pool.max_concurrency)
