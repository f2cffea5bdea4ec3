"""The Accuracy page: every prediction beside its measurement, on real starts with their sources."""

from __future__ import annotations

import streamlit as st

from pages.parts import accuracy_state, accuracy_view, report_accuracy

found = accuracy_state.record()
predicted = accuracy_state.predicted(found)
with st.sidebar:
    accuracy_view.filters(predicted)
shown = accuracy_state.picked(predicted)
accuracy_view.headline(shown)
report_accuracy.accuracy(shown, found)
accuracy_view.starts(shown)
accuracy_view.bands(shown)
accuracy_view.quantities(shown)
accuracy_view.verdicts(shown)
accuracy_view.worst(shown)
accuracy_view.left_out(found)
accuracy_view.thin()
accuracy_view.skipped(found)
accuracy_view.peers()
