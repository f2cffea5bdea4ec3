"""The form of what fits, in the sidebar, and the practitioners' table of a 24 GB card with the exact values beside it."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from live.hub import HubError, fetch_model
from pages.parts import compare_request, compare_state, problems, words
from pages.parts.compare_request import LONGEST, MEASURES, PUBLISHED, CompareInput
from pages.parts.compare_state import key
from pages.parts.language import t
from pages.parts.said import said
from planner import field_table
from planner.facts import PlanError
from planner.gpu_catalog import find_gpu, gpu_names
from planner.model_catalog import search
from planner.request import PlanRequest

_MOST_HUB_MODELS = 20
_MOST_REQUESTS = 1_000_000
_MOST_TOKENS = 100_000_000
_SMALL_CARD_GB = 24


def form(asked: CompareInput) -> PlanError | None:
    """Draw the form; the first mistake in it, said at its field too."""
    problem = check(asked)
    st.subheader(t("What fits"), anchor=False)
    _measure(asked, problem)
    st.subheader(t("Rows"), anchor=False)
    _rows(asked, problem)
    st.subheader(t("Columns"), anchor=False)
    _columns(problem)
    return problem


def check(asked: CompareInput) -> PlanError | None:
    """The first choice that makes no table."""
    if asked.measure == LONGEST and not 1 <= asked.num_requests <= _MOST_REQUESTS:
        text = t(
            "Requests at once are {number}; write a whole number from 1 to {most}.",
            number=f"{asked.num_requests:,}",
            most=f"{_MOST_REQUESTS:,}",
        )
        return PlanError("num_requests", asked.num_requests, text)
    if asked.measure != LONGEST and not 1 <= asked.length_tokens <= _MOST_TOKENS:
        text = t(
            "The length is {number} tokens; write a whole number from 1 to {most}.",
            number=f"{asked.length_tokens:,}",
            most=f"{_MOST_TOKENS:,}",
        )
        return PlanError("length_tokens", asked.length_tokens, text)
    if not asked.has_all_models and not asked.models and not compare_state.hub_models():
        return PlanError("models", (), t("Choose at least one model, or all of the catalogue."))
    for field, text in (
        ("cards", t("Choose at least one card.")),
        ("counts", t("Choose at least one number of cards.")),
        ("kv_dtypes", t("Choose at least one format of keys and values.")),
        ("weights", t("Choose at least one format of the weights.")),
    ):
        if not getattr(asked, field):
            return PlanError(field, (), text)
    return None


def _measure(asked: CompareInput, problem: PlanError | None) -> None:
    st.segmented_control(
        t("Measure"),
        MEASURES,
        key=key("measure"),
        required=True,
        format_func={LONGEST: t("Longest length"), compare_request.REQUESTS: t("Requests at once")}.__getitem__,
        width="stretch",
        label_visibility="collapsed",
        persist_state="session",
    )
    if asked.measure == LONGEST:
        st.number_input(
            t("Requests at once"),
            key=key("num_requests"),
            step=1,
            help=t("The longest length is the one that so many requests can all have at once."),
            persist_state="session",
        )
        problems.say(problem, "num_requests")
        return
    st.number_input(
        t("Tokens of each request"),
        key=key("length_tokens"),
        step=1024,
        help=t("Prompt and answer together; the engine is started with this --max-model-len."),
        persist_state="session",
    )
    problems.say(problem, "length_tokens")


def _rows(asked: CompareInput, problem: PlanError | None) -> None:
    entries = sorted((entry.model_id for entry in search() if entry.is_plannable), key=str.lower)
    st.toggle(
        t("All {number} models of the catalogue", number=len(entries)),
        key=key("has_all_models"),
        persist_state="session",
    )
    if not asked.has_all_models:
        st.multiselect(
            t("Models"), entries, key=key("models"), placeholder=t("Type to search"), persist_state="session"
        )
        problems.say(problem, "models")
    st.multiselect(
        t("Weights"),
        compare_request.WEIGHTS,
        key=key("weights"),
        format_func=lambda name: t("As published") if name == PUBLISHED else f"--quantization {name}",
        help=t("Quantised by vLLM while loading: for checkpoints that are not quantised already."),
        persist_state="session",
    )
    problems.say(problem, "weights")
    st.multiselect(t("Keys and values"), compare_request.KV_DTYPES, key=key("kv_dtypes"), persist_state="session")
    problems.say(problem, "kv_dtypes")
    st.toggle(t("Only models that start somewhere"), key=key("only_starting"), persist_state="session")
    _hub()


def _hub() -> None:
    with st.expander(t("Models from the Hub"), icon=":material/cloud_download:", key=key("group_hub")):
        text = st.text_area(t("Ids, one a line"), key=key("hub_ids"), placeholder="org/name", persist_state="session")
        if st.button(t("Read them"), key=key("read_hub"), icon=":material/download:"):
            _read_hub([line.strip() for line in (text or "").splitlines() if line.strip()][:_MOST_HUB_MODELS])
        held = compare_state.hub_models()
        if held:
            st.caption(words.plain(t("Read: {models}", models=", ".join(held))))


def _read_hub(ids: list[str]) -> None:
    """Fetch config and headers of each id, with a bar over all of them; what cannot be read is said."""
    bar, found = st.progress(0.0, text=t("Reading from the Hub")), {}
    for number, model_id in enumerate(ids):
        bar.progress(number / len(ids), text=words.plain(model_id))
        try:
            found[model_id] = fetch_model(model_id).to_documents()
        except (HubError, PlanError) as error:
            st.error(words.plain(f"{model_id}: {said(getattr(error, 'text', str(error)))}"), icon=":material/error:")
    bar.empty()
    compare_state.hold_hub_models(found)


def _columns(problem: PlanError | None) -> None:
    st.multiselect(t("Cards"), gpu_names(), key=key("cards"), placeholder=t("Type to search"), persist_state="session")
    problems.say(problem, "cards")
    with st.container(horizontal=True, gap="small"):
        for name, title, cards in _card_sets():
            st.button(title, key=key(f"cards_{name}"), on_click=compare_state.keep, args=("cards", list(cards)))
    st.segmented_control(
        t("Cards that share a model (TP)"),
        compare_request.COUNTS,
        key=key("counts"),
        selection_mode="multi",
        width="stretch",
        persist_state="session",
    )
    problems.say(problem, "counts")


def _card_sets() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Sets of cards to choose at one press: those of the first visit, of 24 GB, and all."""
    small = tuple(name for name in gpu_names() if find_gpu(name).marketed_gb == _SMALL_CARD_GB)
    return (
        ("first", t("Well known"), compare_request.FIRST_CARDS),
        ("small", t("{size} GB", size=_SMALL_CARD_GB), small),
        ("all", t("All {number}", number=len(gpu_names())), gpu_names()),
    )


def field_table_rows(rows: tuple[field_table.FieldRow, ...]) -> pd.DataFrame:
    """The claims and our values as the page's table."""
    return pd.DataFrame(
        [
            {
                t("Model"): words.plain(row.claim.title),
                t(
                    "They say"
                ): f"{words.count(row.claim.length_tokens)}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}{row.claim.num_requests}",
                t("Requests of that length"): words.concurrency(row.max_concurrency),
                t("Longest for as many"): words.count(row.longest_tokens),
                t("KV of one token"): words.small_bytes(row.kv_bytes_per_token),
                t("Pool"): words.gib(row.pool_bytes),
                t("In a word"): said(row.finding),
            }
            for row in rows
        ]
    )


def practitioners(base: PlanRequest) -> None:
    """The practitioners' table of a 24 GB card, redone."""
    with st.expander(t("A practitioners' table of a 24 GB card, redone exactly"), key=key("field_table")):
        st.markdown(
            t(
                "An often repeated table for an RTX 4090 says how long and how many requests may be. Beside each row stands "
                "what vLLM {version} makes of it.",
                version=words.plain(base.vllm_version),
            )
        )
        frame = field_table_rows(field_table.rows(base.vllm_version))
        st.table(frame, border="horizontal", hide_index=True, alt=t("The practitioners' table with exact values"))
        st.caption(
            t("KV grows with length and with requests; the pool is what is left after weights, peak and graphs.")
        )
