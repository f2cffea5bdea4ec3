"""Alerts of a watched engine: what lasts as a banner, the limits and how each stands, and the log. Fragments only read."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from live.alert_log import LoggedAlert, alert_log, kept_rules, shown_number
from live.alert_rules import ALERT_MEANINGS, AlertKind, AlertMeaning, AlertRule, meaning_of
from live.alerts import AlertStanding
from live.recorder import Recorder
from live.recording_schema import RecordingError
from live.replay import Replay
from pages.parts import watch_alerts_state, watch_state, watch_words, words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.watch_state import key

_LOG_SECONDS = 2 * 86_400.0
_BANNER_SECONDS, _LOG_REDRAW_SECONDS = 2.0, 3.0
_MOST_IN_BANNER, _MOST_IN_LOG = 3, 200


def _label(kind: AlertKind) -> str:
    return {
        "kv_usage": t("KV usage"),
        "preemptions": t("Preemptions"),
        "waiting": t("Waiting requests"),
        "queue_time": t("Queue time"),
        "offload_failures": t("Offload allocation failures"),
    }[kind]


def _limit_label(meaning: AlertMeaning) -> str:
    return {
        "kv_usage": t("Limit (% of the pool)"),
        "preemptions": t("Limit (in a minute)"),
        "waiting": t("Limit (requests)"),
        "queue_time": t("Limit (s, mean of a minute)"),
        "offload_failures": t("Limit (in a minute)"),
    }[meaning.kind]


# -- the banner -------------------------------------------------------------------------------------------------------


def banner(watched: Recorder | Replay) -> None:
    """The alerts that last, above everything else; nothing while there is none."""
    seconds = None if watch_state.value("is_paused") else _BANNER_SECONDS

    def draw() -> None:
        try:
            lasting = [alert for alert in _logged(watched) if alert.end_ms is None]
        except RecordingError:
            return  # the view below says what is wrong
        for alert in lasting[:_MOST_IN_BANNER]:
            since = t("since {moment}", moment=watch_words.clock(alert.start_ms))
            st.error(f"{_sentence(alert)} · {words.plain(since)}", icon=":material/notification_important:")
        if len(lasting) > _MOST_IN_BANNER:
            st.error(t("{count} more alerts stand in the log below.", count=len(lasting) - _MOST_IN_BANNER))

    st.fragment(draw, run_every=seconds, key=key("part_banner"))()


def _logged(watched: Recorder | Replay) -> tuple[LoggedAlert, ...]:
    moment = watched.status().moment
    return watched.shared.once(("alerts", moment), lambda: tuple(alert_log(watched.marks(_LOG_SECONDS))))


def _sentence(alert: LoggedAlert) -> str:
    return watch_words.sentence(said(alert.text))


# -- limits, standing and log -----------------------------------------------------------------------------------------


def panel(watched: Recorder | Replay) -> None:
    """The log of alerts; of a running recorder also how each limit stands, and the form that changes them."""
    st.subheader(t("Alerts"), anchor=False)
    seconds = None if watch_state.value("is_paused") else _LOG_REDRAW_SECONDS

    def draw() -> None:
        try:
            _standings(watched)
            _log(watched)
        except RecordingError as error:
            st.warning(words.plain(said(error.text)), icon=":material/warning:")

    st.fragment(draw, run_every=seconds, key=key("part_alerts"))()
    if isinstance(watched, Recorder):
        with st.expander(t("Limits"), icon=":material/tune:", key=key("alert_limits")):
            _form(watched)


def _standings(watched: Recorder | Replay) -> None:
    if isinstance(watched, Replay):
        limits = words.listed_long(_limit_words(rule) for rule in kept_rules(watched.recording) if rule.is_on)
        st.caption(
            t("A recording shows the alerts that were logged. Its limits: {limits}.", limits=words.plain(limits))
        )
        return
    rules = {rule.kind: rule for rule in watched.alert_rules}
    standings = watched.alert_standings()
    if not standings:
        st.caption(t("No sample yet, so no limit has been looked at."))
        return
    rows = [_row(each, rules[each.kind]) for each in standings]
    st.dataframe(pd.DataFrame(rows), hide_index=True, key=key("alert_standings"))


def _row(standing: AlertStanding, rule: AlertRule) -> dict[str, str]:
    return {
        t("Alert"): _label(standing.kind),
        t("State"): _state_words(standing, rule),
        t("Now"): "–" if standing.value is None else _shown(standing.kind, standing.value),
        t("Limit"): _shown(rule.kind, rule.limit),
        t("Engine"): standing.engine,
    }


def _shown(kind: AlertKind, value: float) -> str:
    number = shown_number(value)
    return {"kv_usage": f"{number}{chr(0xA0)}%", "queue_time": f"{number}{chr(0xA0)}s"}.get(kind, number)


def _limit_words(rule: AlertRule) -> str:
    return f"{_label(rule.kind)} {_shown(rule.kind, rule.limit)}"


def _state_words(standing: AlertStanding, rule: AlertRule) -> str:
    match standing.state:
        case "alert":
            return t("Alert since {moment}", moment=watch_words.clock(standing.since_ms or 0))
        case "near":
            return t("Past the limit, for less than {seconds} s", seconds=f"{rule.hold_seconds:g}")
        case "below":
            return t("Below the limit")
        case "no_data":
            return t("Nothing to judge by yet")
        case "not_exported":
            return t("Cannot alert: {metric} is not exported", metric=meaning_of(standing.kind).metrics)
        case "off":
            return t("Off")


def _log(watched: Recorder | Replay) -> None:
    alerts = _logged(watched)[:_MOST_IN_LOG]
    if not alerts:
        st.caption(t("No alert was logged in the last two days."))
        return
    rows = [
        {
            t("What"): said(alert.text),
            t("Begin (UTC)"): watch_words.clock(alert.start_ms),
            t("End (UTC)"): t("lasts") if alert.end_ms is None else watch_words.clock(alert.end_ms),
        }
        for alert in alerts
    ]
    st.dataframe(pd.DataFrame(rows), hide_index=True, key=key("alert_log"))


def _form(recorder: Recorder) -> None:
    watch_alerts_state.fill(recorder)
    st.caption(
        t(
            "The recorder judges each sample, also while no browser is open. An alert begins once a value has stayed at its "
            "limit or above for the time given, and is over below nine tenths of the limit. Limits are kept with the recording."
        )
    )
    problem = watch_alerts_state.problem()
    for meaning in ALERT_MEANINGS:
        _form_row(meaning, recorder)
        if problem is not None and problem[0] == meaning.kind:
            st.error(words.plain(said(problem[1])), icon=":material/error:")
    if problem is not None and not problem[0]:
        st.error(words.plain(said(problem[1])), icon=":material/error:")


def _form_row(meaning: AlertMeaning, recorder: Recorder) -> None:
    apply, keyed = watch_alerts_state.apply, watch_alerts_state.limit_key
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key=key(f"alert_row_{meaning.kind}")):
        st.toggle(_label(meaning.kind), key=keyed(meaning.kind, "is_on"), on_change=apply, args=(recorder,), width=230)
        is_off = not _is_on(recorder, meaning.kind)
        st.number_input(
            _limit_label(meaning),
            key=keyed(meaning.kind, "limit"),
            step=1.0,
            format="%g",
            on_change=apply,
            args=(recorder,),
            disabled=is_off,
            width=210,
        )
        st.number_input(
            t("For (s)"),
            key=keyed(meaning.kind, "hold"),
            step=1.0,
            format="%g",
            on_change=apply,
            args=(recorder,),
            disabled=is_off,
            width=130,
        )


def _is_on(recorder: Recorder, kind: AlertKind) -> bool:
    return any(rule.is_on for rule in recorder.alert_rules if rule.kind == kind)
