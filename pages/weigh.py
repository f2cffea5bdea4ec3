"""The Trade-offs page: what block size, windows, the hybrid manager and prefix caching cost and buy on chosen lengths."""

from __future__ import annotations

import streamlit as st

st.header("Trade-offs", anchor=False)
