"""The frame of every page: page config, the link, and the only navigation."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.parts import chooser, language_state, simulate_state, state
from pages.parts.language import t

PARTS = Path(__file__).parent / "parts"

# Files, not names of symbols: the browser would fetch those from elsewhere.
st.set_page_config(
    page_title="KVScope",
    page_icon=PARTS / "icon.png",
    layout="wide",
    initial_sidebar_state=360,
)
st.html(PARTS / "page.css")
st.logo(PARTS / "logo.svg", size="large", icon_image=PARTS / "icon.png")
language_state.answer()
state.start_session()
language_state.tidy_link()
page = st.navigation(
    [
        st.Page("plan.py", title=t("Plan"), icon=":material/memory:", default=True),
        st.Page("simulate.py", title=t("Simulate"), icon=":material/grid_view:"),
        st.Page("weigh.py", title=t("Trade-offs"), icon=":material/balance:"),
        st.Page("watch.py", title=t("Watch"), icon=":material/monitor_heart:"),
        st.Page("calibrate.py", title=t("Calibrate"), icon=":material/tune:"),
        st.Page("compare.py", title=t("Compare"), icon=":material/table_chart:"),
        st.Page("verify.py", title=t("Accuracy"), icon=":material/straighten:", url_path="accuracy"),
        st.Page("learn.py", title=t("Learn"), icon=":material/school:"),
    ],
    position="top",
)
page.run()
chooser.language_chooser()
if page.url_path in {"simulate", "weigh"}:
    state.keep_link_extra("sim", simulate_state.link_text())
state.write_link(page.url_path)
