"""Draws a report's chart as one inline SVG: no script, nothing from elsewhere, a title and what it shows in words within."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pages.parts.report_axes import scales
from pages.parts.report_chart import Bars, Chart, Line
from pages.parts.report_sections import escape

WIDTH = 720
_LINE_HEIGHT, _ROW_HEIGHT, _TOP, _BOTTOM, _RIGHT = 250, 38, 12, 46, 18
_LETTER = 6.4  # the width of one at 12 px, on average
_WIDEST_LABEL, _WIDEST_NAME = 250, 330
_INK, _GRID, _AXIS, _GAP = "#0b1620", "#d5dce2", "#5f6b76", "#e8ecef"
_DASHES = {"dash": "8 5", "dot": "2 4", "dashdot": "8 4 2 4", "longdash": "12 5"}
_MARK_ROWS = 2


def svg(chart: Chart, name: str) -> str:
    """The drawing of `chart`; `name` keeps its ids apart from other drawings of the page."""
    return "".join(_Drawing(chart, name).parts())


class _Drawing:
    """One drawing: its measures, scales and parts."""

    def __init__(self, chart: Chart, name: str) -> None:
        self.chart, self.name = chart, name
        self.legend = _legend_rows(chart)
        marks = [mark for mark in chart.marks if mark.text]
        self.top = _TOP + 20 * len(self.legend) + 16 * min(len(marks), _MARK_ROWS) * bool(marks)
        rows = len(chart.y_axis.categories) * _ROW_HEIGHT if chart.is_horizontal else _LINE_HEIGHT
        self.bottom = self.top + rows
        self.height = self.bottom + _BOTTOM
        self.left = _left(chart)
        down = (self.top, self.bottom) if chart.is_horizontal else (self.bottom, self.top)
        self.x, self.y = scales(chart, (self.left, WIDTH - _RIGHT), down)

    def parts(self) -> Iterator[str]:
        ids = f"{self.name}-t {self.name}-d"
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:.0f}" role="img" '
            f'aria-labelledby="{ids}" class="chart" font-size="12" fill="{_INK}">'
        )
        yield f'<title id="{self.name}-t">{escape(self.chart.title)}</title>'
        yield f'<desc id="{self.name}-d">{escape(self.chart.alt)}</desc>'
        yield f"<defs>{''.join(self._patterns())}</defs>"
        yield from self._legend()
        yield from self._shades()
        yield from self._grid()
        for line in self.chart.guides:
            yield from self._line(line)
        for place, bars in enumerate(self.chart.bars):
            yield from self._bars(bars, place)
        for line in self.chart.lines:
            yield from self._line(line)
        yield from self._marks()
        yield "</svg>"

    def _patterns(self) -> Iterator[str]:
        for place, bars in enumerate(self.chart.bars):
            if bars.pattern:
                cross = '<path d="M8 0L0 8" stroke="#fff" stroke-width="2"/>' if bars.pattern == "x" else ""
                yield (
                    f'<pattern id="{self.name}-p{place}" width="8" height="8" patternUnits="userSpaceOnUse">'
                    f'<rect width="8" height="8" fill="{escape(bars.colour)}"/>'
                    f'<path d="M0 0L8 8" stroke="#fff" stroke-width="2"/>{cross}</pattern>'
                )

    def _legend(self) -> Iterator[str]:
        for row, entries in enumerate(self.legend):
            at, y = float(self.left), _TOP + 20 * row + 6
            for name, colour, dash, kind in entries:
                if kind == "points":
                    yield f'<circle cx="{at + 11:.1f}" cy="{y}" r="4" fill="{escape(colour)}"/>'
                elif kind == "bars":
                    yield f'<rect x="{at:.1f}" y="{y - 6}" width="22" height="12" fill="{escape(colour)}"/>'
                else:
                    yield f'<line x1="{at:.1f}" x2="{at + 22:.1f}" y1="{y}" y2="{y}" {_stroke(colour, dash)}/>'
                yield f'<text x="{at + 28:.1f}" y="{y + 4}">{escape(_shortened(name, _WIDEST_NAME))}</text>'
                at += 50 + min(_LETTER * _width(name), _WIDEST_NAME)

    def _shades(self) -> Iterator[str]:
        for start, end in self.chart.shades:
            x0, x1 = self.x.place(start), self.x.place(end)
            if x1 > x0:
                yield f'<rect x="{x0:.1f}" y="{self.top}" width="{x1 - x0:.1f}" height="{self.bottom - self.top}" fill="{_GAP}"/>'

    def _grid(self) -> Iterator[str]:
        for at, text in self.x.ticks():
            if self.x.axis.kind != "category":
                yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{self.top}" y2="{self.bottom}" stroke="{_GRID}"/>'
            yield self._below(at, text)
        for at, text in self.y.ticks():
            if self.y.axis.kind == "category":
                yield from self._row_label(at, text)
                continue
            yield f'<line x1="{self.left}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="{_GRID}"/>'
            yield f'<text x="{self.left - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        middle = (self.left + WIDTH - _RIGHT) / 2
        if self.x.axis.title:
            yield f'<text x="{middle:.1f}" y="{self.bottom + 36}" text-anchor="middle" fill="{_AXIS}">{escape(self.x.axis.title)}</text>'
        if self.y.axis.title:
            half = (self.top + self.bottom) / 2
            yield (
                f'<text transform="translate(14 {half:.1f}) rotate(-90)" text-anchor="middle" fill="{_AXIS}">'
                f"{escape(self.y.axis.title)}</text>"
            )

    def _below(self, at: float, text: str) -> str:
        """A tick's words below the x axis, whole even at the drawing's edges."""
        rows = text.split("\n")
        half = _LETTER * max(map(_width, rows)) / 2
        anchor, x = ("end", WIDTH - 1.0) if at + half > WIDTH else ("start", 1.0) if at < half else ("middle", at)
        return "".join(
            f'<text x="{x:.1f}" y="{self.bottom + 17 + 13 * row}" text-anchor="{anchor}">{escape(part)}</text>'
            for row, part in enumerate(rows)
        )

    def _row_label(self, at: float, text: str) -> Iterator[str]:
        """The name of a lying bar, its value below it."""
        rows = [_shortened(part, self.left - 12) for part in text.split("\n")]
        for row, part in enumerate(rows):
            y = at + 4 + 14 * (row - (len(rows) - 1) / 2)
            weight = ' font-weight="600"' if row else ""
            yield f'<text x="{self.left - 8}" y="{y:.1f}" text-anchor="end"{weight}>{escape(part)}</text>'

    def _bars(self, bars: Bars, place: int) -> Iterator[str]:
        fill = f"url(#{self.name}-p{place})" if bars.pattern else escape(bars.colour)
        along, across = (self.y, self.x) if self.chart.is_horizontal else (self.x, self.y)
        thick = min(0.62 * abs(along.place(1) - along.place(0)), 60.0)
        for bar in bars.bars:
            middle = along.place(bar.place)
            ends = sorted((across.place(bar.start), across.place(bar.end)))
            yield self._rectangle(middle - thick / 2, thick, ends[0], max(ends[1] - ends[0], 0.8), fill)
            if bar.low is not None and bar.high is not None:
                yield self._band(middle, across.place(bar.low), across.place(bar.high))

    def _rectangle(self, start: float, thick: float, first: float, length: float, fill: str) -> str:
        x, y, width, height = (
            (first, start, length, thick) if self.chart.is_horizontal else (start, first, thick, length)
        )
        return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'

    def _band(self, middle: float, low: float, high: float) -> str:
        m, a, b = f"{middle:.1f}", f"{low:.1f}", f"{high:.1f}"
        path = (
            f"M{a} {m}H{b}M{a} {middle - 5:.1f}v10M{b} {middle - 5:.1f}v10"
            if self.chart.is_horizontal
            else f"M{m} {a}V{b}M{middle - 5:.1f} {a}h10M{middle - 5:.1f} {b}h10"
        )
        return f'<path d="{path}" stroke="{_INK}" stroke-width="1.5" fill="none"/>'

    def _line(self, line: Line) -> Iterator[str]:
        points = [
            None if y is None or math.isnan(x) else (self.x.place(x), self.y.place(y))
            for x, y in zip(line.xs, line.ys, strict=True)
        ]
        if line.has_line:
            yield f'<path d="{_path(points, is_stepped=line.is_stepped)}" fill="none" {_stroke(line.colour, line.dash)}/>'
        if line.has_points:
            dots = (
                f'<circle cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="3.5" fill="{escape(line.colour)}"/>'
                for point in points
                if point is not None
            )
            yield from dots

    def _marks(self) -> Iterator[str]:
        named = 0
        for mark in self.chart.marks:
            if mark.axis == "y":
                at = self.y.place(mark.at)
                yield f'<line x1="{self.left}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" {_stroke(_AXIS, "dot", 1.2)}/>'
                yield f'<text x="{self.left + 4}" y="{at - 4:.1f}" fill="{_AXIS}">{escape(mark.text)}</text>'
                continue
            at = self.x.place(mark.at)
            yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{self.top - 4}" y2="{self.bottom}" {_stroke(_AXIS, "dot", 1.2)}/>'
            if mark.text:
                side = "end" if at > (self.left + WIDTH) / 2 else "start"
                yield f'<text x="{at:.1f}" y="{self.top - 8 - 15 * (named % _MARK_ROWS)}" text-anchor="{side}" fill="{_AXIS}">{escape(mark.text)}</text>'
                named += 1


def _stroke(colour: str, dash: str, width: float = 2.2) -> str:
    dashes = f' stroke-dasharray="{_DASHES[dash]}"' if dash in _DASHES else ""
    return f'stroke="{escape(colour)}" stroke-width="{width}"{dashes}'


def _path(points: list[tuple[float, float] | None], *, is_stepped: bool) -> str:
    """The line through `points`, broken where there is none; a lone point is a dot."""
    parts: list[str] = []
    before: tuple[float, float] | None = None
    for point in points:
        if point is None:
            before = None
            continue
        x, y = f"{point[0]:.1f}", f"{point[1]:.1f}"
        if before is None:
            parts.append(f"M{x} {y}h.1")
        else:
            parts.append(f"H{x}V{y}" if is_stepped else f"L{x} {y}")
        before = point
    return "".join(parts)


def _width(text: str) -> float:
    """The width of `text` in Latin letters; Chinese signs are nearly two wide."""
    return sum(1.9 if ord(sign) > 0x2E80 else 1.0 for sign in text)


def _shortened(text: str, room: float) -> str:
    """`text` where there is room for it, else its beginning."""
    if _LETTER * _width(text) <= room:
        return text
    kept = ""
    for sign in text:
        if _LETTER * _width(f"{kept}{sign}…") > room:
            break
        kept += sign
    return f"{kept}…"


def _left(chart: Chart) -> int:
    """The room for the labels of the y axis."""
    if not chart.is_horizontal:
        return 84 if chart.y_axis.title else 64
    widest = max((_width(row) for text in chart.y_axis.categories for row in text.split("\n")), default=8.0)
    return round(min(_WIDEST_LABEL, 16 + _LETTER * widest))


_Entry = tuple[str, str, str, str]  # name, colour, dash, kind


def _legend_rows(chart: Chart) -> list[list[_Entry]]:
    """What the colours stand for, in rows that fit; nothing where one colour says it all."""
    entries: list[_Entry] = [
        (line.name, line.colour, line.dash, "line" if line.has_line else "points") for line in chart.lines if line.name
    ]
    entries += [(bars.name, bars.colour, "solid", "bars") for bars in chart.bars if bars.name]
    if not chart.has_legend or len(entries) < 1:
        return []
    rows: list[list[_Entry]] = [[]]
    room = float(WIDTH - _RIGHT - _left(chart))
    for entry in entries:
        needed = 50 + min(_LETTER * _width(entry[0]), _WIDEST_NAME)
        if rows[-1] and needed > room:
            rows.append([])
            room = float(WIDTH - _RIGHT - _left(chart))
        rows[-1].append(entry)
        room -= needed
    return rows
