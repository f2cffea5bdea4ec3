"""What is seen of the engine: state, verdict, numbers, charts, blocks, the plan beside it. Fragments only read and draw."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from live.downsample import drawn
from live.recording import Window
from live.recording_schema import RecordingError
from live.watched import OK, PAUSED, Watched, WatchStatus
from pages.parts import (
    watch_blocks,
    watch_charts,
    watch_expected,
    watch_metrics,
    watch_plan,
    watch_prediction,
    watch_seen,
    watch_sources,
    watch_state,
    watch_tiers,
    watch_words,
    words,
)
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.watch_expected import Expectation, Points
from pages.parts.watch_seen import Seen
from pages.parts.watch_state import key
from pages.parts.watch_verdict import Verdict, verdict

SPANS = {5: "5 min", 15: "15 min", 60: "1 h", 360: "6 h", 1440: "24 h"}
NOW_SECONDS, CHARTS_SECONDS, BLOCKS_SECONDS, PLAN_SECONDS = 1.0, 2.0, 2.0, 5.0
_MOST_POINTS = 900
_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}
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
    _repeat(lambda: _now(watched), "now", None if is_still else NOW_SECONDS)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox(t("Time shown"), tuple(SPANS), key=key("minutes"), format_func=SPANS.__getitem__, width=120)
        st.toggle(t("Hold still"), key=key("is_paused"), help=t("Stops redrawing. The recording goes on."))
    _repeat(lambda: _charts(watched, interval_ms), "charts", None if is_still else CHARTS_SECONDS)
    _repeat(lambda: _blocks(watched), "blocks", None if is_still else BLOCKS_SECONDS)
    _repeat(lambda: _beside_plan(watched), "plan", None if is_still else PLAN_SECONDS)


def _repeat(show: Callable[[], None], name: str, seconds: float | None) -> None:
    def guarded() -> None:
        try:
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


# -- over time --------------------------------------------------------------------------------------------------------


def _charts(watched: Watched, interval_ms: int) -> None:
    seen = watch_seen.seen_of(watched, watched.status())
    if seen is None:
        return
    seconds = 60.0 * float(watch_state.value("minutes"))
    recording = watch_seen.recording_of(watched)
    cards = () if recording is None else watch_charts.card_series(recording.series_names())
    window = watched.window((*watch_seen.series_names(seen.sample), *cards), seconds)
    stage = watch_charts.Stage(
        drawn=drawn(window, interval_ms, _MOST_POINTS),
        identity=seen.sample.identity,
        start_ms=_start_ms(window, seen.status, seconds),
        end_ms=seen.status.time_ms,
        marks=watched.marks(seconds),
    )
    _usage(seen, stage)
    left, right = st.columns(2)
    with left:
        _chart(t("Requests"), watch_charts.requests(stage), "requests")
    with right:
        _chart(t("Preemptions and the queue"), watch_charts.preemptions(stage), "preemptions")
    with left:
        _chart(t("Prefix hits"), watch_charts.hits(stage), "hits")
    with right:
        _offload(stage)
    if cards:
        _chart(t("Memory of the machine's cards in use"), watch_charts.cards(stage, cards), "cards")
    watch_tiers.tiers(seen)
    _events(stage)


def _usage(seen: Seen, stage: watch_charts.Stage) -> None:
    """Usage with what is expected, and in a line below it what the expectation is made of."""
    points = Points(time_ms=stage.drawn.time_ms, series=stage.whole, sample=seen.sample)
    expected = watch_expected.expectation(points, seen.known, seen.held)
    capacity = _capacity_fraction(seen)
    _chart(t("KV usage"), watch_charts.usage(stage, expected, capacity), "usage")
    st.caption(_usage_words(seen, expected, capacity))


def _capacity_fraction(seen: Seen) -> float | None:
    """The plan's pool as a share of the engine's own."""
    tokens = watch_prediction.pool_tokens(seen.sample)
    return seen.plan.pool.tokens / tokens if seen.plan is not None and tokens else None


def _usage_words(seen: Seen, expected: Expectation | None, capacity: float | None) -> str:
    parts = []
    if expected is not None:
        parts.append(expected.text)
    if capacity is not None and seen.plan is not None:
        parts.append(
            t(
                "The plan's pool of {tokens} tokens is {share} of the engine's.",
                tokens=words.count(seen.plan.pool.tokens),
                share=watch_words.percent(capacity),
            )
        )
    if not parts:
        return t("Nothing is expected yet: no request has finished, and no plan is of this model.")
    return " ".join(parts)


def _start_ms(window: Window, status: WatchStatus, seconds: float) -> int:
    first = int(window.time_ms[0]) if len(window.time_ms) else status.time_ms
    return max(status.time_ms - int(seconds * 1000), min(first, status.time_ms - 60_000))


def _chart(title: str, figure: object, name: str) -> None:
    st.markdown(f"**{title}**")
    alt = t("{title} over time", title=title)
    st.plotly_chart(figure, key=key(f"chart_{name}"), config=_QUIET_CHART, alt=alt)


def _offload(stage: watch_charts.Stage) -> None:
    if stage.has("offload_store_bytes", "offload_load_bytes"):
        _chart(t("Offload to the host"), watch_charts.offload(stage), "offload")
    else:
        st.markdown(f"**{t('Offload to the host')}**")
        st.caption(t("Not exported by this version, or no KV offloading is configured."))


def _events(stage: watch_charts.Stage) -> None:
    lines = [(mark.time_ms, f"{mark.kind.replace('_', ' ')}: {said(mark.text)}") for mark in stage.marks]
    lines += [
        (gap.start_ms, f"{t('gap')}, {gap.state.replace('_', ' ')}: {said(gap.text)}") for gap in stage.drawn.gaps
    ]
    if not lines:
        return
    with st.expander(t("Marks and gaps ({count})", count=len(lines)), key=key("events")):
        for time_ms, text in sorted(lines, reverse=True)[:50]:
            st.markdown(watch_words.sentence(f"{watch_words.clock(time_ms)} · {text}"))


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
        watch_plan.beside_plan(sample, snapshot, watch_plan.planned_for(sample, snapshot))
