"""The alerts that a recording's marks tell of, and the limits it keeps: the same for a running recorder and for a replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from live.alert_rules import AlertRule, meaning_of, rules_from_text
from live.recording import Mark, Recording

ALERT_MARK, ALERT_OVER_MARK, ALERT_RULES_MARK = "alert", "alert_over", "alert_limits"
ALERT_RULES_KEY = "alert_rules"
_LEAST_SHOWN = 0.0005  # less is 0 to a reader


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAlert:
    """One alert of the log: `end_ms` None while it lasts."""

    subject: str  # what and whose: "KV usage of llama, engine 0"
    text: str
    start_ms: int
    end_ms: int | None = None


def shown_number(value: float) -> str:
    """A value in an alert's sentence."""
    if abs(value) >= 100 or value == int(value) or abs(value) < _LEAST_SHOWN:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def alert_log(marks: Iterable[Mark]) -> tuple[LoggedAlert, ...]:
    """The alerts that `marks` tell of, the latest first."""
    found: list[LoggedAlert] = []
    lasting: dict[str, int] = {}
    for mark in marks:
        if mark.kind not in {ALERT_MARK, ALERT_OVER_MARK}:
            continue
        subject = mark.text.partition(": ")[0]
        if subject in lasting:
            place = lasting.pop(subject)
            found[place] = replace(found[place], end_ms=mark.time_ms)
        if mark.kind == ALERT_MARK:
            lasting[subject] = len(found)
            found.append(LoggedAlert(subject=subject, text=mark.text, start_ms=mark.time_ms))
    return tuple(reversed(found))


def lasting_alerts(recording: Recording) -> tuple[LoggedAlert, ...]:
    """The alerts that had not ended when the recording stopped, so that who goes on with it goes on with them."""
    return tuple(alert for alert in alert_log(recording.marks()) if alert.end_ms is None)


def kept_rules(recording: Recording) -> tuple[AlertRule, ...]:
    """The limits that the recording keeps, or those that a new one begins with."""
    return rules_from_text(recording.about(ALERT_RULES_KEY))


def changed_rules(earlier: Sequence[AlertRule], later: Sequence[AlertRule]) -> str:
    """The limits that changed as one sentence; empty where none did."""
    changed = [_rule_words(rule) for rule in later if rule not in earlier]
    return f"Limits changed: {'; '.join(changed)}." if changed else ""


def _rule_words(rule: AlertRule) -> str:
    meaning = meaning_of(rule.kind)
    if not rule.is_on:
        return f"{meaning.label} off"
    lasted = f" for {rule.hold_seconds:,g} s" if rule.hold_seconds else ""
    return f"{meaning.label} at {shown_number(rule.limit)} {meaning.unit}{lasted}"
