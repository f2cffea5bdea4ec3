"""Figures of an engine over time: usage, requests, preemptions, hits, offload. Gaps stay gaps. Imports no Streamlit."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types
from plotly.basedatatypes import BaseFigure  # type: ignore[import-untyped]  # as above

from live.chunks import Numbers
from live.compare_recordings import increase
from live.downsample import Drawn
from live.recording import Mark
from live.sample_codec import series_name
from live.samples import EngineIdentity
from pages.parts.language import t
from pages.parts.simulate_charts import BLUE, GREY, INK, ORANGE, RED
from pages.parts.watch_evidence import PROBE_PREEMPTIONS
from pages.parts.watch_expected import Expectation
from planner.units import GIB, MIB

Part = dict[str, Any]  # a piece of a figure, as Plotly writes it
_BAND = "rgba(138, 147, 156, 0.35)"
_MOST_GAPS, _MOST_MARKS, _MOST_CARDS = 100, 30, 16
_CARD_SERIES = re.compile(r"nvml/(\d{1,3})/used_bytes")
_HIGHEST_CAPACITY = 2.0  # of the engine's pool that the plan's may be to be drawn beside it


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all charts of one engine share: the points, the span of time, and the marks on it."""

    drawn: Drawn
    identity: EngineIdentity
    start_ms: int
    end_ms: int
    marks: tuple[Mark, ...] = ()

    def series(self, field: str) -> Numbers:
        """The points of one field; all NaN where it is not exported."""
        return self.drawn.series(series_name(self.identity, field))

    def whole(self, name: str) -> Numbers:
        """The points of a series by its whole name."""
        return self.drawn.series(name)

    def has(self, *fields: str) -> bool:
        """Whether any of the fields has a point."""
        return any(not np.isnan(self.series(field)).all() for field in fields)


class MadeFigure(BaseFigure):  # type: ignore[misc]  # plotly ships no types
    """A figure in its plain form, which is made once however often it is sent; nothing in it changes any more."""

    def __init__(self, figure: go.Figure) -> None:  # not BaseFigure's, which would check it all again
        self._plain: dict[str, Any] = figure.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """The figure as it is sent."""
        return self._plain


def usage(stage: Stage, expected: Expectation | None = None, capacity_fraction: float | None = None) -> go.Figure:
    """KV usage in percent, with what is expected of the load seen, and the plan's pool as a share of the engine's."""
    lines = [] if expected is None else _expected_lines(stage, expected)
    lines.append(_line(stage, t("KV usage"), stage.series("kv_usage_fraction") * 100, BLUE, width=2.5))
    if stage.has("cpu_kv_usage_fraction"):
        swap = stage.series("cpu_kv_usage_fraction") * 100
        lines.append(_line(stage, t("swap space"), swap, ORANGE, dash="dashdot"))
    top = 104.0
    if capacity_fraction is not None and capacity_fraction <= _HIGHEST_CAPACITY:
        level = np.full(len(stage.drawn.time_ms), capacity_fraction * 100)
        lines.append(_line(stage, t("the plan's pool is full"), level, RED, dash="longdash", width=1.5))
        top = max(top, 100 * capacity_fraction + 4)
    return _over_time(lines, stage, t("% of the pool"), top_percent=top)


def _expected_lines(stage: Stage, expected: Expectation) -> list[Part]:
    if expected.kind == "lengths":
        return [
            _line(stage, t("expected, low"), expected.low * 100, GREY, dash="dot"),
            _line(stage, t("expected, high"), expected.high * 100, GREY, dash="dash"),
        ]
    name = t("expected, simulated") if expected.kind == "simulated" else t("expected, from the lengths")
    return [_line(stage, name, expected.best * 100, ORANGE, dash="dash", width=2)]


def requests(stage: Stage) -> go.Figure:
    """Running, waiting and swapped requests."""
    lines = [
        _line(stage, t("running"), stage.series("num_requests_running"), BLUE, shape="hv"),
        _line(stage, t("waiting"), stage.series("num_requests_waiting"), ORANGE, dash="dash", shape="hv"),
    ]
    if stage.has("num_requests_swapped"):
        swapped = stage.series("num_requests_swapped")
        lines.append(_line(stage, t("swapped out"), swapped, RED, dash="dot", shape="hv"))
    return _over_time(lines, stage, t("Requests"))


def preemptions(stage: Stage) -> go.Figure:
    """Preemptions added since the left edge, through restarts; by the probe too, for the engine's counter lags behind the queue."""
    added = increase(stage.series("num_preemptions"))
    lines = [_line(stage, t("counted since the left edge"), added, RED, shape="hv")]
    probed = stage.whole(PROBE_PREEMPTIONS)
    if not np.isnan(probed).all():
        lines.append(_line(stage, t("seen by the probe"), increase(probed), GREY, dash="dash", shape="hv"))
    lines.append(_line(stage, t("waiting"), stage.series("num_requests_waiting"), ORANGE, dash="dot", shape="hv"))
    return _over_time(lines, stage, t("Preemptions"))


def hits(stage: Stage) -> go.Figure:
    """The share of prompt tokens found in the prefix cache since the left edge; of an external cache beside it."""
    unit = "tokens" if stage.has("prefix_cache_queries_tokens") else "blocks"
    lines = [_line(stage, t("prefix cache"), _share(stage, "prefix_cache", unit), BLUE)]
    if stage.has("external_prefix_cache_queries_tokens"):
        external = _share(stage, "external_prefix_cache", "tokens")
        lines.append(_line(stage, t("external cache"), external, ORANGE, dash="dash"))
    return _over_time(lines, stage, t("% found"), top_percent=104.0)


def offload(stage: Stage) -> go.Figure:
    """MiB a second stored to and loaded from the host."""
    lines = [
        _line(stage, t("stored"), _rate(stage, "offload_store_bytes") / MIB, ORANGE, dash="dash"),
        _line(stage, t("loaded"), _rate(stage, "offload_load_bytes") / MIB, BLUE),
    ]
    return _over_time(lines, stage, "MiB/s")


def card_series(names: Iterable[str]) -> tuple[str, ...]:
    """Those of a recording's series that tell the memory of cards in use, by the card's number."""
    found = ((match, name) for name in names if (match := _CARD_SERIES.fullmatch(name)) is not None)
    return tuple(name for _, name in sorted((int(match[1]), name) for match, name in found))[:_MOST_CARDS]


def cards(stage: Stage, names: Sequence[str]) -> go.Figure:
    """GiB in use on each card of the engine's machine, of all processes, as NVML told."""
    dashes = itertools.cycle(("solid", "dash", "dot", "dashdot"))
    colours = itertools.cycle((BLUE, ORANGE, RED, GREY, INK))
    lines = [
        _line(stage, t("card {number}", number=name.split("/")[1]), stage.whole(name) / GIB, colour, dash=dash)
        for name, colour, dash in zip(names, colours, dashes, strict=False)
    ]
    return _over_time(lines, stage, "GiB")


def _share(stage: Stage, stem: str, unit: str) -> Numbers:
    queries = increase(stage.series(f"{stem}_queries_{unit}"))
    found = increase(stage.series(f"{stem}_hits_{unit}"))
    share: Numbers = np.divide(100 * found, queries, out=np.full(len(found), np.nan), where=queries > 0)
    return share


def _rate(stage: Stage, field: str) -> Numbers:
    """The counter's growth a second, between neighbouring points of one stretch."""
    numbers = stage.series(field)
    added = np.diff(numbers, prepend=np.nan)
    seconds = np.diff(stage.drawn.time_ms, prepend=np.nan) / 1000
    rate: Numbers = np.divide(
        np.where(added < 0, np.nan, added), seconds, out=np.full(len(numbers), np.nan), where=seconds > 0
    )
    return rate


def _line(stage: Stage, name: str, values: Numbers, colour: str, **style: str | float) -> Part:
    drawn = stage.drawn
    is_regular = drawn.step_ms is not None and len(drawn.time_ms) > 0
    place = {"x0": float(drawn.time_ms[0]), "dx": drawn.step_ms} if is_regular else {"x": drawn.time_ms}
    return place | {
        "type": "scatter",
        "y": values.astype(np.float32),
        "name": name,
        "mode": "lines",
        "connectgaps": False,
        "line": {"width": 2, "color": colour} | style,
        "hovertemplate": "%{y:,.4~g}",
    }


def _over_time(lines: Sequence[Part], stage: Stage, title: str, *, top_percent: float | None = None) -> go.Figure:
    """The figure, made in one call: a tick draws several, and each later change of a figure costs milliseconds."""
    ordinate: Part = {"rangemode": "tozero"} if top_percent is None else {"range": [0, top_percent]}
    x_axis: Part = {"title": "UTC", "type": "date", "range": [stage.start_ms, stage.end_ms], "fixedrange": True}
    layout: Part = {
        "template": {"layout": {}},  # Streamlit fills it with its theme
        "height": 230,
        "margin": {"l": 0, "r": 8, "t": 30, "b": 0},
        "hovermode": "x unified",
        "dragmode": False,
        "uirevision": "watch",
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "xaxis": x_axis,
        "yaxis": {"title": title, "automargin": True, "fixedrange": True} | ordinate,
        "shapes": [*_gap_shapes(stage), *(_mark_shape(mark) for mark in stage.marks[-_MOST_MARKS:])],
    }
    return go.Figure(data=list(lines), layout=layout)


def _gap_shapes(stage: Stage) -> Iterator[Part]:
    for gap in stage.drawn.gaps[-_MOST_GAPS:]:
        start, end = max(gap.start_ms, stage.start_ms), min(gap.end_ms, stage.end_ms)
        if start < end:
            shape = {"type": "rect", "x0": start, "x1": end, "yref": "paper", "y0": 0, "y1": 1}
            yield shape | {"fillcolor": _BAND, "line": {"width": 0}, "layer": "below"}


def _mark_shape(mark: Mark) -> Part:
    line = {"width": 1, "color": INK, "dash": "dot"}
    return {"type": "line", "x0": mark.time_ms, "x1": mark.time_ms, "yref": "paper", "y0": 0, "y1": 1, "line": line}
