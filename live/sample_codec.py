"""A snapshot as a recording keeps it: numbers by series name, and one document with the words, which seldom change.

`decode(*encode(snapshot))` gives the snapshot back, stamped to the millisecond.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from live.recording_schema import RecordingError
from live.samples import (
    NUMBER_FIELDS,
    CacheConfig,
    EngineIdentity,
    EngineSample,
    EngineSnapshot,
    HistogramSample,
    LabelledValue,
    ServedModel,
)
from planner.facts import Finding

_NS_PER_MS = 1_000_000
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _HistogramWords:
    name: str
    labels: Labels
    upper_bounds: tuple[float | None, ...]  # None stands for +Inf, which JSON has not


@dataclass(frozen=True, slots=True, kw_only=True)
class _EngineWords:
    key: str  # stands before the names of the engine's series
    identity: EngineIdentity
    cache_config: CacheConfig | None
    labelled: tuple[tuple[str, Labels], ...]
    histograms: tuple[_HistogramWords, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    source: str
    vllm_version: str | None
    process_start_unix_seconds: float | None
    models: tuple[ServedModel, ...]
    findings: tuple[Finding, ...]
    server_info: str | None
    engines: tuple[_EngineWords, ...]


_decoder = msgspec.json.Decoder(_Words)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSnapshot:
    """A snapshot's numbers by series name and its words as JSON text."""

    time_ms: int
    numbers: dict[str, float]
    document: str


def engine_key(identity: EngineIdentity) -> str:
    """What stands before the names of an engine's series, such as "llama#0" or "llama#0@instance=10.0.0.3:8000"."""
    replica = f"@{identity.replica}" if identity.replica is not None else ""
    return f"{identity.model_name or ''}#{identity.engine or ''}{replica}"


def series_name(identity: EngineIdentity, field: str) -> str:
    """The series that holds `field` (of `NUMBER_FIELDS`) of an engine."""
    return f"{engine_key(identity)}/{field}"


def stamped(snapshot: EngineSnapshot, time_ms: int) -> EngineSnapshot:
    """The snapshot with all its times set to `time_ms`."""
    time_unix_ns = time_ms * _NS_PER_MS
    engines = tuple(replace(engine, time_unix_ns=time_unix_ns) for engine in snapshot.engines)
    return replace(snapshot, time_unix_ns=time_unix_ns, engines=engines)


def _labelled_name(key: str, name: str, labels: Labels) -> str:
    quoted = ",".join(f"{label}={_quoted(value)}" for label, value in labels)
    return f"{key}/{name}{{{quoted}}}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _histogram_names(key: str, name: str, labels: Labels, upper_bounds: tuple[float, ...]) -> Iterator[str]:
    whole = _labelled_name(key, name, labels) if labels else f"{key}/{name}"
    yield from (f"{whole}:le={bound!r}" for bound in upper_bounds)
    yield f"{whole}:sum"
    yield f"{whole}:count"


def _engine_numbers(key: str, engine: EngineSample) -> Iterator[tuple[str, float]]:
    for field in NUMBER_FIELDS:
        value = getattr(engine, field)
        if value is not None:
            yield f"{key}/{field}", value
    for labelled in engine.labelled:
        yield _labelled_name(key, labelled.name, labelled.labels), labelled.value
    for histogram in engine.histograms:
        names = _histogram_names(key, histogram.name, histogram.labels, histogram.upper_bounds)
        values = (*histogram.counts, histogram.sum, histogram.count)
        yield from ((name, value) for name, value in zip(names, values, strict=True) if value is not None)


def _keys(snapshot: EngineSnapshot) -> tuple[str, ...]:
    keys: list[str] = []
    for engine in snapshot.engines:
        key = engine_key(engine.identity)
        number = 1
        while (f"{key}~{number}" if number > 1 else key) in keys:
            number += 1
        keys.append(f"{key}~{number}" if number > 1 else key)
    return tuple(keys)


def encode(snapshot: EngineSnapshot) -> EncodedSnapshot:
    """What a recording keeps of `snapshot`."""
    keys = _keys(snapshot)
    numbers: dict[str, float] = {}
    for key, engine in zip(keys, snapshot.engines, strict=True):
        numbers.update(_engine_numbers(key, engine))
    words = _Words(
        source=snapshot.source,
        vllm_version=snapshot.vllm_version,
        process_start_unix_seconds=snapshot.process_start_unix_seconds,
        models=snapshot.models,
        findings=snapshot.findings,
        server_info=snapshot.server_info,
        engines=tuple(_engine_words(key, engine) for key, engine in zip(keys, snapshot.engines, strict=True)),
    )
    document = msgspec.json.encode(words).decode()
    return EncodedSnapshot(time_ms=snapshot.time_unix_ns // _NS_PER_MS, numbers=numbers, document=document)


def _engine_words(key: str, engine: EngineSample) -> _EngineWords:
    return _EngineWords(
        key=key,
        identity=engine.identity,
        cache_config=engine.cache_config,
        labelled=tuple((value.name, value.labels) for value in engine.labelled),
        histograms=tuple(_histogram_words(histogram) for histogram in engine.histograms),
    )


def _histogram_words(histogram: HistogramSample) -> _HistogramWords:
    bounds = tuple(None if math.isinf(bound) else bound for bound in histogram.upper_bounds)
    return _HistogramWords(name=histogram.name, labels=histogram.labels, upper_bounds=bounds)


def decode(time_ms: int, numbers: Mapping[str, float], document: str) -> EngineSnapshot:
    """The snapshot that was encoded so; NaN and absent series are None."""
    try:
        words = _decoder.decode(document)
    except (msgspec.DecodeError, RecursionError):
        text = f"The recording's description at {time_ms} ms cannot be read; it is damaged."
        raise RecordingError("damaged", text) from None
    time_unix_ns = time_ms * _NS_PER_MS
    return EngineSnapshot(
        time_unix_ns=time_unix_ns,
        source=words.source,
        engines=tuple(_engine(time_unix_ns, engine, numbers) for engine in words.engines),
        findings=words.findings,
        vllm_version=words.vllm_version,
        models=words.models,
        server_info=words.server_info,
        process_start_unix_seconds=words.process_start_unix_seconds,
    )


def _engine(time_unix_ns: int, words: _EngineWords, numbers: Mapping[str, float]) -> EngineSample:
    def number(name: str) -> float | None:
        value = numbers.get(name, math.nan)
        return None if math.isnan(value) else value

    values = {field: number(f"{words.key}/{field}") for field in NUMBER_FIELDS}
    labelled = tuple(
        LabelledValue(name=name, labels=labels, value=numbers.get(_labelled_name(words.key, name, labels), math.nan))
        for name, labels in words.labelled
    )
    return EngineSample(
        time_unix_ns=time_unix_ns,
        identity=words.identity,
        cache_config=words.cache_config,
        labelled=labelled,
        histograms=tuple(_histogram(words.key, histogram, numbers) for histogram in words.histograms),
        **values,
    )


def _histogram(key: str, words: _HistogramWords, numbers: Mapping[str, float]) -> HistogramSample:
    upper_bounds = tuple(math.inf if bound is None else bound for bound in words.upper_bounds)
    names = _histogram_names(key, words.name, words.labels, upper_bounds)
    *counts, total, count = (numbers.get(entry, math.nan) for entry in names)
    return HistogramSample(
        name=words.name,
        labels=words.labels,
        upper_bounds=upper_bounds,
        counts=tuple(counts),
        sum=None if math.isnan(total) else total,
        count=None if math.isnan(count) else count,
    )
