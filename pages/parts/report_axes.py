"""The axes of a report's charts: from values to places in the drawing, and the ticks with their words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pages.parts.report_chart import Axis, Chart

_MOST_TICKS = 7
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 604_800)
_THIN = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Values `[low, high]` of an axis at the places `[first, last]` of a drawing."""

    axis: Axis
    low: float
    high: float
    first: float
    last: float

    def place(self, value: float) -> float:
        """Where `value` lies; outside values lie at the end."""
        low, high, at = self.low, self.high, value
        if self.axis.kind == "log":
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, low))
        share = 0.0 if high == low else (at - low) / (high - low)
        return self.first + (self.last - self.first) * min(max(share, 0.0), 1.0)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Places and words of the ticks."""
        match self.axis.kind:
            case "category":
                for place, name in enumerate(self.axis.categories):
                    yield self.place(place), name
            case "log":
                yield from ((self.place(value), _shown(value, self.axis)) for value in _log_ticks(self.low, self.high))
            case "time":
                yield from ((self.place(value), text) for value, text in _time_ticks(self.low, self.high))
            case _:
                yield from ((self.place(value), _shown(value, self.axis)) for value in _even_ticks(self.low, self.high))


def scales(chart: Chart, x_places: tuple[float, float], y_places: tuple[float, float]) -> tuple[Scale, Scale]:
    """The scales of both axes in a drawing."""
    along, across = _values(chart)
    xs, ys = (across, along) if chart.is_horizontal else (along, across)
    return _scale(chart.x_axis, xs, x_places), _scale(chart.y_axis, ys, y_places)


def _values(chart: Chart) -> tuple[list[float], list[float]]:
    """The values along the categories or the time, and those that are measured."""
    along = [x for line in chart.lines for x in line.xs if not math.isnan(x)]
    across = [y for line in chart.lines for y in line.ys if y is not None]
    for bars in chart.bars:
        for bar in bars.bars:
            across += [bar.start, bar.end, *(end for end in (bar.low, bar.high) if end is not None)]
    for mark in chart.marks:
        (across if (mark.axis == "x") == chart.is_horizontal else along).append(mark.at)
    return along, across


def _scale(axis: Axis, values: Sequence[float], places: tuple[float, float]) -> Scale:
    if axis.kind == "category":
        return Scale(axis=axis, low=-0.5, high=max(0, len(axis.categories) - 1) + 0.5, first=places[0], last=places[1])
    if axis.kind == "log":
        values = [value for value in values if value > 0]
    low = axis.low if axis.low is not None else min(values, default=0.0)
    high = axis.high if axis.high is not None else max(values, default=1.0)
    if axis.kind == "linear" and axis.low is not None and values:
        low = min(low, *values)
    if axis.kind == "log":
        low, high = max(low, 1e-12), max(high, low * 1.001, 1e-12)
    elif high <= low:
        high = low + 1.0
    elif axis.high is None and axis.kind == "linear":
        high += (high - low) * 0.02
    return Scale(axis=axis, low=low, high=high, first=places[0], last=places[1])


def _even_ticks(low: float, high: float) -> Iterator[float]:
    step = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    step = next(step * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (step * factor) <= _MOST_TICKS)
    number = math.ceil(low / step - 1e-9)
    while number * step <= high + 1e-9 * step:
        yield number * step
        number += 1


def _log_ticks(low: float, high: float) -> Iterator[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1,) if last - first > _MOST_TICKS else (1, 3) if last - first > 1 else (1, 2, 5)
    for power in range(first, last + 1):
        yield from (digit * 10.0**power for digit in digits if low <= digit * 10.0**power <= high)


def _time_ticks(low_ms: float, high_ms: float) -> Iterator[tuple[float, str]]:
    seconds = (high_ms - low_ms) / 1000
    step = next((each for each in _SECONDS if seconds / each <= _MOST_TICKS), _SECONDS[-1])
    form = "%d %b" if step >= 86_400 else "%H:%M" if step >= 60 else "%H:%M:%S"
    number = math.ceil(low_ms / 1000 / step)
    while number * step * 1000 <= high_ms:
        yield number * step * 1000.0, f"{datetime.fromtimestamp(number * step, UTC):{form}}"
        number += 1


def _shown(value: float, axis: Axis) -> str:
    text = f"{100 * value:.6g}{_THIN}%" if axis.is_percent else _short(value)
    return f"{text}{axis.suffix.replace(' ', _THIN)}".replace("-", "−")


def _short(value: float) -> str:
    """A tick's number: thousands separated, large ones by K, M, G."""
    for size, sign in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.6g}{_THIN}{sign}"
    return f"{value:,.6g}"
