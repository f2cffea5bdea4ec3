"""Lesson 8: reading a live engine, on the recorded session of a real one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import streamlit as st

import live
from live.chunks import Numbers
from live.compare_recordings import increase
from live.recording import Recording, Window
from live.replay import snapshots
from live.sample_codec import series_name
from live.samples import EngineIdentity
from pages.parts import learn_figures
from pages.parts.language import t
from pages.parts.learn_lesson import Exercise, Lesson, Trap
from pages.parts.learn_state import Learner, key
from pages.parts.watch_evidence import Evidence, evidence, watched_names
from pages.parts.watch_verdict import Verdict, verdict

_QUIET = {"displayModeBar": False}
_WINDOW_SECONDS = 12.0
_KINDS = ("idle", "compute", "thrashing", "healthy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The recorded engine's series by the second, and the window in which it preempted most, with its verdict."""

    seconds: Numbers
    usage_percent: Numbers
    running: Numbers
    waiting: Numbers
    preemptions: Numbers  # since the start
    window: tuple[float, float]
    seen: Evidence
    verdict: Verdict
    vllm_version: str | None


@lru_cache(maxsize=1)
def recorded_session() -> Session:
    """The session that comes with the project."""
    path = min((Path(live.__file__).parent / "data").glob("*.kvscope"))
    recording = Recording.open(path)
    try:
        first = next(snapshot for snapshot in snapshots(recording) if snapshot.engines)
        identity = first.engines[0].identity
        window = recording.window(watched_names(identity))
    finally:
        recording.close()
    return _session(window, identity, first.vllm_version)


def _session(window: Window, identity: EngineIdentity, vllm_version: str | None) -> Session:
    def series(field: str) -> Numbers:
        return window.series(series_name(identity, field))

    seconds = (window.time_ms - window.time_ms[0]) / 1000.0
    added = increase(series("num_preemptions"))
    start, end = _busiest(seconds, added)
    seen = evidence(_until(window, window.time_ms[0] + int(end * 1000)), identity, _WINDOW_SECONDS)
    return Session(
        seconds=seconds,
        usage_percent=100 * series("kv_usage_fraction"),
        running=series("num_requests_running"),
        waiting=series("num_requests_waiting"),
        preemptions=added,
        window=(start, end),
        seen=seen,
        verdict=verdict(seen),
        vllm_version=vllm_version,
    )


def _busiest(seconds: Numbers, added: Numbers) -> tuple[float, float]:
    """The window in which the counter rose most."""
    starts = np.searchsorted(seconds, seconds - _WINDOW_SECONDS)
    known = np.nan_to_num(added)
    end = int(np.argmax(known - known[starts]))
    return float(seconds[starts[end]]), float(seconds[end])


def _until(window: Window, end_ms: int) -> Window:
    kept = window.time_ms <= end_ms
    return Window(time_ms=window.time_ms[kept], names=window.names, numbers=window.numbers[:, kept], gaps=window.gaps)


def reading(_learner: Learner) -> Lesson:
    """Lesson 8: what the metrics say together."""
    return Lesson(
        slug="live",
        goal=t("Tell from four series whether memory or compute holds an engine back."),
        minutes=10,
        text=t(
            "Requests a second say how busy an engine is, not what holds it back. Four series together do: KV usage, running, "
            "waiting, preemptions. Usage near 100 % with a queue and preemptions means memory: more pool or fewer at once. A queue "
            "beside a half-empty pool means compute or the scheduler's limits. Nothing running and nothing waiting is idle, "
            "whatever the usage says. This is a recorded session of a real engine with a small pool; the Watch page shows yours."
        ),
        figure=_session_figure,
        exercise=_exercise(recorded_session()),
        traps=_live_traps(),
        discussion=t(
            "The preemption counter stood still for an hour. Is the pool large enough? What would you look at next?"
        ),
    )


def _exercise(session: Session) -> Exercise:
    start, end = session.window
    return Exercise(
        question=t(
            "What holds the engine back in the shaded part, {start} to {end} s?",
            start=f"{start:.0f}",
            end=f"{end:.0f}",
        ),
        choices=(
            t("Nothing: it is idle."),
            t("Compute: requests wait beside a half-empty pool."),
            t("Memory: the pool is full and requests are preempted."),
            t("Nothing: it is busy and healthy."),
        ),
        answer=_KINDS.index(session.verdict.kind),
        hint=t("Look at usage first, then at the preemptions."),
        explanation=t(
            "{times} preemptions in {seconds} s at {usage} % usage. Memory holds it back: each of these requests is computed "
            "again.",
            times=f"{session.seen.preemptions or 0:.0f}",
            seconds=f"{end - start:.0f}",
            usage=f"{_peak(session):.0f}",
        ),
    )


def _peak(session: Session) -> float:
    start, end = session.window
    kept = (session.seconds >= start) & (session.seconds <= end)
    return float(np.nanmax(session.usage_percent[kept]))


def _live_traps() -> tuple[Trap, ...]:
    return (
        Trap(
            claim=t("A metric that is not there is zero."),
            exact=t("It is not exported by that version, or the feature is off."),
            why=t(
                "V0 counted swapped requests and V1 does not; offload series exist only with a connector. KVScope says so."
            ),
        ),
        Trap(
            claim=t("vllm:prefix_cache_queries counts tokens."),
            exact=t("Early V1 counted blocks under that name."),
            why=t("The help line of the metric tells which. A hit rate stays right, a count does not."),
        ),
        Trap(
            claim=t("The first requests show how fast the engine is."),
            exact=t("The first ones compile and capture; send a few warm-up requests before you measure."),
            why=t("The first seconds of any recording belong to the warm-up."),
        ),
    )


def _session_figure() -> None:
    session = recorded_session()
    lines = (
        (t("KV usage, %"), session.usage_percent),
        (t("running"), session.running),
        (t("waiting"), session.waiting),
        (t("preemptions so far"), session.preemptions),
    )
    figure = learn_figures.recorded_session(session.seconds, lines, session.window)
    alt = t(
        "KV usage, running and waiting requests and preemptions over {seconds} s", seconds=f"{session.seconds[-1]:.0f}"
    )
    st.plotly_chart(figure, key=key("live_chart"), config=_QUIET, alt=alt)
    st.caption(
        t("Recorded from vLLM {version}, on a CPU, with a pool of 255 blocks.", version=session.vllm_version or "?")
    )
