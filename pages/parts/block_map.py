"""The block map component: a canvas with one byte a block, its step player and its list of requests.

Colours are the drawing's own (`block_paint.js`): 31 hues that stay apart for the colour-blind, and beside each hue a label
or a pattern. What it is sent is made by `step_player`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

_FOLDER = Path(__file__).parent

Callback = Callable[[], None]

_component = st.components.v2.component(
    "kvscope_block_map",
    html=(_FOLDER / "block_map.html").read_text(encoding="utf-8"),
    css=(_FOLDER / "block_map.css").read_text(encoding="utf-8"),
    js="".join(
        (_FOLDER / name).read_text(encoding="utf-8") for name in ("block_wire.js", "block_paint.js", "block_map.js")
    ),
)


def block_map(data: bytes, *, key: str, on_step: Callback, on_pick: Callback, on_choose: Callback) -> None:
    """Draw the map of an encoded view; the reader's step, picked block and chosen request arrive under `key`."""
    _component(key=key, data=data, on_step_change=on_step, on_pick_change=on_pick, on_choose_change=on_choose)
