"""The card's part of the form: from the catalogue, of a custom size, or detected by NVML."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from live.nvml import DetectedGpu, NvmlState, detect
from pages.parts import form, problems, state, words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.state import key
from planner.facts import PlanError
from planner.gpu_catalog import GpuFacts, find_gpu, gpu_names
from planner.units import GIB


def card_input(problem: PlanError | None) -> None:
    """Draw the choice of the card, its memory and what others hold of it."""
    names = [*gpu_names(), form.CUSTOM_CARD]
    chosen = st.selectbox(t("Card"), names, key=key("gpu"), format_func=said, persist_state="session")
    problems.say(problem, "gpu")
    _memory(None if chosen in {None, form.CUSTOM_CARD} else find_gpu(chosen))
    problems.say(problem, "gpu_memory_gib", "gpu_memory_bytes", "other_processes_bytes")
    st.button(
        t("Detect this machine's card"), key=key("detect"), icon=":material/search:", on_click=_detect, width="stretch"
    )
    if state.value("detected"):
        st.caption(state.value("detected"))


def _memory(known: GpuFacts | None) -> None:
    left, right = st.columns(2)
    left.number_input(
        t("Memory, GiB"),
        min_value=0.0,
        step=1.0,
        format="%.2f",
        key=key("gpu_memory_gib"),
        value=None,
        placeholder=t("required") if known is None else words.three_digits(known.total.best_bytes / GIB),
        help=_memory_help(known),
        persist_state="session",
    )
    right.number_input(
        t("Others hold, GiB"),
        min_value=0.0,
        step=0.5,
        format="%.2f",
        key=key("other_processes_gib"),
        value=None,
        placeholder="0",
        help=t("What other processes hold on each card before vLLM starts."),
        persist_state="session",
    )


def _memory_help(known: GpuFacts | None) -> str:
    meaning = t("The card's total as CUDA reports it, the base of gpu\\_memory\\_utilization.")
    if known is None:
        return meaning
    empty = t("Empty: the catalogue's.")
    return f"{meaning} {empty}  \n{words.estimate_help(known.total)}"


def _detect() -> None:
    """Ask NVML; what it finds fills the card's fields, what it lacks is said."""
    state.keep("detected", words.plain(_fill_from(detect())))


def _fill_from(found: NvmlState) -> str:
    if not found.gpus:
        return said(found.remedy)
    first = found.gpus[0]
    known = _choose_card(first)
    watts = _power_limit_watts(found.gpus)
    state.keep("detected_power", None if watts is None else (state.value("gpu"), watts))
    held_bytes = max(_held_bytes(gpu) for gpu in found.gpus)
    state.keep("other_processes_gib", held_bytes / GIB or None)
    return t(
        "Found {gpus} × {name}, {held_bytes} held by others.{known}",
        gpus=len(found.gpus),
        name=first.name,
        held_bytes=words.gib(held_bytes),
        known=known,
    )


def _choose_card(gpu: DetectedGpu) -> str:
    try:
        state.keep("gpu", find_gpu(gpu.name).name)
        state.keep("gpu_memory_gib", None)
    except PlanError:
        state.keep("gpu", form.CUSTOM_CARD)
        state.keep("gpu_memory_gib", (gpu.total_bytes - (gpu.reserved_bytes or 0)) / GIB)
        return t(" It is not in the catalogue: the driver's total is used.")
    return ""


def _power_limit_watts(gpus: Sequence[DetectedGpu]) -> int | None:
    """The highest limit of the cards that are as the first one; None where the driver does not tell it of each."""
    watts = [gpu.power_limit_watts for gpu in gpus if gpu.name == gpus[0].name]
    return None if None in watts else max(each or 0 for each in watts)


def _held_bytes(gpu: DetectedGpu) -> int:
    """What other processes hold: by process where the driver tells, else all that is used."""
    by_process = [process.used_bytes for process in gpu.processes]
    if by_process and None not in by_process:
        return sum(used for used in by_process if used is not None)
    return gpu.used_bytes if gpu.processes or gpu.reserved_bytes is not None else 0
