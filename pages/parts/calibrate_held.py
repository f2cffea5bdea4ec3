"""The calibrations that this host holds: what each teaches, where it comes from; export, import, removal. And the switch on the Plan page."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from pages.parts import calibrate_state, calibrate_words, calibration_choice, state, words
from pages.parts.calibrate_state import key
from pages.parts.language import t
from pages.parts.said import said
from planner.calibration import Calibration
from planner.calibration_file import LARGEST_FILE_BYTES, to_text
from planner.facts import PlanError
from planner.units import MIB


def messages() -> None:
    """What came of the last press."""
    made, problem = calibrate_state.take_message(), calibrate_state.take_problem()
    if made is not None:
        st.success(
            t(
                "Kept as {name}. Plans for this card and release now use it; a switch on the Plan page turns it off.",
                name=f"`{made}`",
            ),
            icon=":material/tune:",
        )
    if problem is not None:
        st.error(words.plain(said(problem)), icon=":material/error:")


def held() -> None:
    """The list of calibrations, and import and export."""
    st.subheader(t("Held on this host"), anchor=False)
    try:
        found = calibrate_state.store().all()
    except PlanError as error:
        st.error(words.plain(said(error.text)), icon=":material/error:")
        return
    if not found:
        st.markdown(t("None yet. Plans use the general constants, which come from public starts on other machines."))
    for each in found:
        _one(each)
    _files(found)


def _one(calibration: Calibration) -> None:
    with st.expander(
        words.plain(calibrate_words.calibration_title(calibration)),
        icon=":material/tune:",
        key=key(calibration.identity),
    ):
        st.caption(t("Its name in links: {name}", name=f"`{calibration.identity}`"))
        if not calibration.is_current:
            st.warning(
                t("Made beside older general constants, so it is not used: read its logs once more."),
                icon=":material/history:",
            )
        st.dataframe(
            pd.DataFrame(calibrate_words.constant_rows(calibration)),
            hide_index=True,
            key=key(f"constants_{calibration.identity}"),
        )
        st.dataframe(
            pd.DataFrame(calibrate_words.start_rows(calibration)),
            hide_index=True,
            key=key(f"starts_{calibration.identity}"),
        )
        with st.container(horizontal=True, gap="small"):
            for start in calibration.starts[:20] if len(calibration.starts) > 1 else ():
                st.button(
                    t("Forget {name}", name=words.plain(start.source)),
                    key=key(f"forget_{calibration.identity}_{start.source}_{start.flags}"),
                    on_click=partial(calibrate_state.remove_start, calibration.identity, start.source),
                )
            st.button(
                t("Remove"),
                key=key(f"remove_{calibration.identity}"),
                icon=":material/delete:",
                on_click=partial(calibrate_state.remove, calibration.identity),
            )


def _files(found: tuple[Calibration, ...]) -> None:
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        if found:
            st.download_button(
                t("Export all"),
                to_text(found),
                file_name="kvscope-calibrations.json",
                mime="application/json",
                key=key("export"),
                icon=":material/download:",
                on_click="ignore",
            )
    with st.expander(t("Import a file of calibrations"), icon=":material/upload:", key=key("import_place")):
        st.file_uploader(
            t("calibrations.json, of at most {size} MiB", size=LARGEST_FILE_BYTES // MIB),
            type=["json"],
            key=key("import"),
            max_upload_size=1,
        )
        st.button(t("Import"), key=key("import_press"), icon=":material/upload:", on_click=calibrate_state.take_upload)


def plan_switch() -> None:
    """On the Plan page: whether the constants of this host are used. Drawn only where some are held for the card, or named by the link."""
    try:
        request = state.current_request()
    except PlanError:
        return
    found = calibration_choice.held_for(request)
    if found is None and request.calibration is None:
        return
    st.toggle(
        t("Use this host's constants"),
        key=state.key("use_calibration"),
        on_change=state.drop_link_calibration,
        help=t(
            "Measured by starts on this host. The Calibrate page shows them. A link carries their name, not their values."
        ),
        persist_state="session",
    )
    name = request.calibration or (found.identity if found is not None else "")
    if found is not None and request.calibration is None:
        st.caption(t("Held for this card and release, and not used: {name}", name=f"`{name}`"))
    elif request.calibration is not None:
        st.caption(
            t("In use: {name}", name=f"`{name}`")
            if state.calibration_of(request)
            else t("Named by the link and not held: {name}", name=f"`{name}`")
        )
