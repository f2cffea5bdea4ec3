"""A comparison under way as the reader sees it: how far it is, what it has, Stop; and afterwards whether it was stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from pages.parts import compare_state, words
from pages.parts.compare_job import CompareJob
from pages.parts.compare_state import key
from pages.parts.language import t
from pages.parts.said import said

PATIENCE_SECONDS = 1.2  # a short run is waited for, without a bar
_POLL_SECONDS = 0.5


def result_of(name: str, job: CompareJob[Any], draw_so_far: Callable[[Any], None]) -> Any:  # the job's own type
    """What `job` came to; None while it is under way or where it has a problem, which is then drawn instead.

    What went wrong in it unforeseen is raised.
    """
    if not job.wait(PATIENCE_SECONDS):
        _progress(name, job, draw_so_far)
        return None
    if job.fault is not None:
        compare_state.forget_job(name)  # the next run tries again
        raise job.fault
    if job.problem is not None:
        st.error(words.plain(said(job.problem.text)), icon=":material/error:")
        return None
    if job.is_stopped:
        st.info(t("Stopped: what stands below was found until then."), icon=":material/stop_circle:")
        st.button(
            t("Start again"),
            key=key(f"again_{name}"),
            icon=":material/restart_alt:",
            on_click=compare_state.forget_job,
            args=(name,),
        )
    return job.result


@st.fragment(run_every=_POLL_SECONDS)
def _progress(name: str, job: CompareJob[Any], draw_so_far: Callable[[Any], None]) -> None:
    if job.wait(0):
        st.rerun()
    st.progress(job.fraction, text=words.plain(job.label) or None)
    st.button(t("Stop"), key=key(f"stop_{name}"), icon=":material/stop_circle:", on_click=job.stop)
    so_far = job.so_far
    if so_far is not None:
        draw_so_far(so_far)
