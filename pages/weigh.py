"""The Trade-offs page: what block size, windows, the hybrid manager and prefix caching cost and buy on chosen lengths."""

from __future__ import annotations

import streamlit as st

from pages.parts import (
    report_pages,
    simulate_inputs,
    simulate_results,
    simulate_sources,
    simulate_state,
    simulate_weigh_results,
)
from planner.facts import PlanError

simulate_state.start_page()
asked = simulate_sources.read_sources() or simulate_state.asked_setup()
problem = asked if isinstance(asked, PlanError) else None
with st.sidebar:
    simulate_inputs.simulation_form(problem)

link_problem = simulate_state.take_link_problem()
if link_problem:
    st.warning(link_problem, icon=":material/link_off:")
if isinstance(asked, PlanError):
    simulate_results.say_instead_of_run(asked)
else:
    job = simulate_state.weigh_job_of(asked)
    is_done = job.wait(simulate_state.PATIENCE_SECONDS)
    simulate_weigh_results.title(asked.setup, job)
    if is_done:
        report_pages.trade_offs(asked.setup, job)
        simulate_weigh_results.points(job)
    else:
        simulate_weigh_results.progress(job)
