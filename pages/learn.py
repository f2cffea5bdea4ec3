"""The Learn page: eight lessons on vLLM's memory, each with a live figure, a graded exercise and the traps around it."""

from __future__ import annotations

import streamlit as st

from pages.parts import learn_state, learn_view

learn_state.start_page()
learner = learn_state.learner()
with st.sidebar:
    learn_view.outline()
learn_state.keep_link()  # before the page is drawn: a report names its link
if learn_state.value("is_teacher"):
    learn_view.teacher(learner)
else:
    learn_view.lesson(learn_state.value("lesson"), learner)
