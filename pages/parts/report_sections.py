"""What a report is made of: typed sections, in the reader's language, numbers as the page shows them beside their exact values.

Pure; knows no Streamlit. Files are made of it by `report_html`, `report_markdown` and `report_data`.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pages.parts.report_chart import Chart

Tone = Literal["good", "bad", "neutral"]
Severity = Literal["info", "warning", "refusal"]
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]()<>#+!|~$:])")
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_LINK = re.compile(r"(?<!\\)\[((?:\\.|[^\[\]\\])+)\]\((https?://[^\s()]+)\)")
_ICON = re.compile(r":[a-z]*\[?:material/[a-z_]+:\]?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number as the page shows it, and exactly."""

    shown: str
    exact: float


Cell = str | Number | None  # None is drawn as a dash


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A heading; level 2 is a chapter, 3 a part of one."""

    text: str
    level: Literal[2, 3] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One paragraph."""

    text: str
    is_small: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer in one line, and why."""

    text: str
    reason: str = ""
    tone: Tone = "neutral"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of the head: its name, the value, and what stands below it (a band, a unit)."""

    label: str
    value: str
    below: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures side by side."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with a title, columns and rows of as many cells."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingLine:
    """One thing that the reader must know."""

    severity: Severity
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found, gravest first."""

    lines: tuple[FindingLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Text as it stands: a command, a log."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An address of the dashboard's own, and what it opens."""

    text: str
    url: str


Section = Heading | Text | Verdict | Figures | Table | Findings | Code | Chart | Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole report. `versions` are pairs of what and which; `link` opens the page again as it was."""

    title: str
    subject: str
    sections: tuple[Section, ...]
    made: datetime
    link: str | None = None
    versions: tuple[tuple[str, str], ...] = ()
    language: str = "en"  # as an HTML `lang` attribute names it
    labels: Mapping[str, str] = field(default_factory=dict)  # the frame's own words in the reader's language


def from_markdown(text: str) -> str:
    """Text that a page escapes for Markdown, as it is: no backslashes, no stars, no icons; a link's address in brackets."""
    plain = _LINK.sub(r"\1 (\2)", _ICON.sub("", text))
    if "**" in plain.replace("\\*", ""):
        plain = _BOLD.sub(r"\1", plain)
    return _ESCAPED.sub(r"\1", plain).replace("`", "").strip()


def table(
    title: str,
    rows: Sequence[Mapping[str, Any]],  # a page's rows: texts, numbers or None
    formats: Mapping[str, Callable[[Any], str]] | None = None,
    say: Callable[[str], str] = str,
) -> Table:
    """A page's rows as a section; `formats` say how a column's numbers are written, `say` how its heading is said."""
    columns = tuple(rows[0]) if rows else ()
    shown = formats or {}
    cells = tuple(tuple(_cell(row.get(column), shown.get(column)) for column in columns) for row in rows)
    return Table(title=title, columns=tuple(say(column) for column in columns), rows=cells)


def _cell(value: Any, write: Callable[[Any], str] | None) -> Cell:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return from_markdown(str(value))
    return Number(shown=write(value) if write else f"{value:,}", exact=value)


def tame(text: str) -> str:
    """`text` with a sign in place of each one that no reader sees but that a file or a line's direction obeys."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def shown(cell: Cell) -> str:
    """A cell as a reader sees it."""
    if cell is None:
        return "–"
    return cell.shown if isinstance(cell, Number) else cell


def escape(text: str) -> str:
    """`text` as HTML and SVG show it, in an element or a quoted attribute."""
    return html.escape(tame(text))
