"""What is to be compared: log files or pasted lines, or the engine that the Watch page shows; and what a log does not say."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from pages.parts import calibrate_request, calibrate_state, state, watch_words, words
from pages.parts.calibrate_state import ENGINE, LOG, Dropped, key
from pages.parts.language import mark, t
from pages.parts.said import said
from planner.facts import PlanError
from planner.gpu_catalog import gpu_names
from planner.model_catalog import catalogue_ids
from planner.start_request import card_of_log, model_of, total_words
from planner.startup_log import LARGEST_LOG_BYTES

_LARGEST_LOG_MB = LARGEST_LOG_BYTES // 1_000_000
_MOST_TOLD = 5
_SOURCE_WORDS = {LOG: mark("A start-up log"), ENGINE: mark("The watched engine")}


def choose_source() -> str:
    """Whether a log or the watched engine is compared; the choice is drawn only where an engine is watched."""
    if calibrate_state.engine_choice() is None:
        return LOG
    chosen: str = st.segmented_control(
        t("Compare"),
        list(_SOURCE_WORDS),
        key=key("source"),
        default=LOG,
        required=True,
        format_func=lambda each: said(_SOURCE_WORDS[each]),
        label_visibility="collapsed",
    )
    return chosen


def logs() -> tuple[Dropped, ...]:
    """The starts of all files and lines that were given; a file that is no text is said to be none."""
    left, right = st.columns(2)
    files = left.file_uploader(
        t("Logs of vLLM starts"),
        accept_multiple_files=True,
        key=key("files"),
        max_upload_size=_LARGEST_LOG_MB,
        help=t(
            "Read in this session only. Nothing of a log is stored; what is kept when you press are its figures and file name."
        ),
    )
    typed = right.text_area(
        t("Or its lines"),
        key=key("lines"),
        height=112,
        placeholder="Model loading took 15.27 GiB memory and 3.2 seconds\nAvailable KV cache memory: 57.5 GiB",
    )
    found: list[Dropped] = []
    for file in files:
        try:
            found += calibrate_state.read(file.name, file.getvalue(), file.file_id)
        except PlanError as error:
            name = words.plain(file.name)
            st.error(t("{name}: {why}", name=name, why=words.plain(said(error.text))), icon=":material/error:")
    if typed.strip():
        found += calibrate_state.read(calibrate_state.PASTED, typed, f"pasted {hash(typed)}")
    return tuple(found)


def choose_start(found: tuple[Dropped, ...]) -> Dropped:
    """The start that is shown, of several."""
    if len(found) == 1:
        return found[0]
    chosen = st.selectbox(
        t("Start, one of {count}", count=len(found)),
        range(len(found)),
        key=key("start"),
        format_func=lambda place: found[place].name,
    )
    return found[chosen or 0]


def ask_for_the_rest(dropped: Dropped) -> tuple[str | None, str | None]:
    """(model, card) of the log: as it says them, to be corrected where it does not or where we read it wrongly."""
    left, right = st.columns(2)
    models, cards = [calibrate_request.FROM_PLAN, *catalogue_ids()], list(gpu_names())
    read_model = model_of(dropped.log)
    model_id = left.selectbox(
        t("Model"),
        models,
        index=None if read_model is None else models.index(read_model),
        key=key(f"model_{dropped.name}"),
        format_func=lambda each: each or t("The Plan page's model"),
        placeholder=t("Not read from the log: choose it"),
        help=t(
            "A model that the catalogue lacks: load its config.json on the Plan page, then choose that page's model here."
        ),
    )
    read_card = card_of_log(dropped.log, state.value("gpu"))
    gpu = right.selectbox(
        t("Card"),
        cards,
        index=None if read_card is None else cards.index(read_card),
        key=key(f"card_{dropped.name}"),
        placeholder=t("Not read from the log: choose it"),
        help=t("Where a log prints a total and no name, the Plan page's card is taken if it has that total."),
    )
    _told(dropped)
    return model_id, gpu


def _told(dropped: Dropped) -> None:
    """What the log itself says of model and card."""
    name, total = dropped.log.model_name, total_words(dropped.log)
    told = []
    if name is not None:
        told.append(t("The log names the model {name}.", name=watch_words.inline_code(name)))
    if total is not None:
        told.append(t("It prints {total} as the card's total.", total=total))
    if told:
        st.caption(" ".join(told))


def nothing_read(names: Sequence[str]) -> None:
    """Say which files hold no start of vLLM."""
    for name in names[:_MOST_TOLD]:
        st.info(
            t(
                "{name} holds no line in which vLLM says what a start took. Give its output from the start on, at log level INFO.",
                name=words.plain(name),
            ),
            icon=":material/info:",
        )


def newcomer() -> None:
    """What the page is for, before anything is given."""
    st.header(t("Set a start beside its plan"), anchor=False)
    st.markdown(
        t(
            "Drop in the log of a vLLM start, of any release, successful or not. Each term that it prints is set beside the plan of the same "
            "model, card and flags. One press then keeps what it taught, and plans for this card and release carry your own constants."
        )
    )
