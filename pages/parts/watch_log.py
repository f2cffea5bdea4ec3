"""A start-up log beside the watched engine: the terms that no metric exports, next to those of the plan."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from pages.parts import state, watch_state, words
from pages.parts.language import t
from pages.parts.watch_state import key
from planner.answer import RankPlan
from planner.facts import Estimate, PlanError
from planner.startup_log import LARGEST_LOG_BYTES, StartupLog
from planner.units import MIB

_LARGEST_LOG_MB = LARGEST_LOG_BYTES // 1_000_000


def startup_log() -> None:
    """The place for a log, and what it says beside the plan."""
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
            _terms(watch_state.read_log(text))


def _terms(log: StartupLog) -> None:
    answered = watch_state.plan_answer()
    rank = None if isinstance(answered, PlanError) else answered.plan.ranks[answered.plan.bounding_rank]
    rows = log_rows(log, rank)
    if log.failure is not None:
        st.error(words.plain(log.failure[:600]), icon=":material/error:")
    if not rows:
        st.info(t("No line here says what vLLM took; give the lines from its start on, at log level INFO."))
        return
    st.dataframe(pd.DataFrame(rows), hide_index=True, key=key("log_terms"))
    if not isinstance(answered, PlanError):
        st.caption(_plan_words(log, answered))
    st.page_link("calibrate.py", label=t("Calibrate: every term of a log against the plan"), icon=":material/tune:")


def _plan_words(log: StartupLog, answered: state.Answer) -> str:
    served = log.model_name
    if (
        served is not None
        and served.rsplit("/", 1)[-1].lower() != answered.plan.request.model_id.rsplit("/", 1)[-1].lower()
    ):
        return t(
            "The plan is for {planned}, the log is of {served}: choose that model on the Plan page to compare.",
            planned=words.plain(answered.plan.request.model_id),
            served=words.plain(served),
        )
    return t("Each term is one card's; the plan is the one of the Plan page, with its interval.")


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
