"""The demo engine on the Watch page: a real vLLM on this machine's CPU, started and stopped by a button, with a known load."""

from __future__ import annotations

import streamlit as st

from live.engine.demo_session import SessionStatus
from live.engine.environment import VLLM_RELEASE
from live.engine.load import TITLES
from pages.parts import watch_demo_state, watch_words, words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.watch_state import key

LOADS = ("tour", "calm", "shared-prefix", "burst")
_LOOK_SECONDS, _QUIET_LOOK_SECONDS = 1.0, 5.0
_USUAL_START_SECONDS = 60.0
_LOG_LINES_HEIGHT = 240


def demo_engine(*, is_open: bool) -> None:
    """The demo engine's place on the page, kept up to date while something happens."""
    status = watch_demo_state.demo().status()
    title = t("Demo engine: a real vLLM on this machine's CPU")
    is_active = status.engine.state in {"starting", "ready", "failed"} or status.is_stopping
    with st.expander(title, icon=":material/science:", expanded=is_open or is_active, key=key("demo_place")):
        seconds = _LOOK_SECONDS if status.is_moving else _QUIET_LOOK_SECONDS if status.engine.state == "ready" else None
        st.fragment(_demo, run_every=seconds, key=key("demo"))(_phase(status))


def _phase(status: SessionStatus) -> tuple[object, ...]:
    """What makes the whole page look otherwise when it changes."""
    return status.engine.state, status.is_stopping, status.address, status.engine.load_state


def _demo(drawn: tuple[object, ...]) -> None:
    status = watch_demo_state.demo().status()
    if _phase(status) != drawn:
        st.rerun()
    if status.problem:
        st.error(watch_words.sentence(said(status.problem)), icon=":material/error:")
    if status.is_stopping:
        st.markdown(t(":material/hourglass_top: The demo engine is being stopped."))
    elif status.engine.state == "absent":
        _absent(status)
    elif status.engine.state == "starting":
        _starting(status)
    elif status.engine.state == "ready":
        _ready(status)
    else:
        _stopped(status)


def _absent(status: SessionStatus) -> None:
    st.markdown(t("Without an engine of your own, KVScope can start a real one. It needs vLLM's CPU build once:"))
    st.code("make engine", language="shell")
    st.caption(watch_words.sentence(said(status.engine.text)))


def _stopped(status: SessionStatus) -> None:
    if status.engine.state == "failed":
        st.error(watch_words.sentence(said(status.engine.text)), icon=":material/error:")
        if status.engine.log_tail:
            st.code("\n".join(status.engine.log_tail), language=None, height=_LOG_LINES_HEIGHT)
    st.markdown(
        t(
            "vLLM {release} serves a tiny random model here, with its block tables and KV events. A load of known requests is "
            "sent to it, so that the plan's pool and the expected curve stand beside what really happens.",
            release=VLLM_RELEASE,
        )
    )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _load_choice()
        st.button(
            t("Start the demo engine"),
            key=key("demo_start"),
            icon=":material/play_arrow:",
            on_click=watch_demo_state.start,
            help=t("It takes half a minute to two until it answers, and one CPU core while a load runs."),
        )


def _starting(status: SessionStatus) -> None:
    seconds = status.engine.seconds
    text = t("vLLM starts on the CPU: {seconds} s of about 30 to 120.", seconds=f"{seconds:.0f}")
    st.progress(min(0.97, seconds / (seconds + _USUAL_START_SECONDS)), text=text)
    st.caption(t("When it answers, this page shows it by itself and the load begins."))
    _stop_button()


def _ready(status: SessionStatus) -> None:
    engine = status.engine
    st.markdown(
        t("The demo engine answers at {address}.", address=watch_words.inline_code(engine.address or ""))
        + " "
        + _load_words(status)
    )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if engine.load_state != "running":
            _load_choice()
            st.button(
                t("Run this load"),
                key=key("demo_run"),
                icon=":material/play_arrow:",
                on_click=watch_demo_state.run_load,
            )
        if not watch_demo_state.is_shown(status):
            st.button(t("Show it"), key=key("demo_show"), icon=":material/visibility:", on_click=watch_demo_state.show)
        st.button(
            t("Its plan"),
            key=key("demo_plan"),
            icon=":material/memory:",
            on_click=watch_demo_state.plan,
            help=t(
                "Puts the demo engine's model and flags into the Plan page's form. Its pool there is exactly this one."
            ),
        )
        _stop_button()


def _load_words(status: SessionStatus) -> str:
    engine = status.engine
    if engine.load is None:
        return t("Its load begins in a few seconds.")
    title = load_title(engine.load.name)
    if engine.load_state == "running":
        return t("Its load is running: {title}, {count} requests.", title=title, count=len(engine.load.requests))
    failed = sum(answer.num_output_tokens is None for answer in engine.answered)
    answered = t("{count} requests were answered", count=len(engine.answered) - failed)
    return f"{answered}." if not failed else t("{answered}, {failed} failed.", answered=answered, failed=failed)


def _load_choice() -> None:
    watch_demo_state.chosen_load()
    st.selectbox(t("Workload"), LOADS, key=key("demo_load"), format_func=load_title, width=420)


def load_title(name: str) -> str:
    """A load as a choice."""
    titles = {
        "calm": t("Calm: a request every second"),
        "shared-prefix": t("Shared prefixes: long prompts in common are found cached"),
        "burst": t("Burst: many long requests at once, some are preempted"),
        "tour": t("Tour: calm, shared prefixes, then a burst"),
    }
    return titles.get(name, words.plain(TITLES.get(name, name)))


def _stop_button() -> None:
    st.button(
        t("Stop the demo engine"), key=key("demo_stop"), icon=":material/stop_circle:", on_click=watch_demo_state.stop
    )
