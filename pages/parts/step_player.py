"""What the step player is sent: a stretch of steps as one frame, the changes after it, and words. Knows no Streamlit.

The browser plays a stretch by itself. The layout is a length, a JSON header and arrays; `block_map.js` reads it.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.block_codes import MAX_GROUPS, ColourBy, to_bytes
from planner.block_events import BlockEvent
from planner.simulator_config import KvGroup
from planner.step_frames import StepFrame
from planner.timeline import Timeline

_PACK_ABOVE_BYTES = 65_536
_MOST_CHANGES = 200_000  # in one stretch
_LONGEST_STRETCH, _SHORTEST_STRETCH = 128, 8
_MOST_ROWS = 4_000  # requests shown, over all steps of a stretch
_ROWS_OF_ONE_STEP = 40
_TEXTS_OF_ONE_STEP = 8
_MOST_LIT = 4_000  # blocks of the chosen request that are followed step by step
_GONE = 1 << 31  # marks a block that the chosen request gives up

U32 = NDArray[np.uint32]
Part = U32 | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished simulation with what a view needs beside it; `run_id` tells one run from another."""

    run_id: str
    title: str
    timeline: Timeline
    goals: tuple[int, ...]  # prompt and output tokens, per sequence

    @property
    def last_step(self) -> int:
        """The last step that can be shown."""
        return max(0, self.timeline.num_steps - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the reader looks at; `jump` counts the moves that did not come from the player itself."""

    step: int
    jump: int = 0
    colour_by: ColourBy = "request"
    selected: int | None = None  # a sequence's ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Steps `[base, end)`, sent together."""

    base: int
    end: int


def stretch_around(timeline: Timeline, step: int) -> Stretch:
    """The stretch to send for `step`: it starts before the step, so that a few steps back are at hand too."""
    changes = timeline.block_changes(0, timeline.num_steps).offsets
    mean = max(1, int(changes[-1]) // max(1, timeline.num_steps))
    length = max(_SHORTEST_STRETCH, min(_LONGEST_STRETCH, _MOST_CHANGES // mean))
    start = step // length * length
    return Stretch(base=max(0, start - length // 2), end=min(timeline.num_steps, start + length + length // 2))


def encode_view(run: Run, view: View) -> bytes:
    """The bytes of the stretch around `view.step`."""
    stretch = stretch_around(run.timeline, view.step)
    frame = run.timeline.frame(view.step)
    parts = _parts(run, view, stretch, frame)
    body = b"".join(_padded(part) for part in parts.values())
    is_packed = len(body) > _PACK_ABOVE_BYTES
    header = _header(run, view, stretch, parts["owner"], frame) | {
        "packed": is_packed,
        "parts": [_described(name, part) for name, part in parts.items()],
    }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return struct.pack("<I", len(text)) + text + (zlib.compress(body, 1) if is_packed else body)


def group_words(group: KvGroup) -> str:
    """A KV group in a few words."""
    if group.kind == "sliding_window":
        return f"window of {group.span_tokens:,} tokens"
    return f"chunks of {group.span_tokens:,} tokens" if group.kind == "chunked_local" else "full attention"


def _described(name: str, part: Part) -> tuple[str, str, int]:
    return (name, "u1" if isinstance(part, bytes) else "u4", len(part))


def _padded(part: Part) -> bytes:
    data = part if isinstance(part, bytes) else part.astype("<u4", copy=False).tobytes()
    return data + b"\0" * (-len(data) % 4)


def _parts(run: Run, view: View, stretch: Stretch, frame: StepFrame) -> dict[str, Part]:
    timeline, colour_by = run.timeline, view.colour_by
    base = timeline.block_codes(stretch.base)
    changes = timeline.block_changes(stretch.base + 1, stretch.end)
    indices, changed = _history(timeline, stretch.base)
    lit, lit_offsets, lit_changes = _lights(run, view, stretch)
    parts: dict[str, Part] = {
        "map": to_bytes(base, colour_by),
        "owner": _owner_column(base),
        "index": indices,
        "changed": changed,
        "offsets": np.concatenate((np.zeros(1, np.uint32), changes.offsets.astype(np.uint32))),
        "blocks": changes.blocks,
        "bytes": to_bytes(changes.codes, colour_by),
        "owners": _owner_column(changes.codes),
        "indices": changes.indices,
        "shared": _shared_pairs(run, frame),
        "lit": lit,
        "lit_offsets": lit_offsets,
        "lit_changes": lit_changes,
    }
    return parts | _facts_now(timeline, view.step)


def _owner_column(codes: U32) -> U32:
    """Who holds each block, or held it last: the ordinal plus one, 0 for nobody."""
    return (codes >> 8).astype(np.uint32)


def _facts_now(timeline: Timeline, step: int) -> dict[str, Part]:
    """What is only told of the step that was asked for: contents, and groups where there are several."""
    codes = timeline.block_codes(step)
    indices, _ = _history(timeline, step)
    has_groups = len(timeline.config.groups) > 1
    groups = (codes >> 3 & (MAX_GROUPS - 1)).astype(np.uint8).tobytes() if has_groups else b""
    return {"content": _contents(timeline, _owner_column(codes), indices), "groups": groups}


def _history(timeline: Timeline, step: int) -> tuple[U32, U32]:
    """Each block's logical index in its holder's table, and the step of its last change."""
    changes = timeline.block_changes(0, step + 1)
    indices = np.zeros(timeline.config.num_gpu_blocks, np.uint32)
    changed = np.zeros(timeline.config.num_gpu_blocks, np.uint32)
    indices[changes.blocks] = changes.indices
    changed[changes.blocks] = np.repeat(np.arange(step + 1, dtype=np.uint32), np.diff(changes.offsets))
    return indices, changed


def _contents(timeline: Timeline, owners: U32, indices: U32) -> U32:
    """Each block's content number; 0 where it has none."""
    found = np.zeros(len(owners), np.uint32)
    order = np.argsort(owners, kind="stable")
    names, starts = np.unique(owners[order], return_index=True)
    for owner, blocks in zip(names, np.split(order, starts[1:]), strict=True):
        numbers = np.array(timeline.content_numbers(int(owner) - 1), np.uint32) if owner else found[:0]
        known = blocks[indices[blocks] < len(numbers)]
        found[known] = numbers[indices[known]]
    return found


def _shared_pairs(run: Run, frame: StepFrame) -> U32:
    """(block, holder) of every block that several requests hold, flat."""
    held = [(name, block) for name, tables in frame.block_tables for table in tables for block in set(table) - {0}]
    times = Counter(block for _, block in held)
    pairs = [(block, run.timeline.ordinal(name)) for name, block in held if times[block] > 1]
    return np.array(pairs, np.uint32).reshape(-1)


def _lights(run: Run, view: View, stretch: Stretch) -> tuple[U32, U32, U32]:
    """The chosen request's blocks at the first step, and what it gains and gives up in each step after it."""
    steps = range(stretch.base + 1, stretch.end)
    none = np.zeros(0, np.uint32)
    if view.selected is None:
        return none, np.zeros(len(steps) + 2, np.uint32), none
    name = run.timeline.request_ids[view.selected]
    first = held = set(run.timeline.blocks_of(stretch.base, name))
    is_long = len(run.timeline.blocks_of(view.step, name)) > _MOST_LIT
    offsets, changes = [0, 0], list[int]()
    for step in steps:
        if not is_long or step == view.step:
            now = set(run.timeline.blocks_of(step, name))
            changes += sorted(now - held) + [block | _GONE for block in sorted(held - now)]
            held = now
        offsets.append(len(changes))
    return np.array(sorted(first), np.uint32), np.array(offsets, np.uint32), np.array(changes, np.uint32)


def _header(run: Run, view: View, stretch: Stretch, owners: Part, frame: StepFrame) -> dict[str, object]:
    timeline = run.timeline
    steps = slice(stretch.base, stretch.end)
    columns = timeline.columns
    usable = timeline.config.num_usable_blocks
    live = _live_rows(run, view.step, stretch, frame)
    known = {row[0] for rows in live for row in rows or ()}
    known |= _owners(owners) | _owners(_owner_column(timeline.block_changes(stretch.base, stretch.end).codes))
    known |= {timeline.ordinal(name) for name in frame.running}
    return {
        "run": run.run_id,
        "title": run.title,
        "file": "kvscope-blocks",
        "n": timeline.config.num_gpu_blocks,
        "block_size": timeline.config.block_size,
        "groups": [group_words(group) for group in timeline.config.groups],
        "by": view.colour_by,
        "selected": view.selected,
        "step": view.step,
        "jump": view.jump,
        "base": stretch.base,
        "count": stretch.end - stretch.base,
        "total": timeline.num_steps,
        "names": {ordinal: timeline.request_ids[ordinal] for ordinal in sorted(known)},
        "goals": {ordinal: run.goals[ordinal] for ordinal in sorted(known)},
        "counters": {
            "used": [usable - free for free in columns.free_blocks[steps]],
            "cached": columns.cached_free_blocks[steps].tolist(),
            "running": columns.num_running[steps].tolist(),
            "waiting": columns.num_waiting[steps].tolist(),
        },
        "live": live,
        "says": _says(timeline, stretch),
        "next_event": timeline.next_event_step(stretch.end - 1),
    }


def _owners(owners: Part) -> set[int]:
    return {int(owner) - 1 for owner in np.unique(np.asarray(owners)) if owner}


def _live_rows(run: Run, step: int, stretch: Stretch, frame: StepFrame) -> list[list[tuple[int, int, int, int]] | None]:
    """Who is in the engine, step by step; where that is much, only at `step`."""
    columns = run.timeline.columns
    steps = range(stretch.base, stretch.end)
    total = sum(columns.num_running[at] + columns.num_waiting[at] for at in steps)
    if total > _MOST_ROWS:
        return [_rows(run, frame) if at == step else None for at in steps]
    return [_rows(run, run.timeline.frame(at)) for at in steps]


def _rows(run: Run, frame: StepFrame) -> list[tuple[int, int, int, int]]:
    """(ordinal, 1 running or 2 waiting, blocks held, tokens computed) of the first requests."""
    computed, tables = dict(frame.computed), dict(frame.block_tables)
    rows = []
    for place, names in ((1, frame.running), (2, frame.waiting)):
        for name in names[:_ROWS_OF_ONE_STEP]:
            held = sum(1 for table in tables.get(name, ()) for block in table if block)
            rows.append((run.timeline.ordinal(name), place, held, computed.get(name, 0)))
    return rows[:_ROWS_OF_ONE_STEP]


def _says(timeline: Timeline, stretch: Stretch) -> list[tuple[int, list[str]]]:
    by_step: dict[int, list[BlockEvent]] = {}
    for event in timeline.events_between(stretch.base, stretch.end):
        by_step.setdefault(event.step, []).append(event)
    return [(step, _texts(events)) for step, events in by_step.items()]


def _texts(events: Sequence[BlockEvent]) -> list[str]:
    """The sentences of one step, the gravest first."""
    ranked = sorted(events, key=lambda event: event.kind not in {"preempted", "shared", "resumed"})
    texts = [event.text for event in ranked[:_TEXTS_OF_ONE_STEP]]
    more = len(events) - _TEXTS_OF_ONE_STEP
    return [*texts, f"and {more:,} more events"] if more > 0 else texts
