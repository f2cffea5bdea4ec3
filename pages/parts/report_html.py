"""A report as one HTML file that needs nothing else: no script, no image or font from elsewhere; its print style gives a clean PDF."""

from __future__ import annotations

from collections.abc import Iterator

from pages.parts.language import t
from pages.parts.report_chart import Chart
from pages.parts.report_numbers import numbers_of
from pages.parts.report_sections import (
    Code,
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
    escape,
    shown,
)
from pages.parts.report_style import STYLE
from pages.parts.report_svg import svg

# The file may load nothing at all: the browser itself holds it to that.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_SMALL = ' class="small"'
_MOST_LOOSE_COLUMNS = 8  # a table with more is printed small
_MOST_LETTERS, _CELL_LETTERS = (
    140,
    24,
)  # a small table with more letters across is printed across, a cell counting at most
_MOST_NUMBERS = 10  # a table with more columns of numbers is printed in parts
_PART_COLUMNS, _MOST_KEYS = 8, 3  # of a part: its columns of numbers, and those that name the row
_FEW_ROWS = 9  # so many stay on one sheet
_SHORT_CELL = 18  # letters that stay on one line
_SIGNS = {"good": "✓", "bad": "✗", "neutral": ""}


def to_html(report: Report) -> str:
    """The whole file."""
    return "".join(f"{part}\n" for part in _parts(report))


def _parts(report: Report) -> Iterator[str]:
    title = f"{report.title} · {report.subject}" if report.subject else report.title
    yield f'<!doctype html>\n<html lang="{escape(report.language)}">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield f'<header>\n<p class="brand">KVScope</p>\n<h1>{escape(report.title)}</h1>'
    if report.subject:
        yield f'<p class="subject">{escape(report.subject)}</p>'
    yield f'<p class="small">{escape(report.labels.get("made", "Made"))} {report.made:%Y-%m-%d %H:%M} UTC</p>\n</header>\n<main>'
    for number, section in enumerate(report.sections):
        before = report.sections[number - 1] if number else None
        if isinstance(section, Table):
            is_told = isinstance(before, Heading) and before.text == section.title
            yield from _whole_table(section, f"s{number}", is_told=is_told)
        elif isinstance(section, Heading):
            yield _heading(section, next(iter(report.sections[number + 1 : number + 2]), None))
        else:
            yield from _section(section, f"s{number}")
    yield "</main>"
    yield from _footer(report)
    yield "</body>\n</html>"


def _section(section: Section, name: str) -> Iterator[str]:
    match section:
        case Text(text=text, is_small=is_small):
            yield f"<p{_SMALL if is_small else ''}>{escape(text)}</p>"
        case Verdict(text=text, reason=reason, tone=tone):
            sign = f'<span aria-hidden="true">{_SIGNS[tone]} </span>' if _SIGNS[tone] else ""
            yield f'<p class="verdict {tone}">{sign}{escape(text)}</p>'
            yield f"<p>{escape(reason)}</p>" if reason else ""
        case Figures():
            yield from _figures(section)
        case Link(text=text, url=url):
            yield f'<p class="small">{escape(text)}: {_anchor(url)}</p>'
        case Findings():
            yield from _findings(section)
        case Code(text=text):
            yield f'<pre tabindex="0"><code>{escape(text)}</code></pre>'
        case Chart():
            yield from _chart(section, name)


def _figures(section: Figures) -> Iterator[str]:
    yield '<dl class="figures">'
    for each in section.figures:
        below = f'<dd class="below">{escape(each.below)}</dd>' if each.below else ""
        yield f"<div><dt>{escape(each.label)}</dt><dd>{escape(each.value)}</dd>{below}</div>"
    yield "</dl>"


def _heading(section: Heading, after: Section | None) -> str:
    """The heading, on the sheet of the table that it stands over."""
    wide = ' class="wide"' if isinstance(after, Table) and _is_across(after) else ""
    return f"<h{section.level}{wide}>{escape(section.text)}</h{section.level}>"


def _whole_table(section: Table, name: str, *, is_told: bool) -> Iterator[str]:
    """The table as a screen scrolls it, and where it has very many columns the parts that paper has room for."""
    parts = _parts_for_paper(section)
    look = "screen" if parts else "wide" if _is_across(section) else "dense" if _is_dense(section) else ""
    yield from _table(section, name, look=look, is_told=is_told)
    for number, part in enumerate(parts):
        yield from _table(part, f"{name}-{number}", look="paper")


def _is_across(section: Table) -> bool:
    letters = sum(
        min(max((len(shown(row[place])) for row in section.rows), default=0), _CELL_LETTERS)
        for place in range(len(section.columns))
    )
    return _is_dense(section) and letters > _MOST_LETTERS and not _parts_for_paper(section)


def _is_dense(section: Table) -> bool:
    return len(section.columns) > _MOST_LOOSE_COLUMNS


def _numeric(section: Table) -> list[bool]:
    return [any(isinstance(row[place], Number) for row in section.rows) for place in range(len(section.columns))]


def _parts_for_paper(section: Table) -> list[Table]:
    """The table's columns in parts, each with those that name the row; none where one sheet has room for all."""
    numeric = _numeric(section)
    if sum(numeric) <= _MOST_NUMBERS:
        return []
    keys = min(numeric.index(True), _MOST_KEYS)
    places = [
        (*range(keys), *range(start, min(start + _PART_COLUMNS, len(numeric))))
        for start in range(keys, len(numeric), _PART_COLUMNS)
    ]
    return [
        Table(
            title=t("{title}, part {part} of {parts}", title=section.title, part=number + 1, parts=len(places)),
            columns=tuple(section.columns[place] for place in kept),
            rows=tuple(tuple(row[place] for place in kept) for row in section.rows),
        )
        for number, kept in enumerate(places)
    ]


def _table(section: Table, name: str, *, look: str = "", is_told: bool = False) -> Iterator[str]:
    if not section.rows:
        return
    numeric = _numeric(section)
    kinds = " ".join(kind for kind in ("table", look, "few" if len(section.rows) <= _FEW_ROWS else "") if kind)
    title = f'<span class="heard">{escape(section.title)}</span>' if is_told else escape(section.title)
    yield f'<div class="{kinds}" role="region" tabindex="0" aria-labelledby="{name}-c">'
    yield f'<table>\n<caption id="{name}-c">{title}</caption>\n<thead><tr>'
    for column, is_numeric in zip(section.columns, numeric, strict=True):
        yield f'<th scope="col"{_flush(is_numeric=is_numeric)}>{escape(column)}</th>'
    yield "</tr></thead>\n<tbody>"
    for row in section.rows:
        cells = "".join(
            f"<td{_flush(is_numeric=is_numeric, text=shown(cell))}>{escape(shown(cell))}</td>"
            for cell, is_numeric in zip(row, numeric, strict=True)
        )
        yield f"<tr>{cells}</tr>"
    yield "</tbody></table></div>"


def _flush(*, is_numeric: bool, text: str = "") -> str:
    if is_numeric:
        return ' class="n"'
    return ' class="s"' if 0 < len(text) <= _SHORT_CELL else ""


def _findings(section: Findings) -> Iterator[str]:
    if section.lines:
        yield '<ul class="findings">'
        for line in section.lines:
            yield f'<li class="{line.severity}"><strong>{escape(line.title)}.</strong> {escape(line.text)}</li>'
        yield "</ul>"


def _chart(section: Chart, name: str) -> Iterator[str]:
    yield f"<figure>\n<figcaption>{escape(section.title)}</figcaption>\n{svg(section, name)}\n</figure>"
    if section.needs_numbers:
        yield from _table(numbers_of(section), f"{name}-n")


def _footer(report: Report) -> Iterator[str]:
    yield "<footer>"
    if report.link:
        words = escape(report.labels.get("link", "Opens this page again"))
        yield f"<p>{words}: {_anchor(report.link)}</p>"
    if report.versions:
        told = "; ".join(f"{name} {which}" for name, which in report.versions)
        yield f"<p>{escape(report.labels.get('versions', 'Versions'))}: {escape(told)}</p>"
    yield "</footer>"


def _anchor(url: str) -> str:
    """A link of the dashboard's own; any other address is told and leads nowhere."""
    shown_url = escape(url)
    return f'<a href="{shown_url}">{shown_url}</a>' if url.startswith(("http://", "https://")) else shown_url
