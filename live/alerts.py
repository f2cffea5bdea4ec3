"""Whether an engine is past its limits: rules with a hold time and hysteresis, judged sample by sample.

A recorder's thread does so, whether or not a browser is open; what begins and ends becomes marks (`live.alert_log`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from live.alert_log import ALERT_MARK, ALERT_OVER_MARK, LoggedAlert, shown_number
from live.alert_rules import RATE_SECONDS, AlertKind, AlertRule, meaning_of
from live.growth import Growth
from live.recording import Mark
from live.samples import EngineIdentity, EngineSample, EngineSnapshot, HistogramSample

StandingState = Literal["off", "below", "near", "alert", "no_data", "not_exported"]

_CLEAR_FRACTION = 0.9  # of the limit: below this it is over, so that a value at the limit does not flicker
_SHORTEST_CLEAR_SECONDS = 10.0
_LONGEST_SILENCE_SECONDS = 15.0  # what was held before it is forgotten
_QUEUE_HISTOGRAMS = ("vllm:request_queue_time_seconds", "vllm:time_in_queue_requests")
_Value = tuple[bool, float | None]  # whether it is exported, and the value where it is known


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertStanding:
    """One rule for one engine now. `value` is in the rule's unit; `since_ms` is when the alert began."""

    kind: AlertKind
    engine: str
    state: StandingState
    value: float | None = None
    since_ms: int | None = None


@dataclass(slots=True)
class _Held:
    """One rule for one engine: since when it has been past the limit, or below again."""

    over_since_ms: int | None = None
    below_since_ms: int | None = None
    alert_since_ms: int | None = None


@dataclass(slots=True)
class _Counts:
    """The counters of one engine over the last minute."""

    preemptions: Growth = field(default_factory=Growth)
    offload_failures: Growth = field(default_factory=Growth)
    queue_seconds: Growth = field(default_factory=Growth)
    queue_requests: Growth = field(default_factory=Growth)


def engine_title(identity: EngineIdentity) -> str:
    """An engine in an alert's sentence: "llama, engine 0"."""
    parts = [identity.model_name or "unnamed model"]
    parts += [f"engine {identity.engine}"] if identity.engine is not None else []
    parts += [identity.replica] if identity.replica is not None else []
    return ", ".join(parts).replace(": ", ":")[:300]


def alert_subject(kind: AlertKind, identity: EngineIdentity) -> str:
    """What an alert is of, the begin of its sentence."""
    return f"{meaning_of(kind).label} of {engine_title(identity)}"


class AlertWatch:
    """Holds engines to `rules`, snapshot by snapshot; used by one thread at a time."""

    def __init__(
        self, rules: Sequence[AlertRule], *, interval_seconds: float = 1.0, lasting: Sequence[LoggedAlert] = ()
    ) -> None:
        self.rules = tuple(rules)
        self.standings: tuple[AlertStanding, ...] = ()
        self._silence_ms = int(1000 * max(_LONGEST_SILENCE_SECONDS, 3 * interval_seconds))
        self._held = {alert.subject: _Held(alert_since_ms=alert.start_ms) for alert in lasting}
        self._counts: dict[EngineIdentity, _Counts] = {}
        self._last_ms: int | None = None

    def take(self, snapshot: EngineSnapshot) -> tuple[Mark, ...]:
        """The marks that this snapshot makes: alerts that begin and that are over."""
        now_ms = snapshot.time_unix_ns // 1_000_000
        if self._last_ms is not None and now_ms - self._last_ms > self._silence_ms:
            self._forget_what_was_held()
        self._last_ms = now_ms
        marks: list[Mark] = []
        standings: list[AlertStanding] = []
        seen: set[str] = set()
        for sample in snapshot.engines:
            values = self._values(sample, now_ms)
            for rule in self.rules:
                seen.add(alert_subject(rule.kind, sample.identity))
                marks += self._judge(rule, sample.identity, values[rule.kind], now_ms)
                standings.append(self._standing(rule, sample.identity, values[rule.kind]))
        marks += self._gone(seen, now_ms)
        known = {sample.identity for sample in snapshot.engines}
        self._counts = {identity: counts for identity, counts in self._counts.items() if identity in known}
        self.standings = tuple(standings)
        return tuple(marks)

    def _forget_what_was_held(self) -> None:
        for held in self._held.values():
            held.over_since_ms = held.below_since_ms = None

    def _values(self, sample: EngineSample, now_ms: int) -> dict[AlertKind, _Value]:
        counts = self._counts.setdefault(sample.identity, _Counts())
        usage = sample.kv_usage_fraction
        return {
            "kv_usage": (usage is not None, None if usage is None else 100 * usage),
            "preemptions": _count(counts.preemptions, sample.num_preemptions, now_ms),
            "waiting": (sample.num_requests_waiting is not None, sample.num_requests_waiting),
            "queue_time": _queue_time(counts, sample, now_ms),
            "offload_failures": _count(counts.offload_failures, sample.offload_allocation_failures, now_ms),
        }

    def _judge(self, rule: AlertRule, identity: EngineIdentity, value: _Value, now_ms: int) -> Iterator[Mark]:
        subject = alert_subject(rule.kind, identity)
        held = self._held.setdefault(subject, _Held())
        is_exported, number = value
        if not rule.is_on or not is_exported:
            why = "its metric is not exported any more" if rule.is_on else "the limit was switched off"
            yield from self._end(subject, held, why, now_ms)
            held.over_since_ms = held.below_since_ms = None
        elif number is None:
            return  # nothing to judge by: as before
        elif held.alert_since_ms is None:
            yield from self._begin(rule, subject, number, now_ms)
        else:
            yield from self._clear(rule, subject, number, now_ms)

    def _begin(self, rule: AlertRule, subject: str, number: float, now_ms: int) -> Iterator[Mark]:
        held = self._held[subject]
        if number < rule.limit:
            held.over_since_ms = None
            return
        held.over_since_ms = now_ms if held.over_since_ms is None else held.over_since_ms
        if now_ms - held.over_since_ms >= 1000 * rule.hold_seconds:
            unit = meaning_of(rule.kind).unit
            lasted = f" for {rule.hold_seconds:,g} s" if rule.hold_seconds else ""
            text = f"{shown_number(number)} {unit}{lasted}, at or above the limit of {shown_number(rule.limit)}."
            held.alert_since_ms, held.below_since_ms = now_ms, None
            yield Mark(time_ms=now_ms, kind=ALERT_MARK, text=f"{subject}: {text}")

    def _clear(self, rule: AlertRule, subject: str, number: float, now_ms: int) -> Iterator[Mark]:
        held = self._held[subject]
        if number >= _CLEAR_FRACTION * rule.limit:
            held.below_since_ms = None
            return
        held.below_since_ms = now_ms if held.below_since_ms is None else held.below_since_ms
        if now_ms - held.below_since_ms >= 1000 * max(rule.hold_seconds, _SHORTEST_CLEAR_SECONDS):
            unit = meaning_of(rule.kind).unit
            yield from self._end(subject, held, f"{shown_number(number)} {unit}", now_ms)

    def _end(self, subject: str, held: _Held, why: str, now_ms: int) -> Iterator[Mark]:
        if held.alert_since_ms is not None:
            seconds = max(0, now_ms - held.alert_since_ms) / 1000
            held.alert_since_ms = held.over_since_ms = held.below_since_ms = None
            yield Mark(time_ms=now_ms, kind=ALERT_OVER_MARK, text=f"{subject}: over after {seconds:,.0f} s; {why}.")

    def _gone(self, seen: set[str], now_ms: int) -> list[Mark]:
        marks: list[Mark] = []
        for subject in [subject for subject in self._held if subject not in seen]:
            marks += self._end(subject, self._held.pop(subject), "the engine is gone", now_ms)
        return marks

    def _standing(self, rule: AlertRule, identity: EngineIdentity, value: _Value) -> AlertStanding:
        held = self._held[alert_subject(rule.kind, identity)]
        is_exported, number = value
        return AlertStanding(
            kind=rule.kind,
            engine=engine_title(identity),
            state=_state(rule, held, is_exported=is_exported, number=number),
            value=number,
            since_ms=held.alert_since_ms,
        )


def _state(rule: AlertRule, held: _Held, *, is_exported: bool, number: float | None) -> StandingState:
    if not rule.is_on:
        return "off"
    if not is_exported:
        return "not_exported"
    if held.alert_since_ms is not None:
        return "alert"
    if number is None:
        return "no_data"
    return "near" if held.over_since_ms is not None else "below"


def _count(growth: Growth, counter: float | None, now_ms: int) -> _Value:
    growth.take(now_ms, counter)
    return counter is not None, growth.added(now_ms - int(1000 * RATE_SECONDS))


def _queue_time(counts: _Counts, sample: EngineSample, now_ms: int) -> _Value:
    """The mean wait of the requests that left the queue in the last minute; 0 where none left and none waits."""
    histogram = _queue_histogram(sample)
    seconds, requests = (None, None) if histogram is None else (histogram.sum, histogram.count)
    counts.queue_seconds.take(now_ms, seconds)
    counts.queue_requests.take(now_ms, requests)
    if seconds is None or requests is None:
        return False, None
    since_ms = now_ms - int(1000 * RATE_SECONDS)
    waited, left = counts.queue_seconds.added(since_ms), counts.queue_requests.added(since_ms)
    if waited is None or left is None:
        return True, None
    if left > 0:
        return True, waited / left
    return True, 0.0 if sample.num_requests_waiting == 0 else None


def _queue_histogram(sample: EngineSample) -> HistogramSample | None:
    return next((each for each in sample.histograms if each.name in _QUEUE_HISTOGRAMS and not each.labels), None)
