"""A page's Plotly figure as a report's chart: the same values, axes and marks. Imports no Streamlit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pages.parts.report_chart import Axis, Bar, Bars, Chart, Line, Mark

# The theme's category colours on a light ground (.streamlit/config.toml): trace i takes the i-th.
PALETTE = (
    "#3f6fb0", "#d98a2b", "#9a6fb0", "#c75f6e", "#1f8a7a", "#5f6b76", "#8a939c", "#b0566a", "#c9d0d6", "#6b7f2a",
)  # fmt: skip
_BREAK = re.compile(r"<br\s*/?>")
_TAG = re.compile(r"</?[a-z]+[^>]*>")
_MOST_SHADES = 100
_GUIDE = "#5f6b76"


def chart(title: str, figure: Any, alt: str, *, needs_numbers: bool = True) -> Chart:  # a plotly Figure: no types
    """The chart of `figure`, called `title`; `alt` says what it shows. `needs_numbers`: no table beside it has them."""
    traces = list(figure.data)
    layout = figure.layout
    bars = [trace for trace in traces if trace.type == "bar"]
    lines = [trace for trace in traces if trace.type == "scatter"]
    is_horizontal = any(trace.orientation == "h" for trace in bars)
    names = _categories(bars, layout, is_horizontal=is_horizontal)
    x_axis, y_axis = _axis(layout.xaxis), _axis(layout.yaxis)
    if bars and is_horizontal:
        y_axis = Axis(title=y_axis.title, kind="category", categories=tuple(map(_rows, names)))
    elif bars:
        x_axis = Axis(title=x_axis.title, kind="category", categories=tuple(map(_rows, names)))
    return Chart(
        title=title,
        alt=alt,
        x_axis=x_axis,
        y_axis=y_axis,
        lines=tuple(_line(trace, place) for place, trace in enumerate(traces) if trace in lines),
        bars=tuple(_stacked(bars, traces, names, layout, is_horizontal=is_horizontal)),
        is_horizontal=is_horizontal,
        marks=tuple(_marks(layout)),
        guides=tuple(_guides(layout)),
        shades=tuple(_shades(layout)),
        has_legend=layout.showlegend is not False,
        needs_numbers=needs_numbers,
    )


def plain(text: object) -> str:
    """A label without Plotly's tags; a line break becomes ", "."""
    return ", ".join(_rows(text).split("\n"))


def _rows(text: object) -> str:
    """A label without Plotly's tags; a line break stays one."""
    words = [_TAG.sub("", part).strip() for part in _BREAK.split(str(text or ""))]
    return "\n".join(part for part in words if part)


def _axis(axis: Any) -> Axis:  # of a plotly layout
    kind = {"log": "log", "date": "time", "category": "category"}.get(axis.type or "", "linear")
    low, high = (None, None) if axis.range is None else (_number(axis.range[0]), _number(axis.range[1]))
    if kind == "log":
        low, high = (None if low is None else 10**low), (None if high is None else 10**high)
    if axis.rangemode == "tozero" and low is None and kind == "linear":
        low = 0.0
    return Axis(
        title=plain(axis.title.text),
        kind=kind,  # type: ignore[arg-type]  # one of the four
        low=low,
        high=high,
        suffix=axis.ticksuffix or "",
        is_percent="%" in (axis.tickformat or ""),
    )


def _number(value: Any) -> float | None:  # a number or a date of a figure
    if value is None:
        return None
    if isinstance(value, (int, float, np.number)):
        return None if math.isnan(float(value)) else float(value)
    try:
        return float(np.datetime64(value, "ms").astype(np.int64))
    except ValueError:
        return None  # a category's name: no number


def _numbers(values: Any) -> list[float | None]:  # a trace's array
    return [] if values is None else [_number(value) for value in values]


def _line(trace: Any, place: int) -> Line:
    ys = _numbers(trace.y)
    xs = _places(trace, len(ys))
    mode = trace.mode or "lines"
    colour = (trace.line.color if "lines" in mode else trace.marker.color) or PALETTE[place % len(PALETTE)]
    return Line(
        name=plain(trace.name),
        xs=tuple(x if x is not None else math.nan for x in xs),
        ys=tuple(ys),
        colour=str(colour),
        dash=trace.line.dash or "solid",
        has_line="lines" in mode,
        has_points="markers" in mode,
        is_stepped=trace.line.shape == "hv",
    )


def _places(trace: Any, count: int) -> list[float | None]:
    if trace.x is not None:
        return _numbers(trace.x)
    start, step = _number(trace.x0) or 0.0, _number(trace.dx) or 1.0
    return [start + step * place for place in range(count)]


def _categories(bars: Sequence[Any], layout: Any, *, is_horizontal: bool) -> tuple[str, ...]:
    """The bars' categories from the top or the left on."""
    named = [
        value for trace in bars for value in ((trace.y if is_horizontal else trace.x) if trace.x is not None else ())
    ]
    axis = layout.yaxis if is_horizontal else layout.xaxis
    if axis.categoryarray is not None:
        ordered = list(axis.categoryarray)
        named = ordered[::-1] if is_horizontal else ordered
    return tuple(dict.fromkeys(str(name) for name in named))


def _stacked(
    bars: Sequence[Any], traces: Sequence[Any], names: Sequence[str], layout: Any, *, is_horizontal: bool
) -> Iterator[Bars]:
    """The bars of each trace, each beginning at its base or where the stack below it ends."""
    is_stack = layout.barmode in {"stack", "relative"}
    ends: dict[tuple[str, bool], float] = {}
    for trace in bars:
        categories = [str(name) for name in (trace.y if is_horizontal else trace.x)]
        values = [value or 0.0 for value in _numbers(trace.x if is_horizontal else trace.y)]
        bases = _numbers(trace.base) if trace.base is not None else [0.0] * len(values)
        found = []
        for place, (name, value) in enumerate(zip(categories, values, strict=True)):
            start = bases[place] or 0.0
            if is_stack:
                start = ends.get((name, value < 0), 0.0)
                ends[name, value < 0] = start + value
            low, high = _band(trace, place, start + value)
            found.append(Bar(place=names.index(name), start=start, end=start + value, low=low, high=high))
        if found:
            colour, pattern = _look(trace, traces.index(trace))
            yield Bars(name=plain(trace.name), bars=tuple(found), colour=colour, pattern=pattern)  # type: ignore[arg-type]  # one of three


def _band(trace: Any, place: int, end: float) -> tuple[float | None, float | None]:
    error = trace.error_x
    if error is None or error.array is None:
        return None, None
    high, low = _numbers(error.array)[place] or 0.0, _numbers(error.arrayminus)[place] or 0.0
    return (None, None) if not high and not low else (end - low, end + high)


def _look(trace: Any, place: int) -> tuple[str, str]:
    colour = trace.marker.color
    shape = trace.marker.pattern.shape if trace.marker.pattern is not None else ""
    first = shape if isinstance(shape, str) else next(iter(shape or ()), "")
    return str(colour) if isinstance(colour, str) else PALETTE[place % len(PALETTE)], first or ""


def _marks(layout: Any) -> Iterator[Mark]:
    """The figure's lines across, with the words of the note at their place."""
    for shape in layout.shapes or ():
        if shape.type != "line":
            continue
        x0, x1, y0, y1 = (_number(value) for value in (shape.x0, shape.x1, shape.y0, shape.y1))
        if x0 is not None and x0 == x1:
            yield Mark(axis="x", at=x0, text=_note(layout.annotations, "x", x0))
        elif y0 is not None and y0 == y1:
            yield Mark(axis="y", at=y0, text=_note(layout.annotations, "y", y0))


def _guides(layout: Any) -> Iterator[Line]:
    """The figure's slanting lines."""
    for shape in layout.shapes or ():
        ends = [_number(value) for value in (shape.x0, shape.x1, shape.y0, shape.y1)]
        known = [end for end in ends if end is not None]
        if shape.type == "line" and len(known) == len(ends) and known[0] != known[1] and known[2] != known[3]:
            yield Line(name="", xs=(known[0], known[1]), ys=(known[2], known[3]), colour=_GUIDE, dash="dot")


def _note(annotations: Iterable[Any], axis: str, at: float) -> str:
    for note in annotations or ():
        place = _number(getattr(note, axis)) if getattr(note, f"{axis}ref", "") not in {"paper", None} else None
        place = _number(getattr(note, axis)) if place is None and getattr(note, f"{axis}ref", None) is None else place
        if place is not None and math.isclose(place, at):
            return plain(note.text)
    return ""


def _shades(layout: Any) -> Iterator[tuple[float, float]]:
    for shape in (layout.shapes or ())[:_MOST_SHADES]:
        x0, x1 = _number(shape.x0), _number(shape.x1)
        if shape.type == "rect" and x0 is not None and x1 is not None:
            yield x0, x1
