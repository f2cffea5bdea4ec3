"""The frame of every page: page config, the link, and the only navigation."""

from __future__ import annotations

import streamlit as st

from pages.parts import state

st.set_page_config(
    page_title="KVScope",
    page_icon=":material/memory:",
    layout="wide",
    initial_sidebar_state=360,
)
state.start_session()
page = st.navigation(
    [st.Page("plan.py", title="Plan", icon=":material/memory:", default=True)],
    position="top",
)
page.run()
state.write_link()
