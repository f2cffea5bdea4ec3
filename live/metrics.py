"""A /metrics text as one frozen sample per engine, with findings for what is odd, ambiguous or unreadable in it.

The names are in `metric_names`, the lines in `exposition`; whose a series is, in `series_owner`; what cache_config_info says,
in `cache_config`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from live.cache_config import cache_config_from_labels, config_findings
from live.exposition import Exposition, read_exposition
from live.metric_names import (
    CACHE_CONFIG_INFO,
    NEW_NAMES_BESIDE_OLD_PREFIX,
    NUMBER_RULES,
    OLD_PREFIX_NAMES,
    PLAIN_NAMES,
    PREFIX_FIELDS,
    PROCESS_START,
    NumberRule,
    canonical,
    histogram_part,
)
from live.sample_lines import RawSeries
from live.samples import CacheConfig, EngineIdentity, EngineSample, HistogramSample, LabelledValue
from live.series_owner import OwnedSeries, owned_series
from planner.facts import Finding

_MOST_SERIES = 4000  # labelled series kept of one engine


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsReading:
    """What one text says: a sample per engine in the text's order, and findings."""

    engines: tuple[EngineSample, ...] = ()
    findings: tuple[Finding, ...] = ()
    process_start_unix_seconds: float | None = None


@dataclass(slots=True)
class _Engine:
    """One engine's series while they are being read."""

    plain: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))  # name -> process id -> value
    labelled: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)
    buckets: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, float]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    config: CacheConfig | None = None
    findings: list[Finding] = field(default_factory=list)

    def warn(self, code_finding: Finding) -> None:
        if code_finding not in self.findings:
            self.findings.append(code_finding)


def _take_config(engine: _Engine, config: CacheConfig) -> None:
    """The later of two, but one that knows its blocks before one that was written ahead of the profile."""
    known = engine.config
    if known is not None and known.num_gpu_blocks is not None:
        if config.num_gpu_blocks is None:
            return
        if config.num_gpu_blocks != known.num_gpu_blocks:
            _warn_of_repeats(engine, CACHE_CONFIG_INFO)
    engine.config = config


def _take_plain(engine: _Engine, name: str, series: OwnedSeries) -> None:
    process = dict(series.labels).get("pid", "")
    values = engine.plain[name]
    if process in values and values[process] != series.value:
        _warn_of_repeats(engine, name)
    values[process] = series.value


def _warn_of_repeats(engine: _Engine, name: str) -> None:
    if any(finding.code == "series-repeated" for finding in engine.findings):
        return
    text = (
        f"The text holds the same series twice with different values, first {name}: two readings, or two servers that "
        "cannot be told apart. The later one is shown."
    )
    engine.warn(Finding(code="series-repeated", severity="warning", text=text, field=name))


def _take(engine: _Engine, series: OwnedSeries) -> None:
    name = canonical(series.name)
    if name == CACHE_CONFIG_INFO:
        _take_config(engine, cache_config_from_labels(series.labels))
        return
    if series.name.endswith("_created"):
        return
    part = histogram_part(series.name)
    if part is not None:
        bound = dict(series.labels).get("le", "")
        labels = tuple(pair for pair in series.labels if pair[0] != "le")
        engine.buckets[part[0], labels][part[1] + bound] = series.value
    elif name in PLAIN_NAMES:
        _take_plain(engine, name, series)
    elif len(engine.labelled) < _MOST_SERIES:
        engine.labelled[name, series.labels] = series.value


def _plain_value(engine: _Engine, name: str) -> float | None:
    """The value of a series that needs no label; None where several processes disagree."""
    values = engine.plain.get(name, {})
    if len(set(map(repr, values.values()))) > 1:
        text = (
            f"{name} is there once for each of {len(values)} processes with different values; which holds is not said."
        )
        engine.warn(Finding(code="metric-per-process", severity="warning", text=text, field=name))
        return None
    return next(iter(values.values()), None)


def _directed_value(engine: _Engine, name: str, picks: tuple[tuple[str, str], ...]) -> float | None:
    """The value in one direction: to or from the CPU, or the only other medium there is (GPU_to_SHARED_STORAGE)."""
    series = {labels: value for (key, labels), value in engine.labelled.items() if key == name}
    exact = [value for labels, value in series.items() if set(picks) <= set(labels)]
    (label, wanted), *_ = picks
    is_store = wanted.startswith("GPU_")
    other = [
        value
        for labels, value in series.items()
        for given, text in labels
        if given == label and (text.startswith("GPU_to_") if is_store else text.endswith("_to_GPU"))
    ]
    return exact[0] if exact else other[0] if len(other) == 1 else None


def _candidates(engine: _Engine, rule: NumberRule) -> list[tuple[str, float]]:
    """What each name of the rule says, newest name first."""
    found = []
    for place, name in enumerate(rule.names):
        if rule.picks and place == len(rule.names) - 1:
            value = _directed_value(engine, name, rule.picks)
        else:
            value = _plain_value(engine, name)
        if value is not None:
            found.append((name, value))
    return found


def _sound(engine: _Engine, name: str, value: float, rule: NumberRule) -> float | None:
    """The value where it can be one; a hit rate of -1 is vLLM's way to say "no data"."""
    if rule.is_hit_rate and value < 0:
        return None
    if not math.isfinite(value):
        text = f"{name} is {value}, which is no number to show."
        engine.warn(Finding(code="metric-not-finite", severity="warning", text=text, field=name))
        return None
    if value < 0 or (rule.is_fraction and value > 1):
        text = f"{name} is {value}, outside what it can be{' (0 to 1)' if rule.is_fraction else ''}; it is left out."
        engine.warn(Finding(code="metric-out-of-range", severity="warning", text=text, field=name))
        return None
    return value


def _number(engine: _Engine, rule: NumberRule) -> tuple[str | None, float | None]:
    """The name that was used and the value."""
    candidates = _candidates(engine, rule)
    # A transfer's older name counts only what goes to the CPU: nought there beside another medium's bytes is no difference.
    counted = [value for name, value in candidates if value != 0 or not rule.picks or name != rule.names[-1]]
    values = {value for value in counted if math.isfinite(value)}
    if len(values) > 1:
        named = " and ".join(f"{name} ({value:g})" for name, value in candidates)
        text = f"{named} should be one number under its new and its old name; the new one is shown."
        engine.warn(Finding(code="metric-names-disagree", severity="warning", text=text, field=candidates[0][0]))
    for name, value in candidates:
        sound = _sound(engine, name, value, rule)
        if sound is not None:
            return name, sound
    return None, None


def _prefix_unit(help_texts: Mapping[str, str]) -> str | None:
    """What the old names of the prefix counters count, by their HELP lines (or their twins'); None where none is there."""
    for name, text in help_texts.items():
        if canonical(name.removesuffix("_created")) in OLD_PREFIX_NAMES:
            lowered = text.lower()
            if "block" in lowered:
                return "blocks"
            if "token" in lowered:
                return "tokens"
    return None


def _unit_of(engine: _Engine, used: str | None, help_texts: Mapping[str, str]) -> str | None:
    """The unit of a prefix counter. The old names stood beside the new ones, as tokens, before they went (0.10 to 0.11)."""
    if used not in OLD_PREFIX_NAMES:
        return "tokens"
    has_new_names = any(name in engine.plain for name in NEW_NAMES_BESIDE_OLD_PREFIX)
    return _prefix_unit(help_texts) or ("tokens" if has_new_names else None)


def _numbers(engine: _Engine, help_texts: Mapping[str, str]) -> dict[str, float | None]:
    numbers: dict[str, float | None] = {}
    for field_name, rule in NUMBER_RULES.items():
        used, value = _number(engine, rule)
        unit = _unit_of(engine, used, help_texts) if field_name in PREFIX_FIELDS else "tokens"
        if unit == "tokens":
            numbers[field_name] = value
        elif unit == "blocks":
            numbers[PREFIX_FIELDS[field_name]] = value
            text = f"{used} counts blocks in this version ({value:g}), so the tokens are not known."
            engine.warn(Finding(code="prefix-counted-in-blocks", severity="info", text=text, field=used))
        else:
            text = f"{used} counted blocks in early V1 and tokens later; without its HELP line its unit is not known."
            engine.warn(Finding(code="prefix-unit-unknown", severity="warning", text=text, field=used))
    return numbers


def _bound(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _histograms(engine: _Engine) -> tuple[HistogramSample, ...]:
    found = []
    for (name, labels), parts in engine.buckets.items():
        texts = ((part.removeprefix("bucket"), value) for part, value in parts.items() if part.startswith("bucket"))
        buckets = sorted((bound, value) for text, value in texts if (bound := _bound(text)) is not None)
        found.append(
            HistogramSample(
                name=name,
                upper_bounds=tuple(bound for bound, _ in buckets),
                counts=tuple(value for _, value in buckets),
                sum=parts.get("sum"),
                count=parts.get("count"),
                labels=labels,
            )
        )
    return tuple(found)


def _sample(
    identity: EngineIdentity, engine: _Engine, help_texts: Mapping[str, str], time_unix_ns: int
) -> EngineSample:
    return EngineSample(
        time_unix_ns=time_unix_ns,
        identity=identity,
        cache_config=engine.config,
        labelled=tuple(
            LabelledValue(name=name, labels=labels, value=value)
            for (name, labels), value in engine.labelled.items()
            if math.isfinite(value)
        ),
        histograms=_histograms(engine),
        **_numbers(engine, help_texts),
    )


def _text_findings(exposition: Exposition) -> list[Finding]:
    findings = []
    if exposition.unread_lines:
        count, first = len(exposition.unread_lines), exposition.unread_lines[0][:90]
        text = (
            f"1 line of vLLM's could not be read and is left out: {first!r}."
            if count == 1
            else f"{count:,} lines of vLLM's could not be read and are left out, such as {first!r}."
        )
        findings.append(Finding(code="metric-lines-unread", severity="warning", text=text))
    if exposition.hidden_number is not None:
        text = (
            f"An invisible sign stands within a number, as in {exposition.hidden_number[:60]!r}: what it was is not known, "
            "so it is not read."
        )
        findings.append(Finding(code="number-with-hidden-sign", severity="warning", text=text))
    if exposition.has_too_many_lines:
        text = (
            "The text is longer than any that vLLM exports; some of its lines are left out, so that numbers of some engines "
            "may be missing."
        )
        findings.append(Finding(code="metrics-text-too-long", severity="warning", text=text))
    if exposition.series and exposition.has_cut_end:
        text = "The text has no line end: it may be cut, and what is absent may have been in the rest."
        findings.append(Finding(code="metrics-text-cut", severity="info", text=text))
    return findings


def _start_seconds(series: tuple[RawSeries, ...]) -> float | None:
    starts = {one.value for one in series if one.name == PROCESS_START and math.isfinite(one.value)}
    return next(iter(starts)) if len(starts) == 1 else None


def _nothing(exposition: Exposition) -> MetricsReading:
    """A reading without engines, and why: whose metrics these are, if any."""
    seen = "holds metrics, but none of vLLM's" if exposition.has_metrics else "is no metrics text"
    if exposition.other_exporter is not None:
        seen = f"is {exposition.other_exporter}'s metrics, not vLLM's; KVScope reads only vLLM's"
    text = (
        f"What was read {seen}; give the address or the /metrics text of a vLLM server that was not started with "
        "--disable-log-stats."
    )
    finding = Finding(code="no-vllm-metrics", severity="warning", text=text)
    return MetricsReading(findings=(*_text_findings(exposition), finding))


def samples_from(
    owned: Mapping[EngineIdentity, Iterable[OwnedSeries]], help_texts: Mapping[str, str], time_unix_ns: int
) -> tuple[tuple[EngineSample, ...], list[Finding]]:
    """A sample of each engine's series, and what is odd in them."""
    samples: list[EngineSample] = []
    findings: list[Finding] = []
    for identity, series in owned.items():
        engine = _Engine()
        for one in series:
            _take(engine, one)
        samples.append(_sample(identity, engine, help_texts, time_unix_ns))
        findings += [finding for finding in engine.findings if finding not in findings]
    return tuple(samples), findings + config_findings(samples)


def read_metrics(text: str, time_unix_ns: int) -> MetricsReading:
    """One sample per engine of a /metrics text (its time is `time_unix_ns`), and findings; never raises."""
    exposition = read_exposition(text)
    owned, findings = owned_series(one for one in exposition.series if one.name != PROCESS_START)
    if not owned:
        return _nothing(exposition)
    samples, of_engines = samples_from(owned, dict(exposition.help_texts), time_unix_ns)
    return MetricsReading(
        engines=samples,
        findings=(*_text_findings(exposition), *findings, *of_engines),
        process_start_unix_seconds=_start_seconds(exposition.series),
    )
