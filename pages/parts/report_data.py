"""A report as data: JSON with every section, and CSV with a row for every cell, exact numbers beside what is shown."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from typing import Any

from pages.parts.downloads import inert
from pages.parts.report_chart import Chart
from pages.parts.report_numbers import numbers_of
from pages.parts.report_sections import (
    Cell,
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
    shown,
    tame,
)

FORMAT = 1
_CSV_COLUMNS = ("section", "table", "row", "column", "shown", "exact")


def to_json(report: Report) -> str:
    """The whole report; numbers as shown and exact."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "title": report.title,
        "subject": report.subject,
        "made": report.made.isoformat(timespec="seconds"),
        "language": report.language,
        "link": report.link,
        "versions": dict(report.versions),
        "sections": [_section(section) for section in report.sections],
    }
    return json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _section(section: Section) -> dict[str, Any]:
    match section:
        case Table():
            return _table(section)
        case Chart():
            return {
                "kind": "chart",
                "title": section.title,
                "text": section.alt,
                "lines": [{"name": line.name, "x": line.xs, "y": line.ys} for line in section.lines],
                "numbers": _table(numbers_of(section)),
            }
    kinds = {
        Heading: "heading",
        Text: "text",
        Verdict: "verdict",
        Figures: "figures",
        Findings: "findings",
        Code: "code",
        Link: "link",
    }
    return {"kind": kinds[type(section)]} | asdict(section)


def _table(section: Table) -> dict[str, Any]:
    rows = [[_cell(cell) for cell in row] for row in section.rows]
    return {"kind": "table", "title": section.title, "columns": section.columns, "rows": rows}


def _cell(cell: Cell) -> str | dict[str, Any] | None:
    return {"shown": cell.shown, "exact": cell.exact} if isinstance(cell, Number) else cell


def _finite(value: Any) -> Any:  # a JSON document
    """The document with null for what is no number: JSON knows no NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value


def to_csv(report: Report) -> str:
    """One row a cell of every table, chart and figure; `exact` is empty where a cell is no number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    chapter = report.title
    for section in report.sections:
        if isinstance(section, Heading):
            chapter = section.text
        for table in _tables(section):
            for number, row in enumerate(table.rows, start=1):
                for column, cell in zip(table.columns, row, strict=True):
                    exact = repr(cell.exact) if isinstance(cell, Number) else ""
                    writer.writerow(
                        [inert(_tamed(each)) for each in (chapter, table.title, number, column, shown(cell))] + [exact]
                    )
    return text.getvalue()


def _tamed(cell: object) -> object:
    return tame(cell) if isinstance(cell, str) else cell


def _tables(section: Section) -> list[Table]:
    match section:
        case Table():
            return [section]
        case Chart():
            return [numbers_of(section)] if section.needs_numbers else []
        case Figures(figures=figures):
            columns = tuple(figure.label for figure in figures)
            return [Table(title="", columns=columns, rows=(tuple(figure.value for figure in figures),))]
        case Verdict(text=text, reason=reason):
            return [Table(title="", columns=("verdict", "reason"), rows=((text, reason),))]
        case Findings(lines=lines):
            rows = tuple((line.severity, line.title, line.text) for line in lines)
            return [Table(title="", columns=("severity", "title", "text"), rows=rows)]
    return []
