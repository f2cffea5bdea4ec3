"""One moment of an engine's pool as the block map is sent it. Knows no Streamlit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from live.block_view import BlockMoment
from pages.parts import block_wire
from pages.parts.block_wire import U32, PoolColumns
from pages.parts.language import t
from pages.parts.said import said
from planner.block_codes import ColourBy
from planner.block_events import BlockEvent

_ROWS = 40
_TEXTS = 8
_NONE = np.zeros(0, np.uint32)
_GRAVE = {"preempted", "shared", "resumed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentView:
    """What the reader looks at: a moment, what happened since the last one, and the choice made on the map."""

    source: str  # tells one engine's pool from another's
    title: str
    moment: BlockMoment
    events: tuple[BlockEvent, ...] = ()
    colour_by: ColourBy = "request"
    selected: int | None = None  # a request's ordinal


def encode_moment(view: MomentView) -> bytes:
    """The message for the browser: the whole pool, for the map keeps nothing of the moments before."""
    moment = view.moment
    pool = PoolColumns(codes=moment.codes, indices=moment.indices, changed=moment.changed, contents=moment.contents)
    parts = block_wire.pool_runs(pool, view.colour_by) | {
        "offsets": np.zeros(1, np.uint32),
        "blocks": _NONE,
        "bytes": b"",
        "codes": _NONE,
        "indices": _NONE,
        "contents": _NONE,
    }
    body_header, body = block_wire.packed_body(parts)
    lit = _NONE if view.selected is None else moment.blocks_of(view.selected)
    light: tuple[U32, U32, U32, U32] = (moment.shared_pairs, lit, np.zeros(2, np.uint32), _NONE)
    return block_wire.message(_header(view) | body_header, light, body)


def _header(view: MomentView) -> dict[str, object]:
    moment = view.moment
    return {
        "run": view.source,
        "title": view.title,
        "still": True,
        "stretch": f"{view.source}/{moment.step}",
        "n": len(moment.codes),
        "groups": group_names(moment.num_groups),
        "sizes": [moment.block_size_tokens] * moment.num_groups,
        "base": moment.step,
        "step": moment.step,
        "count": 1,
        "total": moment.step + 1,
        "jump": moment.time_unix_ns // 1_000_000,
        "by": view.colour_by,
        "selected": view.selected,
        "link": "",
        "names": moment.names,
        "counters": {
            "used": [moment.num_used_blocks],
            "cached": [moment.num_cached_free_blocks],
            "running": [moment.num_running],
            "waiting": [moment.num_waiting],
        },
        "live": [],
        "rows": _rows(moment),
        "says": [(moment.step, _texts(moment, view.events))],
        "next_event": None,
    }


def group_names(num_groups: int) -> list[str]:
    """The KV groups by number: the tables do not say what kind of attention each serves."""
    return [t("KV group {number}", number=number) for number in range(num_groups)]


def _rows(moment: BlockMoment) -> list[tuple[int, int, int, int, int, str]]:
    return [
        (each.ordinal, 1, each.num_blocks, each.num_computed_tokens, each.num_known_tokens, each.name)
        for each in moment.requests[:_ROWS]
    ]


def _texts(moment: BlockMoment, events: Sequence[BlockEvent]) -> list[str]:
    """What happened, the gravest first; what the map cannot show; never nothing."""
    ranked = sorted(events, key=lambda event: event.kind not in _GRAVE)
    texts = [said(event.text) for event in ranked[:_TEXTS]]
    if len(events) > _TEXTS:
        texts.append(t("and {count} more events", count=f"{len(events) - _TEXTS:,}"))
    if moment.num_unplaced_blocks:
        count = f"{moment.num_unplaced_blocks:,}"
        texts.append(t("{count} blocks in use stand in no table that was sent; they are drawn as free", count=count))
    if moment.is_idle:
        texts.append(t("The engine is idle"))
    return texts or [t("No request came or went since the last look")]
