"""The language of a session: from the link, else from the browser, else English; kept while the session lasts."""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.parts import state
from pages.parts.language import ENGLISH, LANGUAGES, ask, best

PARAMETER = "lang"  # of the link
_CHOICE = "language_choice"
_OUTSIDE = ENGLISH  # where no page is being drawn


def answer() -> None:
    """Tell all who ask for the language, from now on."""
    ask(chosen)


def tidy_link() -> None:
    """Let a language that we do not have leave the link."""
    named = state.link_extra(PARAMETER)
    if named is not None and named not in LANGUAGES:
        found = best(named)
        state.keep_link_extra(PARAMETER, found if found != ENGLISH else None)


def chosen() -> str:
    """The reader's language; English where no page is being drawn."""
    if get_script_run_ctx(suppress_warning=True) is None:
        return _OUTSIDE
    named = state.link_extra(PARAMETER)
    return named if named is not None and named in LANGUAGES else best(st.context.locale)


def choose() -> None:
    """Keep the language that the chooser now shows, in the session and so in the link."""
    picked: str | None = st.session_state.get(_CHOICE)
    if picked is not None and picked in LANGUAGES:
        state.keep_link_extra(PARAMETER, picked)


def chooser_key() -> str:
    """The chooser's widget key, its value set to the language in force."""
    st.session_state[_CHOICE] = chosen()
    return _CHOICE
