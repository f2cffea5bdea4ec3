"""What is seen of the engine: state, verdict, numbers, charts, blocks, the plan beside it. Fragments only read and draw."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from live.recording_schema import RecordingError
from live.watched import OK, PAUSED, Watched, WatchStatus
from pages.parts import (
    watch_blocks,
    watch_metrics,
    watch_over_time,
    watch_plan,
    watch_seen,
    watch_sources,
    watch_state,
    watch_words,
    words,
)
from pages.parts.language import language, speaking, t
from pages.parts.said import said
from pages.parts.watch_state import key
from pages.parts.watch_verdict import Verdict, verdict

SPANS = {5: "5 min", 15: "15 min", 60: "1 h", 360: "6 h", 1440: "24 h"}
NOW_SECONDS, CHARTS_SECONDS, BLOCKS_SECONDS, PLAN_SECONDS = 1.0, 2.0, 2.0, 5.0
_VERDICTS = {
    "little": ("gray", "hourglass_top"),
    "idle": ("gray", "bedtime"),
    "thrashing": ("red", "sync_problem"),
    "full": ("red", "inventory_2"),
    "filling": ("orange", "trending_up"),
    "queue": ("orange", "hourglass_bottom"),
    "compute": ("orange", "speed"),
    "healthy": ("green", "check_circle"),
}


def draw(watched: Watched, interval_ms: int) -> None:
    """The whole view of what is watched, kept up to date until the reader holds it still."""
    is_still = bool(watch_state.value("is_paused"))
    # above all that changes its height by itself: a list that is moved closes
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox(t("Time shown"), tuple(SPANS), key=key("minutes"), format_func=SPANS.__getitem__, width=120)
        st.toggle(t("Hold still"), key=key("is_paused"), help=t("Stops redrawing. The recording goes on."))
    _repeat(lambda: _now(watched), "now", None if is_still else NOW_SECONDS)
    _repeat(lambda: watch_over_time.over_time(watched, interval_ms), "charts", None if is_still else CHARTS_SECONDS)
    _repeat(lambda: _blocks(watched), "blocks", None if is_still else BLOCKS_SECONDS)
    _repeat(lambda: _beside_plan(watched), "plan", None if is_still else PLAN_SECONDS)


def _repeat(show: Callable[[], None], name: str, seconds: float | None) -> None:
    def guarded() -> None:
        try:
            with speaking(language()):  # asked once, not for each sentence
                show()
        except RecordingError as error:
            st.warning(words.plain(said(error.text)), icon=":material/warning:")

    st.fragment(guarded, run_every=seconds, key=key(f"part_{name}"))()


# -- now --------------------------------------------------------------------------------------------------------------


def _now(watched: Watched) -> None:
    status = watched.status()
    told = watch_words.state_words(status, is_replay=watched is watch_state.replay())
    st.markdown(
        f":{told.colour}[{told.icon} **{told.title}**] · "
        f"{watch_words.inline_code(watch_words.address_title(status.address))} · {_as_of(status)}"
    )
    if told.text:
        st.info(watch_words.sentence(told.text), icon=":material/info:")
    if status.storage_text:
        st.error(words.plain(said(status.storage_text)), icon=":material/save:")
    if status.snapshot is not None:
        watch_sources.engine_choice([watch_words.engine_name(each.identity) for each in status.snapshot.engines])
    seen = watch_seen.seen_of(watched, status)
    if seen is None:
        return
    if status.state in {OK, PAUSED}:
        _verdict(verdict(seen.evidence))
    watch_metrics.metrics(seen)


def _as_of(status: WatchStatus) -> str:
    moment = words.plain(watch_words.clock(status.time_ms))
    if status.snapshot is None:
        return moment
    version = words.plain(watch_words.version_words(status.snapshot))
    if status.state in {OK, PAUSED}:
        return f"{version} · {moment}"
    age = f"{status.snapshot_age_seconds or 0.0:,.0f} s"
    return f"{version} · {moment} · {t('numbers are {age} old', age=age)}"


def _verdict(found: Verdict) -> None:
    colour, icon = _VERDICTS[found.kind]
    st.header(f":{colour}[:material/{icon}:] {words.plain(found.title)}", anchor=False)
    st.markdown(words.plain(found.numbers))
    if found.advice:
        st.caption(words.plain(found.advice))


# -- blocks and plan --------------------------------------------------------------------------------------------------


def _blocks(watched: Watched) -> None:
    status = watched.status()
    sample = watch_seen.sample_of(status)
    if sample is not None:
        watch_blocks.blocks(watch_seen.recording_of(watched), status, sample)


def _beside_plan(watched: Watched) -> None:
    status = watched.status()
    sample, snapshot = watch_seen.sample_of(status), status.snapshot
    if sample is not None and snapshot is not None:
        watch_plan.beside_plan(sample, snapshot, watch_plan.planned_now(sample, snapshot))
