"""The Calibrate page: a real start beside its plan, and what it teaches the plans to come."""

from __future__ import annotations

import streamlit as st

from pages.parts import calibrate_held, calibrate_page, calibrate_state

if calibrate_state.has_gone():
    st.switch_page("plan.py")
calibrate_held.messages()
calibrate_page.start()
calibrate_held.held()
