"""A chart as plain values: lines and bars over two axes, with marks; what `report_svg` draws and the other files tell in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AxisKind = Literal["linear", "log", "category", "time"]
Pattern = Literal["", "/", "x"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis. `low` and `high` are the ends that the page chose; None: as the values need. Time is milliseconds."""

    title: str = ""
    kind: AxisKind = "linear"
    categories: tuple[str, ...] = ()  # a line break parts a name from what stands below it
    low: float | None = None
    high: float | None = None
    suffix: str = ""
    is_percent: bool = False  # fractions, written as per cent


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line; None breaks it. `xs` are places on the axis, categories by their number."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float | None, ...]
    colour: str
    dash: str = "solid"
    has_line: bool = True
    has_points: bool = False
    is_stepped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar at a category, from `start` to `end`; `low` and `high` are the ends of its band."""

    place: int
    start: float
    end: float
    low: float | None = None
    high: float | None = None
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """The bars of one name and colour."""

    name: str
    bars: tuple[Bar, ...]
    colour: str
    pattern: Pattern = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A line across the chart at a place of one axis, with words or without."""

    axis: Literal["x", "y"]
    at: float
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart with its title, what it shows in words, and its numbers as rows (name, place, value)."""

    title: str
    alt: str
    x_axis: Axis
    y_axis: Axis
    lines: tuple[Line, ...] = ()
    bars: tuple[Bars, ...] = ()
    is_horizontal: bool = False  # bars lie, their categories stand on the y axis
    marks: tuple[Mark, ...] = ()
    guides: tuple[Line, ...] = ()  # lines for the eye alone: in no legend and no table
    shades: tuple[tuple[float, float], ...] = ()  # stretches of the x axis without samples
    has_legend: bool = True
    needs_numbers: bool = True  # False: a table of its numbers stands beside it anyway
