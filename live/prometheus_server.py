"""A Prometheus server as a source: a fleet's engines now, and their history, as the same samples that /metrics gives.

Queries are its HTTP API's instant and range queries, bounded as every reading is; labels choose the engines.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlencode

from live.engine_snapshot import ServerReading, SnapshotState
from live.http_reader import HttpAnswer, HttpReader
from live.metric_names import CACHE_CONFIG_INFO, NUMBER_RULES, OLD_PREFIX_NAMES
from live.metrics import samples_from
from live.sample_lines import RawSeries
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.scrape_address import ServerAddress
from live.series_owner import OwnedSeries, owned_series
from planner.facts import Finding, PlanError

MOST_POINTS = 1000  # of one series in a history

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NS = 10**9
_OWN = "(ray_)?vllm[:_]"


# Histograms that the views draw or judge by; their buckets are asked for apart, for they are many.
_HISTOGRAMS = "request_prompt_tokens|request_generation_tokens|request_queue_time_seconds|time_in_queue_requests"
_BUCKETS = f"{_OWN}({_HISTOGRAMS})_bucket"
_NO_BUCKETS = '__name__!~".+_(bucket|created)"'


def _history_names() -> str:
    """A pattern of the families that fill a sample's numbers, and of what the wanted histograms add up to."""
    names = {name.removeprefix("vllm:") for rule in NUMBER_RULES.values() for name in rule.names}
    names.add(CACHE_CONFIG_INFO.removeprefix("vllm:"))
    return f"{_OWN}(({'|'.join(sorted(names))})(_total)?|({_HISTOGRAMS})_(sum|count))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time on Prometheus' grid: points at `start_unix_seconds`, then every `step_seconds` up to the end."""

    start_unix_seconds: float
    end_unix_seconds: float
    step_seconds: float

    def __post_init__(self) -> None:
        if not (self.step_seconds > 0 and self.end_unix_seconds >= self.start_unix_seconds):
            raise PlanError(
                "span", self.step_seconds, "The history needs an end after its start and a step above 0 seconds."
            )
        if (self.end_unix_seconds - self.start_unix_seconds) / self.step_seconds > MOST_POINTS:
            raise PlanError(
                "span", self.step_seconds, f"The step is too fine: at most {MOST_POINTS} points are read at once."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Each engine's samples in time order for state `ok`; else `text` says what is wrong."""

    state: SnapshotState
    engines: tuple[tuple[EngineSample, ...], ...] = ()
    findings: tuple[Finding, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One series of a query's result: points as (Unix seconds, value)."""

    labels: tuple[tuple[str, str], ...]
    points: tuple[tuple[float, float], ...]

    @property
    def name(self) -> str:
        return dict(self.labels).get("__name__", "")


def selector(names: str, labels: Mapping[str, str], *more: str) -> str:
    """A PromQL selector of the families that match `names` with exactly these labels, and with the matchers `more`."""
    matchers = [f'__name__=~"{names}"', *more]
    for name, text in sorted(labels.items()):
        if not _LABEL_NAME.fullmatch(name):
            raise PlanError("label", name, f"{name!r} is no name of a Prometheus label.")
        matchers.append(f"{name}={json.dumps(text, ensure_ascii=False)}")
    return "{" + ",".join(matchers) + "}"


def _points(row: dict[str, Any], kind: Literal["value", "values"]) -> Iterator[tuple[float, float]]:
    pairs = row.get(kind)
    for pair in [pairs] if kind == "value" else (pairs if isinstance(pairs, list) else []):
        if isinstance(pair, list) and len(pair) == 2:
            try:
                yield float(pair[0]), float(pair[1])
            except (TypeError, ValueError):
                continue


def _rows(answer: HttpAnswer, kind: Literal["value", "values"]) -> list[_Row] | None:
    """The rows of a query's answer; None where it is none of Prometheus'."""
    try:
        document = json.loads(answer.content)
        rows = document["data"]["result"] if document["status"] == "success" else None
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    if not isinstance(rows, list):
        return None
    return [
        _Row(
            labels=tuple((str(name), str(text)) for name, text in row["metric"].items()),
            points=tuple(_points(row, kind)),
        )
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("metric"), dict)
    ]


def _raw(row: _Row, value: float) -> RawSeries:
    labels = tuple(pair for pair in row.labels if pair[0] != "__name__")
    return RawSeries(name=row.name, labels=labels, value=value)


@dataclass(slots=True)
class PrometheusServer:
    """One server, read through `reader`. `labels` choose the engines, such as {"job": "vllm"}."""

    address: ServerAddress
    reader: HttpReader = field(default_factory=HttpReader)
    labels: Mapping[str, str] = field(default_factory=dict)

    def _ask(self, endpoint: str, parameters: Mapping[str, str]) -> HttpAnswer:
        return self.reader.get(self.address, f"/api/v1/{endpoint}?{urlencode(parameters)}")

    def _query(
        self, kind: Literal["value", "values"], query: str, parameters: Mapping[str, str]
    ) -> tuple[list[_Row], SnapshotState, str]:
        """The rows, or the state and the sentence that say why there are none."""
        endpoint = "query" if kind == "value" else "query_range"
        answer = self._ask(endpoint, {"query": query, **parameters})
        if answer.state == "too_large":
            text = (
                f"{self.address.shown} has more than 5 MB of this; choose fewer engines by a label, or a longer step."
            )
            return [], "too_large", text
        if answer.state != "ok":
            return [], answer.state, answer.text
        rows = _rows(answer, kind)
        if rows is None:
            text = (
                f"{self.address.shown} answers, but not as Prometheus' HTTP API does; give the address of its web page."
            )
            return [], "broken", text
        if not rows:
            chosen = " with these labels" if self.labels else ""
            text = f"{self.address.shown} has no series of vLLM{chosen}; check that it scrapes the engines' /metrics."
            return [], "not_vllm", text
        return rows, "ok", ""

    def _buckets(
        self, kind: Literal["value", "values"], parameters: Mapping[str, str]
    ) -> tuple[list[_Row], list[Finding]]:
        """The buckets of the wanted histograms; what cannot be had is left out, and said."""
        rows, state, why = self._query(kind, selector(_BUCKETS, self.labels), parameters)
        if state in {"ok", "not_vllm"}:
            return [row for row in rows if row.name.endswith("_bucket")], []
        text = f"The histograms' buckets are left out, and only their sums and counts are read: {why}"
        return [], [Finding(code="histogram-buckets-left-out", severity="info", text=text)]

    def _help_texts(self, rows: list[_Row]) -> dict[str, str]:
        """HELP lines of the counters whose unit changed under one name, where any is there."""
        found = {}
        for name in {row.name for row in rows if row.name.removesuffix("_total") in OLD_PREFIX_NAMES}:
            answer = self._ask("metadata", {"metric": name})
            try:
                found[name] = str(json.loads(answer.content)["data"][name][0]["help"])
            except (ValueError, RecursionError, KeyError, IndexError, TypeError):
                continue
        return found

    def snapshot(self, at_unix_seconds: float | None = None) -> ServerReading:
        """All engines at one moment (now by default); raises `PlanError` as `HttpReader` does."""
        at = time.time() if at_unix_seconds is None else at_unix_seconds
        moment = {"time": f"{at:.3f}"}
        rows, state, text = self._query("value", selector(f"{_OWN}.+", self.labels, _NO_BUCKETS), moment)
        if state != "ok":
            return ServerReading(state=state, text=text)
        buckets, left_out = self._buckets("value", moment)
        wanted = [row for row in rows if row.points and not row.name.endswith(("_bucket", "_created"))]
        wanted += [row for row in buckets if row.points]
        owned, findings = owned_series(_raw(row, row.points[0][1]) for row in wanted)
        samples, of_engines = samples_from(owned, self._help_texts(rows), int(at * _NS))
        snapshot = EngineSnapshot(
            time_unix_ns=int(at * _NS),
            source=self.address.shown,
            engines=samples,
            findings=(*findings, *of_engines, *left_out),
        )
        return ServerReading(state="ok", snapshot=snapshot)

    def engines(self) -> tuple[EngineIdentity, ...]:
        """The engines the server knows of at this moment; none where it cannot be read."""
        reading = self.snapshot()
        return tuple(sample.identity for sample in reading.snapshot.engines) if reading.snapshot is not None else ()

    def history(self, span: Span) -> History:
        """Each engine's samples over `span`; a moment without a scrape has no sample, so gaps stay gaps."""
        parameters = {
            "start": f"{span.start_unix_seconds:.3f}",
            "end": f"{span.end_unix_seconds:.3f}",
            "step": f"{span.step_seconds:g}",
        }
        rows, state, text = self._query("values", selector(_history_names(), self.labels), parameters)
        if state != "ok":
            return History(state=state, text=text)
        buckets, left_out = self._buckets("values", parameters)
        rows = [*(row for row in rows if not row.name.endswith("_bucket")), *buckets]
        # Whose a row is does not change with time: each row stands in by its place for its values.
        owned, findings = owned_series(_raw(row, float(place)) for place, row in enumerate(rows))
        help_texts = self._help_texts(rows)
        engines, collected = [], [*findings, *left_out]
        for identity, series in owned.items():
            samples, odd = _over_time(identity, series, rows, help_texts)
            engines.append(samples)
            collected += [finding for finding in odd if finding not in collected]
        return History(state="ok", engines=tuple(engines), findings=tuple(collected))


def _over_time(
    identity: EngineIdentity, series: list[OwnedSeries], rows: list[_Row], help_texts: Mapping[str, str]
) -> tuple[tuple[EngineSample, ...], list[Finding]]:
    """One engine's samples, each from what its rows hold at that moment."""
    at: dict[float, list[OwnedSeries]] = defaultdict(list)
    for one in series:
        for moment, value in rows[int(one.value)].points:
            if math.isfinite(moment):
                at[moment].append(OwnedSeries(name=one.name, labels=one.labels, value=value))
    samples: list[EngineSample] = []
    findings: dict[Finding, None] = {}
    for moment in sorted(at):
        found, odd = samples_from({identity: at[moment]}, help_texts, round(moment * _NS))
        samples += found
        findings |= dict.fromkeys(odd)
    return tuple(samples), list(findings)
