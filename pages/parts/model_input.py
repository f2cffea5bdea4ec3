"""The model's part of the form: the offline catalogue, the Hugging Face Hub, an uploaded or local file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from live.hub import FetchOptions, HubError, fetch_model
from pages.parts import state, words
from pages.parts.language import mark, t
from pages.parts.said import said
from pages.parts.state import CATALOGUE, FILES, HUB, SOURCES, key
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.model_catalog import CatalogueEntry, config_documents, folder_documents, search

LARGEST_UPLOAD_MIB = 32

_HUB_TITLES = {
    "not_found": mark("No such model"),
    "revision_not_found": mark("No such revision"),
    "gated": mark("Access must be asked for"),
    "unauthorized": mark("The token was refused"),
    "no_network": mark("The Hub is out of reach"),
    "slow": mark("The Hub is too slow"),
    "server_error": mark("The Hub answered with an error"),
    "no_safetensors": mark("No safetensors files"),
    "no_config": mark("No config.json"),
    "broken_config": mark("config.json is broken"),
    "broken_header": mark("The weight headers do not agree"),
    "too_large": mark("A file is too large"),
    "bad_id": mark("Not a model's id"),
}


def model_input() -> None:
    """Draw the choice of the model and what its source needs."""
    st.segmented_control(
        t("Model from"),
        SOURCES,
        key=key("source"),
        format_func=said,
        required=True,
        width="stretch",
        label_visibility="collapsed",
        persist_state="session",
    )
    draw = {CATALOGUE: _catalogue, HUB: _hub, FILES: _files}
    draw[state.value("source")]()


@st.cache_data(max_entries=1, show_spinner=False)
def _catalogue_entries() -> dict[str, CatalogueEntry]:
    entries = sorted(search(), key=lambda entry: entry.model_id.lower())
    return {entry.model_id: entry for entry in entries if entry.is_plannable}


def _catalogue() -> None:
    entries = _catalogue_entries()
    chosen = st.selectbox(
        t("Model, one of {entries} known offline", entries=len(entries)),
        list(entries),
        key=key("model_id"),
        index=None,
        placeholder=t("Type to search"),
        persist_state="session",
    )
    if chosen is not None:
        st.caption(_entry_words(entries[chosen]))


def _entry_words(entry: CatalogueEntry) -> str:
    size = (
        t("{num_parameters} B parameters", num_parameters=words.three_digits(entry.num_parameters / 10**9))
        if entry.num_parameters
        else ""
    )
    facts = [part for part in (entry.architecture, size, entry.quantization) if part]
    return f"{words.plain(' · '.join(facts))}  \n{t('Source: {source}', source=words.plain(entry.source))}"


def _hub() -> None:
    st.text_input(t("Model id"), key=key("hub_id"), placeholder="org/name", persist_state="session")
    st.text_input(t("Revision"), key=key("hub_revision"), placeholder="main", persist_state="session")
    st.text_input(
        t("Token"),
        key=key("hub_token"),
        type="password",
        placeholder=t("HF_TOKEN of this machine, if set"),
        help=t("Only for gated or private models. Kept for this browser session, sent to the Hub alone."),
        autocomplete="off",
        persist_state="session",
    )
    st.toggle(
        t("Config alone is enough"),
        key=key("hub_config_only"),
        help=t("For repositories without safetensors: weights are then counted from the config."),
        persist_state="session",
    )
    if st.button(t("Load"), key=key("hub_load"), icon=":material/download:", type="primary", width="stretch"):
        _load_from_hub()
    _hub_state()
    st.caption(t("Nothing is sent before you press Load. It reads the config and weight headers, never weights."))


def _load_from_hub() -> None:
    """Fetch, with progress; what goes wrong stays on show until another model is asked for."""
    state.drop_model(HUB)
    asked = state.hub_choice()
    bar = st.progress(0.0, t("Asking the Hub"))

    def progress(done: int, total: int, what: str) -> None:
        bar.progress(min(1.0, done / max(1, total)), words.plain(said(what).capitalize()))

    options = FetchOptions(
        token=state.value("hub_token") or None,
        needs_headers=not state.value("hub_config_only"),
        progress=progress,
    )
    try:
        state.hold_model(HUB, fetch_model(asked[0], asked[1] or None, options).to_documents())
        state.keep("hub_problem", None)
    except HubError as error:
        state.keep(
            "hub_problem", f"**{said(_HUB_TITLES.get(error.kind, error.kind))}.** {words.plain(said(error.text))}"
        )
    state.keep("hub_asked", asked)
    st.rerun()  # this run's plan was made before the model came


def _hub_state() -> None:
    if state.value("hub_asked") != state.hub_choice():
        return
    problem, held = state.value("hub_problem"), state.held_model(HUB)
    if problem:
        st.error(problem, icon=":material/cloud_off:")
    elif held is not None:
        st.caption(f":material/check: {words.plain(said(held.documents.source))}")


def _files() -> None:
    st.file_uploader(
        t("A config.json or .gguf"),
        type=["json", "gguf"],
        key=key("upload"),
        max_upload_size=LARGEST_UPLOAD_MIB,
        on_change=_take_upload,
        help=t(
            "Of a GGUF file its first {size} MB are enough: {command}",
            size=LARGEST_UPLOAD_MIB,
            command=f"head -c {LARGEST_UPLOAD_MIB}M model.gguf > start.gguf",
        ),
    )
    st.text_input(
        t("Or a path on this machine"),
        key=key("path"),
        placeholder=t("folder, config.json or .gguf"),
        on_change=_take_path,
        persist_state="session",
    )
    problem, held = state.value("file_problem"), state.held_model(FILES)
    if problem:
        st.error(words.plain(said(problem)), icon=":material/error:")
    elif held is not None:
        st.caption(
            t(
                "{model_id} from {source}",
                model_id=words.plain(held.documents.model_id),
                source=words.plain(said(held.documents.source)),
            )
        )


def _take_upload() -> None:
    upload = state.value("upload")
    if upload is not None:
        _take(lambda: _uploaded_documents(upload.name, upload.getvalue()))


def _take_path() -> None:
    path = (state.value("path") or "").strip()
    if path:
        _take(lambda: config_documents(path) if path.endswith(".json") else folder_documents(path))


def _take(read: Callable[[], ModelDocuments]) -> None:
    """Hold what `read` returns, or say why it cannot be read; either way the model before it is gone."""
    state.drop_model(FILES)
    state.keep("file_problem", None)
    try:
        state.hold_model(FILES, read())
    except PlanError as error:
        state.keep("file_problem", error.text)


def _uploaded_documents(name: str, content: bytes) -> ModelDocuments:
    """The documents of an uploaded file; a GGUF header is read from a file that is gone afterwards."""
    if name.lower().endswith(".gguf"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{Path(name).stem}.gguf"
            path.write_bytes(content)
            return folder_documents(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PlanError("upload", name, t("{name} is not text; upload a model's config.json.", name=name)) from None
    if not text.lstrip().startswith("{"):
        raise PlanError(
            "upload", name, t("{name} does not start with an opening brace; upload a model's config.json.", name=name)
        )
    return config_documents(text, Path(name).stem)
