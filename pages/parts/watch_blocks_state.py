"""Session state of the Watch page's block map: whose blocks are followed, and what the reader chose on the map."""

from __future__ import annotations

from typing import cast

import streamlit as st

from live.block_sight import BlockWatcher
from live.block_view import BlockMoment
from live.recording import Recording
from live.samples import EngineSample
from pages.parts.watch_state import keep, key, value
from planner.block_codes import ACTIVE, SHARED, ColourBy, decode

MAP = key("block_map")
COLOURS: tuple[ColourBy, ...] = ("request", "state", "group")


def watcher(recording: Recording, sample: EngineSample) -> BlockWatcher:
    """What follows the blocks of this engine in this session; another engine or recording begins anew."""
    name = (str(recording.path), sample.identity)
    held: tuple[object, BlockWatcher] | None = value("block_watcher")
    if held is None or held[0] != name:
        held = (name, BlockWatcher(recording, sample))
        keep("block_watcher", held)
        keep("block_request", None)
    return held[1]


def colour_by() -> ColourBy:
    """What tells blocks apart on the map."""
    chosen: ColourBy | None = value("colour_by")
    return chosen or "request"


def selected() -> int | None:
    """The ordinal of the request that stands out."""
    chosen: int | None = value("block_request")
    return chosen


def picked_block(moment: BlockMoment) -> None:
    """Callback: a block was picked; the request that holds it is chosen."""
    told = _told("pick")
    block = told.get("block") if isinstance(told, dict) else None
    if not isinstance(block, int | float) or not 0 <= block < len(moment.codes):
        return
    state_code, _, owner = decode(int(moment.codes[int(block)]))
    keep("block_request", owner if state_code in {ACTIVE, SHARED} else None)


def chosen_request(moment: BlockMoment) -> None:
    """Callback: a request was chosen in the list beside the map, or let go."""
    told = _told("choose")
    ordinal = told.get("request") if isinstance(told, dict) else None
    is_known = isinstance(ordinal, int | float) and int(ordinal) in {each.ordinal for each in moment.requests}
    keep("block_request", int(cast("float", ordinal)) if is_known else None)


def _told(name: str) -> object:
    return (st.session_state.get(MAP) or {}).get(name)
