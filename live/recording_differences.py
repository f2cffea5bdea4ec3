"""What differs between two stretches of recordings, as numbers: levels of gauges, sums of counters, and the configurations.

Values are None where a side does not export them. Words are the reader's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from live.chunks import Numbers
from live.compare_recordings import Chosen, increase
from live.recording_schema import RecordingError
from live.sample_codec import decode, engine_key
from live.samples import EngineSnapshot

Measure = Literal["mean", "p95", "peak", "total", "per_minute", "share"]

GAUGES = ("kv_usage_fraction", "num_requests_running", "num_requests_waiting", "num_requests_swapped")
COUNTERS = ("num_preemptions", "prompt_tokens", "generation_tokens", "offload_store_bytes", "offload_load_bytes")
_SHARES = (
    ("prefix_cache_hits_tokens", "prefix_cache_queries_tokens"),
    ("external_prefix_cache_hits_tokens", "external_prefix_cache_queries_tokens"),
)
_GAUGE_MEASURES: tuple[Measure, ...] = ("mean", "p95", "peak")
_COUNTER_MEASURES: tuple[Measure, ...] = ("total", "per_minute")
_LONGEST_STEP_MS = 10_000  # time between two ticks that counts as watched


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One measure of one field on both sides."""

    field: str
    measure: Measure
    first: float | None
    second: float | None

    @property
    def change(self) -> float | None:
        """Second minus first."""
        return None if self.first is None or self.second is None else self.second - self.first

    @property
    def change_fraction(self) -> float | None:
        """The change as a fraction of the first; None where that is 0 or not known."""
        return None if self.change is None or not self.first else self.change / self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDifference:
    """One setting that the two engines tell differently; None where a side does not tell it."""

    name: str
    first: str | None
    second: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The numbers of one side from its start on, and for how long it was watched."""

    series: dict[str, Numbers]
    minutes: float


def differences(first: Chosen, second: Chosen) -> tuple[Difference, ...]:
    """Each measure that either side exports: mean, 95th percentile and peak of gauges, sums of counters, shares of hits."""
    sides = [_read(side) for side in (first, second)]
    found = [
        Difference(
            field=field,
            measure=measure,
            first=_level(sides[0], field, measure),
            second=_level(sides[1], field, measure),
        )
        for field in GAUGES
        for measure in _GAUGE_MEASURES
    ]
    found += [
        Difference(
            field=field, measure=measure, first=_sum(sides[0], field, measure), second=_sum(sides[1], field, measure)
        )
        for field in COUNTERS
        for measure in _COUNTER_MEASURES
    ]
    found += [
        Difference(
            field=hits, measure="share", first=_share(sides[0], hits, asked), second=_share(sides[1], hits, asked)
        )
        for hits, asked in _SHARES
    ]
    return tuple(each for each in found if each.first is not None or each.second is not None)


def watched_minutes(side: Chosen) -> float:
    """For how long the side was sampled, gaps left out."""
    return _read(side).minutes


def _read(side: Chosen) -> _Side:
    fields = (*GAUGES, *COUNTERS, *(name for pair in _SHARES for name in pair))
    names = [f"{side.engine}/{field}" for field in fields]
    window = side.recording.window(names, side.start_ms)
    steps = np.diff(window.time_ms)
    limit_ms = max(_LONGEST_STEP_MS, 3 * side.recording.summary().interval_ms)
    minutes = float(steps[steps <= limit_ms].sum()) / 60_000
    return _Side(series={field: window.series(f"{side.engine}/{field}") for field in fields}, minutes=minutes)


def _level(side: _Side, field: str, measure: Measure) -> float | None:
    known = side.series[field][~np.isnan(side.series[field])]
    if not len(known):
        return None
    match measure:
        case "mean":
            return float(known.mean())
        case "p95":
            return float(np.percentile(known, 95))
    return float(known.max())


def _added(side: _Side, field: str) -> float | None:
    grown = increase(side.series[field])
    known = grown[~np.isnan(grown)]
    return float(known[-1]) if len(known) else None


def _sum(side: _Side, field: str, measure: Measure) -> float | None:
    added = _added(side, field)
    if measure == "total" or added is None:
        return added
    return added / side.minutes if side.minutes > 0 else None


def _share(side: _Side, hits: str, asked: str) -> float | None:
    found, looked_up = _added(side, hits), _added(side, asked)
    return found / looked_up if found is not None and looked_up else None


# -- configurations -----------------------------------------------------------------------------------------------------


def setting_differences(first: Chosen, second: Chosen) -> tuple[SettingDifference, ...]:
    """What both engines told last of themselves and is not the same: release, model, longest length, cache configuration."""
    told = [_settings(side) for side in (first, second)]
    names = dict.fromkeys([*told[0], *told[1]])
    pairs = ((name, told[0].get(name), told[1].get(name)) for name in names)
    return tuple(SettingDifference(name=name, first=one, second=two) for name, one, two in pairs if one != two)


def _settings(side: Chosen) -> dict[str, str]:
    snapshot = _last_snapshot(side)
    if snapshot is None:
        return {}
    told: dict[str, str] = {}
    if snapshot.vllm_version:
        told["vllm_version"] = snapshot.vllm_version
    for engine in snapshot.engines:
        if engine_key(engine.identity) != side.engine:
            continue
        name = engine.identity.model_name
        told |= {"model_name": name} if name else {}
        lengths = [model.max_model_len for model in snapshot.models if model.model_id == name]
        told |= {"max_model_len": str(lengths[0])} if lengths and lengths[0] is not None else {}
        told |= _labels(engine.cache_config.labels) if engine.cache_config is not None else {}
    return told


def _labels(labels: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The labels of cache_config_info that say something; "None" is how vLLM writes that nothing is set."""
    return {name: text for name, text in labels if text not in {"", "None"} and name not in {"engine", "model_name"}}


def _last_snapshot(side: Chosen) -> EngineSnapshot | None:
    end_ms = side.recording.summary().end_ms
    if end_ms is None:
        return None
    try:
        return decode(end_ms, {}, side.recording.document_at(end_ms))
    except RecordingError:
        return None
