"""The memory of the machine's cards beside the engine. Only reads and draws."""

from __future__ import annotations

import streamlit as st

from live.nvml import ProcessMemory
from pages.parts import watch_state, words


@st.fragment(run_every=5.0)
def cards() -> None:
    """The memory of this machine's cards as NVML sees it, or the named state that says why there is none."""
    st.subheader("Cards of this machine", anchor=False)
    found = watch_state.cards()
    if found.kind != "ok":
        st.caption(words.plain(found.remedy))
    for gpu in found.gpus:
        held = "; ".join(_process_words(each) for each in gpu.processes) or "no process told"
        used = f"{words.gib(gpu.used_bytes)} of {words.gib(gpu.total_bytes)} in use"
        st.progress(
            min(1.0, gpu.used_bytes / max(1, gpu.total_bytes)), text=words.plain(f"{gpu.index}: {gpu.name}, {used}")
        )
        st.caption(words.plain(f"Processes: {held}."))


def _process_words(process: ProcessMemory) -> str:
    size = "size not told" if process.used_bytes is None else words.gib(process.used_bytes)
    return f"{process.pid} holds {size}"
