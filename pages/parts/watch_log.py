"""A start-up log beside the watched engine: the terms that no metric exports, next to those of the plan."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from live.watched import Watched
from pages.parts import watch_plan, watch_seen, watch_state, words
from pages.parts.language import t
from pages.parts.watch_state import key
from planner.answer import Plan, RankPlan
from planner.facts import Estimate, PlanError
from planner.startup_log import LARGEST_LOG_BYTES, StartupLog
from planner.units import MIB

_LARGEST_LOG_MB = LARGEST_LOG_BYTES // 1_000_000


def startup_log(watched: Watched) -> None:
    """The place for a log, and what it says beside the plan of what is watched."""
    with st.expander(
        t("Start-up log: the memory that no metric exports"), icon=":material/article:", key=key("log_place")
    ):
        uploaded = st.file_uploader(
            t("Log file"), type=["log", "txt", "out"], key=key("log_file"), max_upload_size=_LARGEST_LOG_MB
        )
        typed = st.text_area(
            t("Or its lines"),
            key=key("log_text"),
            height=100,
            placeholder="Model loading took 14.99 GiB memory and 3.2 seconds",
        )
        text = uploaded.getvalue().decode("utf-8", "replace") if uploaded is not None else typed
        if text.strip():
            _terms(watch_state.read_log(text), _plan_of(watched))


def _plan_of(watched: Watched) -> Plan | None:
    """The plan that the page sets the engine against; before the first sample, the Plan page's."""
    status = watched.status()
    sample = watch_seen.sample_of(status)
    if sample is not None and status.snapshot is not None:
        planned = watch_plan.planned_for(sample, status.snapshot)
        return None if planned is None else planned.plan
    answered = watch_state.plan_answer()
    return None if isinstance(answered, PlanError) else answered.plan


def _terms(log: StartupLog, plan: Plan | None) -> None:
    rows = log_rows(log, None if plan is None else plan.ranks[plan.bounding_rank])
    if log.failure is not None:
        st.error(words.plain(log.failure[:600]), icon=":material/error:")
    if not rows:
        st.info(t("No line here says what vLLM took; give the lines from its start on, at log level INFO."))
        return
    st.dataframe(pd.DataFrame(rows), hide_index=True, key=key("log_terms"))
    st.caption(t("There is no plan for this model to compare with.") if plan is None else _plan_words(log, plan))
    st.page_link("calibrate.py", label=t("Calibrate: every term of a log against the plan"), icon=":material/tune:")


def _plan_words(log: StartupLog, plan: Plan) -> str:
    planned, served = plan.request.model_id, log.model_name
    if served is not None and _last_part(served) != _last_part(planned):
        return t(
            "The plan is for {planned}, the log is of {served}: the terms are those of two models.",
            planned=words.plain(planned),
            served=words.plain(served),
        )
    return t("Each term is one card's. The plan is that of {planned}.", planned=words.plain(planned))


def _last_part(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1].lower()


def log_rows(log: StartupLog, rank: RankPlan | None) -> list[dict[str, str]]:
    """The terms that the log says, each beside the plan's where there is one."""
    planned: dict[str, Estimate] = {}
    if rank is not None:
        planned = {
            "weights": rank.weights.load,
            "activation_peak": rank.activation,
            "non_torch": rank.non_torch,
            "cuda_graphs": rank.cuda_graphs,
            "available_kv": rank.kv_pool,
        }
    named = (
        ("weights", t("Weights")),
        ("activation_peak", t("Activation peak")),
        ("non_torch", t("Outside PyTorch")),
        ("cuda_graphs", t("CUDA graphs")),
        ("available_kv", t("Available for KV cache")),
    )
    found = ((title, log.memory(name), planned.get(name)) for name, title in named)
    return [_row(title, said, plan) for title, said, plan in found if said is not None]


def _row(title: str, said: Estimate, plan: Estimate | None) -> dict[str, str]:
    shown = words.gib(said.best_bytes)
    if plan is None:
        return {t("Term"): title, t("Log"): shown}
    span = "–" if plan.low_bytes == plan.high_bytes else f"{words.gib(plan.low_bytes)} … {words.gib(plan.high_bytes)}"
    difference = plan.best_bytes - said.best_bytes
    return {
        t("Term"): title,
        t("Log"): shown,
        t("Plan"): words.gib(plan.best_bytes),
        t("Plan's interval"): span,
        t("Plan minus log"): f"{difference / MIB:+,.0f} MiB".replace("-", "−"),
    }
