"""The button that asks vLLM itself about the plan: its parameter bytes, KV specs, groups and blocks beside ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from live.engine.environment import VLLM_RELEASE, find_engine
from live.engine.oracle import Difference, OracleAnswer, OracleQuestion, OracleRank, differences, question_of
from live.engine.oracle_desk import Asked, OracleDesk, process_desk
from pages.parts import words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.state import Answer, key
from planner.answer import Plan
from planner.facts import PlanError

_POLL_SECONDS = 1.0


def section(answered: Answer) -> None:
    """The question to vLLM and its answer; while it is asked, how long it has been."""
    st.subheader(t("Check with vLLM"), anchor=False)
    st.caption(
        t(
            "vLLM {release} builds this model from its config, without weights and without a card, and plans its cache; "
            "its own figures then stand beside the plan's.",
            release=VLLM_RELEASE,
        )
    )
    found = find_engine()
    if found.state != "ready":
        st.info(words.plain(said(found.text)), icon=":material/download:")
        st.code("make engine", language="bash")
        return
    try:
        question = question_of(answered.plan, answered.documents)
    except PlanError as problem:
        st.info(words.plain(said(problem.text)), icon=":material/info:")
        return
    _ask(process_desk(), question, answered.plan)


def _ask(desk: OracleDesk, question: OracleQuestion, plan: Plan) -> None:
    asked = desk.look(question)
    if asked is None or asked.state in ("failed", "stopped"):
        _button(desk, question, is_again=asked is not None)
    if asked is None:
        return
    if asked.state == "asking":
        _progress(question)
    elif asked.answer is not None:
        _result(asked.answer, plan)
    else:
        st.warning(words.plain(said(asked.text)), icon=":material/warning:")


def _button(desk: OracleDesk, question: OracleQuestion, *, is_again: bool) -> None:
    is_busy = desk.is_busy
    st.button(
        t("Ask again") if is_again else t("Check with vLLM"),
        key=key("ask_vllm"),
        icon=":material/fact_check:",
        on_click=_begin,
        args=(desk, question),
        disabled=is_busy,
        help=t("Another question is being asked on this server; one at a time.")
        if is_busy
        else t("Takes about half a minute; at most {seconds} s.", seconds=f"{desk.limit_seconds:.0f}"),
    )


def _begin(desk: OracleDesk, question: OracleQuestion) -> None:
    desk.ask(question)


@st.fragment(run_every=_POLL_SECONDS)
def _progress(question: OracleQuestion) -> None:
    """How long vLLM has been asked, with a button that stops it; the page is drawn anew when it has answered."""
    desk = process_desk()
    asked = desk.look(question)
    if asked is None or asked.state != "asking":
        st.rerun()
    st.progress(_fraction(asked, desk), text=_waiting(asked))
    st.button(t("Stop"), key=key("stop_vllm"), icon=":material/stop_circle:", on_click=desk.stop)


def _fraction(asked: Asked, desk: OracleDesk) -> float:
    return min(1.0, asked.waited_seconds(time.monotonic()) / desk.limit_seconds)


def _waiting(asked: Asked) -> str:
    return t("vLLM is building the model: {seconds} s", seconds=f"{asked.waited_seconds(time.monotonic()):.0f}")


# -- the answer -------------------------------------------------------------------------------------------------------


def _result(answer: OracleAnswer, plan: Plan) -> None:
    entries = differences(answer, plan)
    unequal = [entry for entry in entries if not entry.is_equal]
    if unequal:
        text = t("{number} of {all} figures differ.", number=len(unequal), all=len(entries))
        st.warning(text, icon=":material/difference:")
    else:
        text = t("vLLM gives the same for all {all} figures.", all=len(entries))
        st.success(text, icon=":material/check_circle:")
    st.caption(words.plain(_about(answer, plan)))
    if answer.pool is not None and answer.pool.error is not None:
        st.info(
            words.plain(t("vLLM's words on the pool: {words}", words=answer.pool.error)), icon=":material/terminal:"
        )
    _table(difference_rows(entries), t("vLLM's figures beside the plan's"))
    for line in reasons(entries):
        st.caption(line)
    with st.expander(t("What vLLM builds and caches"), icon=":material/table:", key=key("vllm_parts")):
        _table(dtype_rows(answer.ranks, plan), t("Parameter bytes by data type, by stage"))
        _wide_table(layer_rows(answer.ranks), t("The cache of each layer, as vLLM specifies it"), "vllm_layers")
        _table(group_rows(answer, plan), t("KV cache groups, vLLM's beside the plan's"))


def _about(answer: OracleAnswer, plan: Plan) -> str:
    told = t(
        "vLLM {release}: {model_class}, {dtype}, KV cache {kv}.",
        release=answer.vllm_version or VLLM_RELEASE,
        model_class=answer.model_class or "",
        dtype=answer.dtype or "",
        kv=answer.kv_cache_dtype or "",
    )
    if plan.vllm_version == VLLM_RELEASE:
        return told
    return f"{told} " + t(
        "The plan is for {version}: what another release does otherwise shows as a difference.",
        version=plan.vllm_version,
    )


def difference_rows(entries: Sequence[Difference]) -> list[dict[str, Any]]:
    """One row a figure: vLLM's, and the plan's where it is another, with the difference."""
    return [
        {
            t("Figure"): said(entry.name),
            "vLLM": _number(entry.vllm, entry.unit),
            t("Plan"): t("the same") if entry.is_equal else _other_number(entry),
        }
        for entry in entries
    ]


def _other_number(entry: Difference) -> str:
    return f"{_number(entry.planned, entry.unit)} ({entry.error_fraction:+.3%})".replace("-", "−")


def reasons(entries: Sequence[Difference]) -> list[str]:
    """Why figures differ, where it is known."""
    told = [(said(entry.name), said(entry.text)) for entry in entries if not entry.is_equal and entry.text]
    return [words.plain(f"{name}: {text}") for name, text in told]


def _number(value: float, unit: str) -> str:
    if unit == "bytes":
        return words.exact_bytes(value)
    return words.concurrency(value) if unit == "requests" else words.count(value)


def dtype_rows(ranks: Sequence[OracleRank], plan: Plan) -> list[dict[str, Any]]:
    """The parameters that vLLM holds of each data type, with the plan's sum below them."""
    rows = []
    for place, (theirs, ours) in enumerate(zip(ranks, plan.ranks, strict=True)):
        stage = t("stage {number}", number=place) if len(ranks) > 1 else t("rank 0")
        for dtype, num_bytes in sorted(theirs.parameter_bytes_by_dtype.items()):
            rows.append({t("Where"): stage, t("Data type"): f"`{dtype}`", "vLLM": words.exact_bytes(num_bytes)})
        rows.append({t("Where"): stage, t("Data type"): t("all"), "vLLM": words.exact_bytes(theirs.parameter_bytes)})
        planned = words.exact_bytes(ours.weights.parameter_bytes)
        rows.append({t("Where"): stage, t("Data type"): t("all, by the plan"), "vLLM": planned})
    return rows


def layer_rows(ranks: Sequence[OracleRank]) -> list[dict[str, Any]]:
    """Equal layers in one row: vLLM's spec class, block size, page, bytes of a token and of a state."""
    return [
        {
            t("Stage"): place,
            t("Layers"): layers.num_layers,
            t("Spec"): layers.kind,
            t("Tokens in a block"): layers.block_size,
            t("Page of a layer, bytes"): layers.page_bytes,
            t("Cache of a token, bytes"): layers.token_bytes or None,
            t("State of a sequence, bytes"): layers.state_bytes or None,
            t("Window, tokens"): layers.sliding_window,
        }
        for place, rank in enumerate(ranks)
        for layers in rank.layers
    ]


def group_rows(answer: OracleAnswer, plan: Plan) -> list[dict[str, Any]]:
    """The KV cache groups of both, one row a group; a group that only one has leaves the other side empty."""
    theirs = answer.pool.groups if answer.pool is not None else ()
    ours = plan.pool.groups
    shown = [
        f"{each.num_layers} × {words.count(each.block_size)} × {words.exact_bytes(each.page_bytes)}" for each in theirs
    ]
    planned = [
        f"{each.num_layers} × {words.count(each.block_size)} × {words.exact_bytes(each.page_bytes)}" for each in ours
    ]
    length = max(len(shown), len(planned))
    pairs = zip([*shown, *["–"] * (length - len(shown))], [*planned, *["–"] * (length - len(planned))], strict=True)
    return [
        {t("Group"): str(place), t("vLLM: layers × tokens in a block × page"): one, t("Plan"): other}
        for place, (one, other) in enumerate(pairs)
    ]


def _table(rows: list[dict[str, Any]], alt: str) -> None:
    if rows:
        st.markdown(f"**{alt}**")
        st.table(pd.DataFrame(rows), border="horizontal", hide_index=True, alt=alt)


def _wide_table(rows: list[dict[str, Any]], alt: str, name: str) -> None:
    """A table that scrolls within itself; columns that no row fills are left out."""
    frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
    st.markdown(f"**{alt}**")
    st.dataframe(frame, key=key(name), hide_index=True, alt=alt)
