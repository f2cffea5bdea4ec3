"""A report as Markdown: tables, findings, and each chart in words with its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

from pages.parts import words
from pages.parts.report_chart import Chart
from pages.parts.report_numbers import numbers_of
from pages.parts.report_sections import (
    Code,
    Figure,
    Figures,
    Findings,
    Heading,
    Link,
    Number,
    Report,
    Section,
    Table,
    Text,
    Verdict,
    shown,
    tame,
)

_FENCE = re.compile(r"`{3,}")
_LINK_SIGNS = "%:/?#[]@!$&'()*+,;=~"
_LINE_ENDS = re.compile(r"\s*\n\s*")


def to_markdown(report: Report) -> str:
    """The whole file."""
    return "\n\n".join(part for part in _parts(report) if part) + "\n"


def _parts(report: Report) -> Iterator[str]:
    yield f"# {_plain(report.title)}"
    yield _plain(report.subject)
    yield f"{_plain(report.labels.get('made', 'Made'))} {report.made:%Y-%m-%d %H:%M} UTC"
    for section in report.sections:
        yield from _section(section)
    yield "---"
    if report.link:
        yield f"{_plain(report.labels.get('link', 'Opens this page again'))}: {_address(report.link)}"
    if report.versions:
        told = "; ".join(f"{name} {which}" for name, which in report.versions)
        yield f"{_plain(report.labels.get('versions', 'Versions'))}: {_plain(told)}"


def _section(section: Section) -> Iterator[str]:
    match section:
        case Heading(text=text, level=level):
            yield f"{'#' * level} {_plain(text)}"
        case Text(text=text):
            yield _plain(text)
        case Verdict(text=text, reason=reason):
            yield f"**{_plain(text)}**"
            yield _plain(reason)
        case Figures(figures=figures):
            yield "\n".join(_figure(each) for each in figures)
        case Table():
            yield from _table(section)
        case Link(text=text, url=url):
            yield f"{_plain(text)}: {_address(url)}"
        case Findings(lines=lines):
            yield "\n".join(f"- **{_plain(line.title)}.** {_plain(line.text)}" for line in lines)
        case Code(text=text):
            fence = "`" * max([2, *(len(run) for run in _FENCE.findall(text))]) + "`"
            yield f"{fence}text\n{text}\n{fence}"
        case Chart():
            yield from _chart(section)


def _figure(figure: Figure) -> str:
    below = f" ({_plain(figure.below)})" if figure.below else ""
    return f"- {_plain(figure.label)}: **{_plain(figure.value)}**{below}"


def _chart(section: Chart) -> Iterator[str]:
    yield f"**{_plain(section.title)}**"
    yield _plain(section.alt)
    if section.needs_numbers:
        yield from _table(numbers_of(section))


def _table(section: Table) -> Iterator[str]:
    if not section.rows:
        return
    numeric = [any(isinstance(row[place], Number) for row in section.rows) for place in range(len(section.columns))]
    lines = [
        _line(section.columns),
        _line(["---:" if is_numeric else "---" for is_numeric in numeric], is_plain=False),
        *(_line([shown(cell) for cell in row]) for row in section.rows),
    ]
    yield f"*{_plain(section.title)}*"
    yield "\n".join(lines)


def _line(cells: tuple[str, ...] | list[str], *, is_plain: bool = True) -> str:
    return f"| {' | '.join(_plain(cell) if is_plain else cell for cell in cells)} |"


def _plain(text: str) -> str:
    """Text on one line, shown and never interpreted."""
    told = words.plain(_LINE_ENDS.sub(" ", tame(text)).strip())
    return f"\\{told}" if told.startswith("- ") else told


def _address(url: str) -> str:
    """A link of the dashboard's own; any other address is told and leads nowhere."""
    if not url.startswith(("http://", "https://")):
        return _plain(url)
    return f"<{quote(url, safe=_LINK_SIGNS)}>"
