"""The Simulate page: vLLM's scheduler and block table, step by step, on a pool and a workload of one's own."""

from __future__ import annotations

import streamlit as st

from pages.parts import report_pages, simulate_inputs, simulate_results, simulate_sources, simulate_state
from planner.facts import PlanError

simulate_state.start_page()
asked = simulate_sources.read_sources() or simulate_state.asked_setup()
job = None if isinstance(asked, PlanError) else simulate_state.job_of(asked)
problem = asked if isinstance(asked, PlanError) else None
if job is not None and job.wait(simulate_state.PATIENCE_SECONDS):
    problem = job.problem
with st.sidebar:
    simulate_inputs.simulation_form(problem)

link_problem = simulate_state.take_link_problem()
if link_problem:
    st.warning(link_problem, icon=":material/link_off:")
if problem is not None:
    simulate_results.say_instead_of_run(problem)
elif job is not None and not job.is_done:
    simulate_results.progress(job)
elif job is not None and job.result is not None and not isinstance(asked, PlanError):
    simulate_results.summary(job, job.result)
    report_pages.simulation(job, job.result)
    player = simulate_state.player_of(asked, job)
    if player is not None:
        simulate_results.stage(player, job)
    simulate_results.remedies()
