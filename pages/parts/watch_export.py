"""A recording as a file: CSV, Parquet, or the whole recording; each is made when it is asked for."""

from __future__ import annotations

from functools import partial

import streamlit as st

from live.recording import Recording
from live.recording_tables import copy_bytes, table_bytes
from pages.parts.language import t
from pages.parts.watch_state import key


def downloads(recording: Recording) -> None:
    """The buttons, side by side."""
    kinds = (
        ("csv", t("Download CSV"), "text/csv", partial(table_bytes, recording, "csv")),
        (
            "parquet",
            t("Download Parquet"),
            "application/vnd.apache.parquet",
            partial(table_bytes, recording, "parquet"),
        ),
        ("kvscope", t("Download recording"), "application/vnd.sqlite3", partial(copy_bytes, recording)),
    )
    for ending, label, mime, make in kinds:
        st.download_button(
            label,
            data=make,
            file_name=f"{recording.path.stem}.{ending}",
            mime=mime,
            key=key(ending),
            icon=":material/download:",
            on_click="ignore",
        )
