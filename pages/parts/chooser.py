"""The chooser of the language below every page; it also tells the browser which language the page is in."""

from __future__ import annotations

import streamlit as st

from pages.parts import language_state
from pages.parts.language import LANGUAGES, html_name, t

# Streamlit's page says lang="en" whatever it shows; a screen reader and the browser's fonts go by this attribute.
_page_language = st.components.v2.component(
    "kvscope_page_language",
    js="export default function ({ data }) { document.documentElement.lang = data; }",
)


def language_chooser() -> None:
    """Draw the chooser at the page's end, reachable by keyboard like any other control."""
    with st.container(key="language_row", horizontal=True, horizontal_alignment="right"):
        st.segmented_control(
            t("Language"),
            tuple(LANGUAGES),
            key=language_state.chooser_key(),
            required=True,
            format_func=LANGUAGES.__getitem__,
            on_change=language_state.choose,
            label_visibility="collapsed",
        )
    _page_language(key="page_language", data=html_name(), width=1, height=1)
