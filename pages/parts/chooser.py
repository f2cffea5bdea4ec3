"""The chooser of the language below every page; it also tells the browser which language the page is in."""

from __future__ import annotations

import streamlit as st

from pages.parts import language_state
from pages.parts.language import LANGUAGES, html_name, t


def language_chooser() -> None:
    """Draw the chooser at the page's end, reachable by keyboard like any other control."""
    st.segmented_control(
        t("Language"),
        tuple(LANGUAGES),
        key=language_state.chooser_key(),
        required=True,
        format_func=LANGUAGES.__getitem__,
        on_change=language_state.choose,
        label_visibility="collapsed",
    )
    _tell_browser(html_name())


def _tell_browser(name: str) -> None:
    """Set the page's `lang`: Streamlit's own says "en" whatever the page shows, and screen readers and fonts go by it."""
    st.html(f"<script>document.documentElement.lang = {name!r};</script>", unsafe_allow_javascript=True)
