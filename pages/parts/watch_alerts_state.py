"""Session state of the Watch page's alert limits: what the form holds, and what could not be set."""

from __future__ import annotations

from live.alert_rules import AlertKind, AlertRule
from live.recorder import Recorder
from live.recording_schema import RecordingError
from pages.parts.watch_state import keep, key, value
from planner.facts import PlanError

_SYNCED = "alert_synced"
_PROBLEM = "alert_problem"


def limit_key(kind: AlertKind, part: str) -> str:
    """The widget key of one part of a limit: "is_on", "limit" or "hold"."""
    return key(_field(kind, part))


def _field(kind: AlertKind, part: str) -> str:
    return f"alert_{kind}_{part}"


def fill(recorder: Recorder) -> None:
    """Put the recorder's limits into the form where they changed since, so before its widgets are drawn."""
    now = (recorder.address, recorder.alert_rules)
    is_known = value(_field("kv_usage", "limit")) is not None
    if value(_SYNCED) == now and is_known:
        for rule in recorder.alert_rules:
            _hold(rule.kind)
        return
    for rule in recorder.alert_rules:
        keep(_field(rule.kind, "is_on"), rule.is_on)
        keep(_field(rule.kind, "limit"), float(rule.limit))
        keep(_field(rule.kind, "hold"), float(rule.hold_seconds))
    keep(_SYNCED, now)
    keep(_PROBLEM, None)


def _hold(kind: AlertKind) -> None:
    """Keep what a widget holds while another page is open."""
    for part in ("is_on", "limit", "hold"):
        keep(_field(kind, part), value(_field(kind, part)))


def apply(recorder: Recorder) -> None:
    """Hold the engine to the form's limits; for a callback."""
    typed = tuple(_typed(rule) for rule in recorder.alert_rules)
    keep(_PROBLEM, None)
    try:
        recorder.set_alert_rules(typed)
    except PlanError as error:
        keep(_PROBLEM, (error.field, error.text))
    except RecordingError as error:
        keep(_PROBLEM, ("", error.text))
    else:
        keep(_SYNCED, (recorder.address, typed))


def _typed(rule: AlertRule) -> AlertRule:
    """The form's limit of one kind; an emptied field stands for what holds now."""
    limit, hold = value(_field(rule.kind, "limit")), value(_field(rule.kind, "hold"))
    return AlertRule(
        kind=rule.kind,
        limit=rule.limit if limit is None else float(limit),
        hold_seconds=rule.hold_seconds if hold is None else float(hold),
        is_on=bool(value(_field(rule.kind, "is_on"))),
    )


def problem() -> tuple[str, str] | None:
    """The kind of limit that could not be set, and the sentence."""
    found: tuple[str, str] | None = value(_PROBLEM)
    return found
