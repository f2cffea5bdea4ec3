"""A fleet on the Watch page: a Prometheus server, the engines it knows by their labels, and how much of the past to draw."""

from __future__ import annotations

import streamlit as st

from live.scrape_address import ALLOW_SETTING
from pages.parts import watch_fleet_state, watch_words
from pages.parts.language import t
from pages.parts.watch_state import key


def prometheus_server() -> None:
    """The choice of a server, and of an engine that it knows."""
    watch_fleet_state.start()
    st.markdown(t("A Prometheus server that scrapes your engines gives each of them with its past."))
    st.text_input(
        t("Prometheus server"),
        key=key("fleet_server"),
        help=t(
            "The address of its web page. Its HTTP API is asked; nothing is changed there. Another machine is read only where "
            "{setting} names it.",
            setting=watch_words.inline_code(ALLOW_SETTING),
        ),
    )
    st.text_input(
        t("Only with these labels"),
        key=key("fleet_labels"),
        placeholder="job=vllm, namespace=prod",
        help=t("Label names and values, with commas; empty: all engines of the server."),
    )
    st.button(t("Show its engines"), key=key("fleet_look"), icon=":material/search:", on_click=watch_fleet_state.look)
    if watch_fleet_state.engines():
        _engine_choice()


def _engine_choice() -> None:
    engines = watch_fleet_state.engines()
    st.selectbox(
        t("Engine of {count}", count=len(engines)),
        range(len(engines)),
        key=key("fleet_engine"),
        format_func=lambda place: watch_words.engine_name(engines[place].identity),
    )
    st.segmented_control(
        t("Past to begin with"),
        tuple(watch_fleet_state.PASTS),
        key=key("fleet_past"),
        format_func=_past_title,
        required=True,
    )
    st.button(
        t("Watch this engine"),
        key=key("fleet_watch"),
        icon=":material/play_arrow:",
        on_click=watch_fleet_state.watch_chosen,
        type="primary",
    )


def _past_title(name: str) -> str:
    return {"hour": t("Last hour"), "day": t("Last day"), "none": t("From now on")}[name]
