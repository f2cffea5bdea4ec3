"""No name, file, label or log line that comes from outside gains power in any page's report, in any kind of file."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from pages.parts import report_data, report_html, report_markdown
from pages.parts.report_sections import Number, Report, Table
from tests.hostile_reports import ALL_AT_ONCE, HOSTILE, LONG, PAGES, report_of

FORBIDDEN = {
    "script",
    "img",
    "iframe",
    "link",
    "object",
    "embed",
    "form",
    "input",
    "base",
    "audio",
    "video",
    "foreignobject",
}
ADDRESSES = {"href", "src", "srcset", "xlink:href", "action", "formaction", "data", "poster", "background"}
OUR_LINK = "http://127.0.0.1:8501/"


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.unmatched: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unmatched.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


CASES = [(page, ALL_AT_ONCE) for page in PAGES]
CASES += [(page, evil) for page in ("plan", "scenarios", "calibration") for evil in HOSTILE]


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def report(page: str, tmp_path: Path) -> Report:
    return report_of(page, ALL_AT_ONCE, tmp_path)


@pytest.fixture(params=CASES, ids=[f"{page}-{place}" for place, (page, _) in enumerate(CASES)])
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> Report:
    """Each page's report with all signs at once, and some with each sign alone: it is harmless too."""
    page, evil = request.param
    return report_of(page, evil, tmp_path)


def test_html_holds_no_power(hostile: Report) -> None:
    html = Page(report_html.to_html(hostile))

    assert [tag for tag, _ in html.tags if tag in FORBIDDEN] == []
    assert [name for _, given in html.tags for name in given if name.startswith("on") or name == "srcdoc"] == []
    addresses = [value or "" for _, given in html.tags for name, value in given.items() if name in ADDRESSES]
    assert [address[:60] for address in addresses if not address.startswith(OUR_LINK)] == []
    fills = [given.get("fill") or "" for _, given in html.tags]
    assert [fill for fill in fills if "url(" in fill and not fill.startswith("url(#")] == []
    assert html.unmatched == []
    assert html.open == []


def test_html_shows_what_was_given(report: Report) -> None:
    text = Page(report_html.to_html(report)).text

    assert text.count("<script>alert(1)</script>") >= 1
    assert "模型" in text
    assert "\x00" not in text
    assert [sign for sign in text if unicodedata.category(sign) == "Cc" and sign not in "\n\t"] == []


def tokens_of(text: str) -> list[Token]:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    found: list[Token] = []
    for token in parser.parse(text):
        found += [token, *(token.children or [])]
    return found


def test_markdown_holds_no_power(hostile: Report) -> None:
    tokens = tokens_of(report_markdown.to_markdown(hostile))

    assert [token.content[:80] for token in tokens if token.type in {"html_block", "html_inline", "image"}] == []
    links = [str(token.attrs["href"]) for token in tokens if token.type == "link_open"]
    assert [link[:60] for link in links if not link.startswith(OUR_LINK)] == []
    assert [token.content[:80] for token in tokens if token.type in {"code_inline", "s_open", "code_block"}] == []


def test_markdown_keeps_its_tables_whole(hostile: Report) -> None:
    tokens = tokens_of(report_markdown.to_markdown(hostile))
    places = [place for place, token in enumerate(tokens) if token.type in {"tr_open", "tr_close"}]
    widths = [
        sum(token.type in {"th_open", "td_open"} for token in tokens[start:end])
        for start, end in zip(places[::2], places[1::2], strict=True)
    ]
    tables = [each for each in tables_of(hostile) if each.rows]

    assert sum(token.type == "table_open" for token in tokens) >= len(tables)
    for table in tables:
        assert widths.count(len(table.columns)) >= len(table.rows) + 1


def tables_of(report: Report) -> list[Table]:
    return [section for section in report.sections if isinstance(section, Table)]


def numbers_of(report: Report) -> list[float]:
    cells = [cell for table in tables_of(report) for row in table.rows for cell in row]
    return [cell.exact for cell in cells if isinstance(cell, Number) and math.isfinite(cell.exact)]


def test_csv_comes_back_and_no_cell_is_a_formula(hostile: Report) -> None:
    text = report_data.to_csv(hostile)
    rows = list(csv.reader(io.StringIO(text, newline="")))

    assert {len(row) for row in rows} == {6}
    assert [cell[:40] for row in rows for cell in row if is_formula(cell)] == []
    exact = [float(row[5]) for row in rows[1:] if row[5]]
    assert [number for number in numbers_of(hostile) if number not in exact] == []


def is_formula(cell: str) -> bool:
    """Whether a spreadsheet would run the cell: it begins like a formula and is no number."""
    if cell.lstrip("\t\r\n ")[:1] not in {"=", "+", "-", "@"}:
        return False
    return re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", cell) is None


def test_json_comes_back_with_the_numbers(report: Report) -> None:
    document = json.loads(report_data.to_json(report))

    assert document["subject"] == ALL_AT_ONCE
    found = numbers_in(document["sections"])
    assert [number for number in numbers_of(report) if number not in found] == []


def numbers_in(part: Any) -> list[float]:  # a part of a JSON document
    if isinstance(part, dict):
        own = [part["exact"]] if isinstance(part.get("exact"), (int, float)) else []
        return own + [number for value in part.values() for number in numbers_in(value)]
    return [number for value in part for number in numbers_in(value)] if isinstance(part, list) else []


def test_a_long_name_leaves_the_drawings_as_wide_as_they_were(tmp_path: Path) -> None:
    html = Page(report_html.to_html(report_of("calibration", LONG, tmp_path)))

    boxes = [given["viewbox"] for tag, given in html.tags if tag == "svg"]
    assert boxes
    assert all((box or "").startswith("0 0 720 ") for box in boxes)
