"""The Compare page: what fits where, plans side by side, the fewest cards for a load, and a dry run of concurrency."""

from __future__ import annotations

import streamlit as st

from pages.parts import (
    compare_cards,
    compare_dry,
    compare_fit,
    compare_request,
    compare_scenarios,
    compare_state,
    words,
)
from pages.parts.compare_request import CARDS, DRY, FITS, SCENARIOS
from pages.parts.language import t
from pages.parts.said import said

compare_state.start_page()
link_problem = compare_state.take_link_problem()
if link_problem is not None:
    text = t(
        "This link's comparison cannot be read: {text} The first one is shown instead.", text=said(link_problem.text)
    )
    st.warning(words.plain(said(text)), icon=":material/link_off:")
titles = {
    FITS: t("What fits"),
    SCENARIOS: t("Side by side"),
    CARDS: t("Fewest cards"),
    DRY: t("Dry run"),
}
st.segmented_control(
    t("Comparison"),
    compare_request.VIEWS,
    key=compare_state.key("view"),
    format_func=titles.__getitem__,
    required=True,
    label_visibility="collapsed",
    width="stretch",
    persist_state="session",
)
asked = compare_state.asked_now()
draw = {FITS: compare_fit.view, SCENARIOS: compare_scenarios.view, CARDS: compare_cards.view, DRY: compare_dry.view}
draw[asked.view](asked)
compare_state.keep_link()
if compare_state.takes_to_plan():
    st.switch_page("plan.py")
