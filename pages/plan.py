"""The Plan page: from a model, a card and vLLM's flags to where every GiB goes and whether vLLM starts."""

from __future__ import annotations

import streamlit as st

from pages.parts import ask_vllm, calibrate_held, inputs, paste, problems, report_pages, results, state
from planner.facts import PlanError

answered = state.answer()
with st.sidebar:
    inputs.plan_form(answered)

link_problem = state.take_link_problem()
if link_problem:
    st.warning(link_problem, icon=":material/link_off:")
if isinstance(answered, PlanError):
    problems.say_instead_of_plan(answered)
    paste.paste_report(None)
else:
    plan = answered.plan
    results.verdict(plan)
    report_pages.plan(answered)
    calibrate_held.plan_switch()
    paste.paste_report(plan)
    results.changes(plan)
    results.findings(plan.findings)
    results.budget(plan)
    results.host(plan)
    results.capacity(answered)
    results.what_ifs(answered)
    results.by_length(answered)
    ask_vllm.section(answered)
    results.share(answered)
    results.resolved(plan)
