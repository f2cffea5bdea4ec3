"""The memory of the machine's cards beside the engine, split into vLLM's parts. Only reads and draws."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from live.card_memory import CardMemory, EngineTerms, split_card, terms_of_log, terms_of_plan
from live.nvml import DetectedGpu, ProcessMemory
from live.recorded_cards import holds_cards, recorded_cards
from live.recorder import Recorder
from live.recording_schema import RecordingError
from live.replay import Replay
from pages.parts import state, watch_memory, watch_plan, watch_seen, watch_state, words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.watch_state import key, value
from planner.answer import Plan
from planner.startup_log import StartupLog, read_startup_log

_CARDS_SECONDS = 5.0
_QUIET_CHART = {"displayModeBar": False, "scrollZoom": False}


def cards(watched: Recorder | Replay) -> None:
    """The memory of the cards: of this machine as NVML sees it now, or of the recorded engine's where they were recorded."""
    seconds = None if watch_state.value("is_paused") else _CARDS_SECONDS
    if isinstance(watched, Recorder):
        st.subheader(t("Cards of this machine"), anchor=False)
        st.fragment(_cards_now, run_every=seconds, key=key("part_cards"))(watched)
    elif holds_cards(watched.recording):
        st.subheader(t("Cards of the recorded machine"), anchor=False)
        st.fragment(_cards_then, run_every=seconds, key=key("part_cards"))(watched)


def _cards_now(recorder: Recorder) -> None:
    """The cards of this machine, or the named state that says why there are none."""
    found = watch_state.cards()
    if found.kind != "ok":
        st.caption(words.plain(said(found.remedy)))
    if found.gpus:
        _draw(found.gpus, _terms(recorder, max(gpu.total_bytes for gpu in found.gpus)))


def _cards_then(replay: Replay) -> None:
    """The cards at the moment that plays."""
    try:
        found = recorded_cards(replay.recording, replay.status().time_ms)
    except RecordingError as error:
        st.warning(words.plain(said(error.text)), icon=":material/warning:")
        return
    if not found:
        st.caption(t("No card was recorded within a minute before this moment."))
        return
    plan = _plan(replay)
    _draw(found, None if plan is None else terms_of_plan(plan))


def _draw(gpus: Sequence[DetectedGpu], terms: EngineTerms | None) -> None:
    split = tuple(split_card(gpu, terms) for gpu in gpus)
    st.plotly_chart(
        watch_memory.memory_bars(split, is_dark=state.is_dark()),
        key=key("cards"),
        config=_QUIET_CHART,
        alt=" ".join(watch_memory.memory_alt(card) for card in split),
    )
    if terms is not None:
        st.caption(_source_words(terms))
    for card in split:
        st.caption(_card_words(card))


def _terms(recorder: Recorder, total_bytes: int) -> EngineTerms | None:
    """What the start-up log says of the engine's parts, else what the plan does."""
    log = _log()
    told = None if log is None else terms_of_log(log, total_bytes)
    if told is not None:
        return told
    plan = _plan(recorder)
    return None if plan is None else terms_of_plan(plan)


def _log() -> StartupLog | None:
    uploaded, typed = value("log_file"), value("log_text") or ""
    text = uploaded.getvalue().decode("utf-8", "replace") if uploaded is not None else typed
    return _read_log(text) if text.strip() else None


@st.cache_data(max_entries=8, show_spinner=False)
def _read_log(text: str) -> StartupLog:
    return read_startup_log(text)


def _plan(watched: Recorder | Replay) -> Plan | None:
    status = watched.status()
    sample = watch_seen.sample_of(status)
    if sample is None or status.snapshot is None:
        return None
    planned = watch_plan.planned_now(sample, status.snapshot)
    return None if planned is None else planned.plan


def _source_words(terms: EngineTerms) -> str:
    source = t("the start-up log") if terms.source == "log" else t("the plan")
    return t(
        "Each process's memory is measured by NVML; how the engine's divides is told by {source}. Hatched parts are outside "
        "vLLM's budget, the dotted line is where the budget ends.",
        source=source,
    )


def _card_words(card: CardMemory) -> str:
    gpu = card.gpu
    held = "; ".join(_process_words(each) for each in gpu.processes) or t("no process told")
    parts = [
        t(
            "{card}, {used} of {total} in use. Processes: {held}.",
            card=words.plain(watch_memory.card_title(card)),
            used=words.gib(gpu.used_bytes),
            total=words.gib(gpu.total_bytes),
            held=words.plain(held),
        )
    ]
    beyond = card.beyond_budget_bytes
    if beyond is not None and beyond > 0:
        text = t(
            "The engine holds {size} more than its budget: CUDA contexts and graphs beyond the reserve are not in it.",
            size=words.gib(beyond),
        )
        parts.append(text)
    if card.text:
        parts.append(words.plain(said(card.text)))
    return " ".join(parts)


def _process_words(process: ProcessMemory) -> str:
    size = t("size not told") if process.used_bytes is None else words.gib(process.used_bytes)
    if not process.pid:
        return t("the largest holds {size}", size=size)
    return t("{pid} holds {size}", pid=process.pid, size=size)
