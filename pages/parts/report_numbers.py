"""A chart's numbers as a table that stands beside it: every bar, and of long lines some places."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np

from pages.parts import words
from pages.parts.language import t
from pages.parts.report_chart import Axis, Bar, Chart, Line
from pages.parts.report_sections import Cell, Number, Table

_MOST_ROWS = 12
_GAP = "\N{NO-BREAK SPACE}"  # a number and its unit stay on one line


def numbers_of(chart: Chart) -> Table:
    """The numbers of `chart`; of lines with many points the first, the last and some between."""
    return _of_bars(chart) if chart.bars else _of_lines(chart)


def _of_bars(chart: Chart) -> Table:
    names, values = (chart.y_axis, chart.x_axis) if chart.is_horizontal else (chart.x_axis, chart.y_axis)
    has_names = any(bars.name for bars in chart.bars)
    rows: list[tuple[Cell, ...]] = []
    for place, category in enumerate(names.categories):
        for bars in chart.bars:
            rows += [
                (
                    _on_one_line(category),
                    *([bars.name] if has_names else []),
                    _number(bar.end - bar.start, values),
                    _band(bar, values),
                )
                for bar in bars.bars
                if bar.place == place
            ]
    has_bands = any(row[-1] is not None for row in rows)
    columns = (names.title or t("Bar"), *([t("Part")] if has_names else []), values.title or t("Value"), t("90 % band"))
    kept = rows if has_bands else [row[:-1] for row in rows]
    return Table(
        title=t("The numbers of: {title}", title=chart.title),
        columns=columns if has_bands else columns[:-1],
        rows=tuple(kept),
    )


def _of_lines(chart: Chart) -> Table:
    lines = [line for line in chart.lines if line.xs and line.has_line]
    places = _places(lines)
    rows = tuple(
        (_number(place, chart.x_axis), *(_number(_at(line, place), chart.y_axis) for line in lines)) for place in places
    )
    unit = f" ({chart.y_axis.title})" if chart.y_axis.title else ""
    return Table(
        title=t("The numbers of: {title}", title=f"{chart.title}{unit}"),
        columns=(chart.x_axis.title or t("Place"), *(line.name or t("Value") for line in lines)),
        rows=rows,
    )


def _places(lines: list[Line]) -> list[float]:
    """At most `_MOST_ROWS` places of the longest line, both ends among them."""
    xs = max((line.xs for line in lines), key=len, default=())
    known = [x for x in xs if not math.isnan(x)]
    if len(known) <= _MOST_ROWS:
        return known
    return [known[int(place)] for place in np.linspace(0, len(known) - 1, _MOST_ROWS).round()]


def _at(line: Line, place: float) -> float | None:
    """The line's value at `place`, or at its nearest point on the left."""
    index = int(np.searchsorted(np.array(line.xs), place, side="right")) - 1
    return line.ys[index] if 0 <= index < len(line.ys) else None


def _number(value: float | None, axis: Axis) -> Cell:
    if value is None or math.isnan(value):
        return None
    if axis.kind == "time":
        return Number(shown=f"{datetime.fromtimestamp(value / 1000, UTC):%Y-%m-%d %H:%M:%S}", exact=value)
    if axis.kind == "category":
        return _on_one_line(axis.categories[int(value)])
    shown = (
        words.count(value)
        if float(value).is_integer() and not axis.is_percent
        else words.three_digits(100 * value if axis.is_percent else value)
    )
    text = f"{shown}{_GAP}%" if axis.is_percent else f"{shown}{axis.suffix.replace(' ', _GAP)}"
    return Number(shown=text, exact=value)


def _on_one_line(category: str) -> str:
    return category.replace("\n", ", ")


def _band(bar: Bar, axis: Axis) -> Cell:
    """The band of the bar's own size."""
    if bar.low is None or bar.high is None:
        return None
    ends: Iterator[Cell] = (_number(end - bar.start, axis) for end in (bar.low, bar.high))
    return " – ".join(end.shown for end in ends if isinstance(end, Number))
