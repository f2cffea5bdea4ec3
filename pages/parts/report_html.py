"""A report as one HTML file that needs nothing else: no script, no image or font from elsewhere; its print style gives a clean PDF."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from pages.parts.report_chart import Chart
from pages.parts.report_numbers import numbers_of
from pages.parts.report_sections import (
    Code,
    Figures,
    Findings,
    Heading,
    Number,
    Report,
    Section,
    Table,
    Text,
    Verdict,
    shown,
)
from pages.parts.report_style import STYLE
from pages.parts.report_svg import svg

# The file may load nothing at all: the browser itself holds it to that.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_SMALL = ' class="small"'
_MOST_UPRIGHT_COLUMNS = 9  # a table with more is printed across
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
        yield from _section(section, f"s{number}")
    yield "</main>"
    yield from _footer(report)
    yield "</body>\n</html>"


def _section(section: Section, name: str) -> Iterator[str]:
    match section:
        case Heading(text=text, level=level):
            yield f"<h{level}>{escape(text)}</h{level}>"
        case Text(text=text, is_small=is_small):
            yield f"<p{_SMALL if is_small else ''}>{escape(text)}</p>"
        case Verdict(text=text, reason=reason, tone=tone):
            sign = f'<span aria-hidden="true">{_SIGNS[tone]} </span>' if _SIGNS[tone] else ""
            yield f'<p class="verdict {tone}">{sign}{escape(text)}</p>'
            yield f"<p>{escape(reason)}</p>" if reason else ""
        case Figures():
            yield from _figures(section)
        case Table():
            yield from _table(section, name)
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


def _table(section: Table, name: str) -> Iterator[str]:
    if not section.rows:
        return
    numeric = [any(isinstance(row[place], Number) for row in section.rows) for place in range(len(section.columns))]
    wide = " wide" if len(section.columns) > _MOST_UPRIGHT_COLUMNS else ""
    yield f'<div class="table{wide}" role="region" tabindex="0" aria-labelledby="{name}-c">'
    yield f'<table>\n<caption id="{name}-c">{escape(section.title)}</caption>\n<thead><tr>'
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
        yield f'<p>{words}: <a href="{escape(report.link)}">{escape(report.link)}</a></p>'
    if report.versions:
        told = "; ".join(f"{name} {which}" for name, which in report.versions)
        yield f"<p>{escape(report.labels.get('versions', 'Versions'))}: {escape(told)}</p>"
    yield "</footer>"
