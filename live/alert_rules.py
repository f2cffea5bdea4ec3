"""The limits that a recorder holds an engine to: what each is about, its bounds, and how a recording keeps them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import msgspec

from planner.facts import PlanError

AlertKind = Literal["kv_usage", "preemptions", "waiting", "queue_time", "offload_failures"]
RATE_SECONDS = 60.0  # counts and means of requests are over the last minute
LONGEST_HOLD_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertMeaning:
    """What a kind of alert is about. Limits and values are in `unit`; it is over where the value is at the limit or above."""

    kind: AlertKind
    label: str
    unit: str
    smallest: float
    largest: float
    limit: float
    hold_seconds: float
    metrics: str  # what must be exported for it


ALERT_MEANINGS: tuple[AlertMeaning, ...] = (
    AlertMeaning(
        kind="kv_usage",
        label="KV usage",
        unit="%",
        smallest=1.0,
        largest=100.0,
        limit=95.0,
        hold_seconds=30.0,
        metrics="vllm:kv_cache_usage_perc",
    ),
    AlertMeaning(
        kind="preemptions",
        label="Preemptions",
        unit="in the last minute",
        smallest=1.0,
        largest=1e6,
        limit=5.0,
        hold_seconds=0.0,
        metrics="vllm:num_preemptions",
    ),
    AlertMeaning(
        kind="waiting",
        label="Waiting requests",
        unit="requests",
        smallest=1.0,
        largest=1e6,
        limit=20.0,
        hold_seconds=30.0,
        metrics="vllm:num_requests_waiting",
    ),
    AlertMeaning(
        kind="queue_time",
        label="Queue time",
        unit="s on average of the last minute",
        smallest=0.001,
        largest=86_400.0,
        limit=5.0,
        hold_seconds=10.0,
        metrics="vllm:request_queue_time_seconds",
    ),
    AlertMeaning(
        kind="offload_failures",
        label="Offload allocation failures",
        unit="in the last minute",
        smallest=1.0,
        largest=1e6,
        limit=1.0,
        hold_seconds=0.0,
        metrics="vllm:kv_offload_allocation_failure",
    ),
)
_MEANINGS = {meaning.kind: meaning for meaning in ALERT_MEANINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One limit: it is an alert once the value has stayed at `limit` or above for `hold_seconds`."""

    kind: AlertKind
    limit: float
    hold_seconds: float
    is_on: bool = True


def meaning_of(kind: AlertKind) -> AlertMeaning:
    """What an alert of that kind is about."""
    return _MEANINGS[kind]


def first_rules() -> tuple[AlertRule, ...]:
    """The limits that a new recording begins with."""
    return tuple(AlertRule(kind=each.kind, limit=each.limit, hold_seconds=each.hold_seconds) for each in ALERT_MEANINGS)


def checked_rule(rule: AlertRule) -> AlertRule:
    """The rule itself; raises `PlanError` with one sentence for a limit or a time that cannot be."""
    meaning = meaning_of(rule.kind)
    if not (math.isfinite(rule.limit) and meaning.smallest <= rule.limit <= meaning.largest):
        text = (
            f"{meaning.label} can have a limit of {meaning.smallest:,g} to {meaning.largest:,.0f} {meaning.unit}, "
            f"not {rule.limit:,g}."
        )
        raise PlanError(rule.kind, rule.limit, text)
    if not 0 <= rule.hold_seconds <= LONGEST_HOLD_SECONDS:
        text = (
            f"{meaning.label} can be held for 0 to {LONGEST_HOLD_SECONDS:,.0f} s before it is an alert, "
            f"not {rule.hold_seconds:,g} s."
        )
        raise PlanError(rule.kind, rule.hold_seconds, text)
    return rule


def rules_to_text(rules: tuple[AlertRule, ...]) -> str:
    """The rules as a recording keeps them."""
    return msgspec.json.encode(rules).decode()


def rules_from_text(text: str | None) -> tuple[AlertRule, ...]:
    """The rules that a recording keeps, one of each kind; where it keeps none, or damaged ones, the first ones."""
    try:
        kept = msgspec.json.decode(text or "[]", type=tuple[AlertRule, ...])
        by_kind = {rule.kind: checked_rule(rule) for rule in kept}
    except (msgspec.DecodeError, PlanError, RecursionError):
        by_kind = {}
    return tuple(by_kind.get(first.kind, first) for first in first_rules())
