"""What the step player is sent: a stretch of steps as one frame, the changes after it, and words. Knows no Streamlit.

The browser plays a stretch by itself. The layout of what is sent is `block_wire`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pages.parts import block_wire
from pages.parts.block_wire import U32, Part, PoolColumns
from pages.parts.language import language, t
from pages.parts.said import said
from planner.block_codes import SHARED, ColourBy, to_bytes
from planner.block_events import BlockEvent
from planner.simulator_config import KvGroup, SimulatorConfig
from planner.step_frames import StepFrame
from planner.timeline import Timeline

_KEPT_STRETCHES = 4
_MOST_CHANGES = 200_000  # in one stretch
_LONGEST_STRETCH, _SHORTEST_STRETCH = 128, 8
_MOST_ROWS = 4_000  # requests shown, over all steps of a stretch
_ROWS_OF_ONE_STEP = 40
_TEXTS_OF_ONE_STEP = 8
_MOST_LIT = 60_000  # blocks of the chosen request times steps, to follow it step by step
_GONE = 1 << 31  # marks a block that the chosen request gives up

Row = tuple[int, int, int, int, int, str]  # ordinal, 1 runs or 2 waits, blocks held, tokens computed, goal, name


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
    held_stretch: str = ""  # the stretch that the browser already has
    link: str = ""  # what the address says of the simulation, but for the step


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Steps `[base, end)`, sent together."""

    base: int
    end: int


class StepPlayer:
    """What is sent of one run. It keeps the last stretches and the last step: clicks come many to a step."""

    def __init__(self, run: Run) -> None:
        self.run = run
        changes = run.timeline.block_changes(0, run.timeline.num_steps).offsets
        mean = max(1, int(changes[-1]) // max(1, run.timeline.num_steps))
        self._length = max(_SHORTEST_STRETCH, min(_LONGEST_STRETCH, _MOST_CHANGES // mean))
        self._bodies: dict[str, tuple[dict[str, object], bytes]] = {}
        self._moment: tuple[int, StepFrame, U32] | None = None

    def encode(self, view: View) -> bytes:
        """The bytes of the stretch around `view.step`; without the stretch itself where the browser has it."""
        stretch = self.stretch_around(view.step)
        name = f"{self.run.run_id}/{stretch.base}/{view.colour_by}/{language()}"
        body_header, body = self._body(name, stretch, view.colour_by)
        step, frame, shared = self.moment(view.step)
        lit = _lights(self.run, view, stretch)
        header = {**body_header, **_moment_header(self.run, view, frame), "stretch": name, "step": step}
        return block_wire.message(header, (shared, *lit), None if name == view.held_stretch else body)

    def stretch_around(self, step: int) -> Stretch:
        """The stretch to send for `step`: it starts before the step, so that a few steps back are at hand too."""
        length = self._length
        start = step // length * length
        return Stretch(base=max(0, start - length // 2), end=min(self.run.timeline.num_steps, start + length * 3 // 2))

    def moment(self, step: int) -> tuple[int, StepFrame, U32]:
        """The step with its frame and the (block, holder) pairs of its shared blocks."""
        if self._moment is None or self._moment[0] != step:
            frame = self.run.timeline.frame(step)
            self._moment = (step, frame, _shared_pairs(self.run, frame))
        return self._moment

    def _body(self, name: str, stretch: Stretch, colour_by: ColourBy) -> tuple[dict[str, object], bytes]:
        if name not in self._bodies:
            while len(self._bodies) >= _KEPT_STRETCHES:
                del self._bodies[next(iter(self._bodies))]
            self._bodies[name] = _encode_stretch(self.run, stretch, colour_by)
        return self._bodies[name]


def group_names(config: SimulatorConfig) -> tuple[str, ...]:
    """The KV groups of an engine in a few words, numbered where there are several."""
    told = [group_words(group) for group in config.groups]
    return tuple(told) if len(told) == 1 else tuple(f"{number} · {each}" for number, each in enumerate(told, 1))


def group_words(group: KvGroup) -> str:
    """A KV group in a few words."""
    if group.kind == "state":
        return t("recurrent state")
    if group.kind == "sliding_window":
        return t("window of {span_tokens} tokens", span_tokens=f"{group.span_tokens:,}")
    return (
        t("chunks of {span_tokens} tokens", span_tokens=f"{group.span_tokens:,}")
        if group.kind == "chunked_local"
        else t("full attention")
    )


def _encode_stretch(run: Run, stretch: Stretch, colour_by: ColourBy) -> tuple[dict[str, object], bytes]:
    """The header and the body of a stretch: equal neighbours of its first frame as runs, then each step's changes."""
    timeline = run.timeline
    codes = timeline.block_codes(stretch.base)
    changes = timeline.block_changes(stretch.base + 1, stretch.end)
    parts: dict[str, Part] = _frame_runs(timeline, stretch.base, codes, colour_by) | {
        "offsets": np.concatenate((np.zeros(1, np.uint32), changes.offsets.astype(np.uint32))),
        "blocks": changes.blocks,
        "bytes": to_bytes(changes.codes, colour_by),
        "codes": changes.codes,
        "indices": changes.indices,
        "contents": _contents(timeline, _owner_column(changes.codes), changes.indices),
    }
    header, body = block_wire.packed_body(parts)
    known = _owners(codes) | _owners(changes.codes)
    return _stretch_header(run, stretch, known) | header, body


def _frame_runs(timeline: Timeline, step: int, codes: U32, colour_by: ColourBy) -> dict[str, Part]:
    """One step's blocks as runs in which index and content number only count on."""
    indices, changed = _history(timeline, step)
    contents = _contents(timeline, _owner_column(codes), indices)
    return block_wire.pool_runs(
        PoolColumns(codes=codes, indices=indices, changed=changed, contents=contents), colour_by
    )


def _owner_column(codes: U32) -> U32:
    """Who holds each block, or held it last: the ordinal plus one, 0 for nobody."""
    return (codes >> 8).astype(np.uint32)


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
    for owner, blocks in zip(names, np.split(order, starts[1:]) if len(names) else (), strict=True):
        numbers = np.array(timeline.content_numbers(int(owner) - 1), np.uint32) if owner else found[:0]
        known = blocks[indices[blocks] < len(numbers)]
        found[known] = numbers[indices[known]]
    return found


def _shared_pairs(run: Run, frame: StepFrame) -> U32:
    """(block, holder) of every block that several requests hold, flat. What is shared stands at a table's start."""
    shared = ((run.timeline.block_codes(frame.step) & 7) == SHARED).tobytes()
    pairs: list[int] = []
    if b"\1" not in shared:
        return np.zeros(0, np.uint32)
    for name, tables in frame.block_tables:
        ordinal = run.timeline.ordinal(name)
        for table in tables:
            for block in table:
                if block and not shared[block]:
                    break
                pairs += (block, ordinal) if block else ()
    return np.array(pairs, np.uint32)


def _lights(run: Run, view: View, stretch: Stretch) -> tuple[U32, U32, U32]:
    """The chosen request's blocks at the first step, and what it gains and gives up in each step after it."""
    steps = range(stretch.base + 1, stretch.end)
    none = np.zeros(0, np.uint32)
    if view.selected is None:
        return none, np.zeros(len(steps) + 2, np.uint32), none
    name = run.timeline.request_ids[view.selected]
    first = held = set(run.timeline.blocks_of(stretch.base, name))
    is_long = len(run.timeline.blocks_of(view.step, name)) * len(steps) > _MOST_LIT
    offsets, changes = [0, 0], list[int]()
    for step in steps:
        if not is_long or step == view.step:
            now = set(run.timeline.blocks_of(step, name))
            changes += sorted(now - held) + [block | _GONE for block in sorted(held - now)]
            held = now
        offsets.append(len(changes))
    return np.array(sorted(first), np.uint32), np.array(offsets, np.uint32), np.array(changes, np.uint32)


def _stretch_header(run: Run, stretch: Stretch, known: set[int]) -> dict[str, object]:
    timeline = run.timeline
    steps = slice(stretch.base, stretch.end)
    columns = timeline.columns
    usable = timeline.config.num_usable_blocks
    return {
        "run": run.run_id,
        "title": said(run.title),
        "n": timeline.config.num_gpu_blocks,
        "groups": group_names(timeline.config),
        "sizes": [timeline.config.block_size_of(group) for group in timeline.config.groups],
        "base": stretch.base,
        "count": stretch.end - stretch.base,
        "total": timeline.num_steps,
        "names": {ordinal: timeline.request_ids[ordinal] for ordinal in sorted(known)},
        "counters": {
            "used": [usable - free for free in columns.free_blocks[steps]],
            "cached": columns.cached_free_blocks[steps].tolist(),
            "running": columns.num_running[steps].tolist(),
            "waiting": columns.num_waiting[steps].tolist(),
        },
        "live": _live_rows(run, stretch),
        "says": _says(timeline, stretch),
        "next_event": timeline.next_event_step(stretch.end - 1),
    }


def _moment_header(run: Run, view: View, frame: StepFrame) -> dict[str, object]:
    rows = _rows(run, frame)
    return {"by": view.colour_by, "selected": view.selected, "jump": view.jump, "link": view.link, "rows": rows}


def _owners(codes: U32) -> set[int]:
    return {int(owner) - 1 for owner in np.unique(_owner_column(codes)) if owner}


def _live_rows(run: Run, stretch: Stretch) -> list[list[Row]]:
    """Who is in the engine, step by step; nothing where that is much: then only the step asked for is told."""
    columns = run.timeline.columns
    steps = range(stretch.base, stretch.end)
    total = sum(columns.num_running[at] + columns.num_waiting[at] for at in steps)
    return [] if total > _MOST_ROWS else [_rows(run, run.timeline.frame(at)) for at in steps]


def _rows(run: Run, frame: StepFrame) -> list[Row]:
    """The first requests in the engine: running ones in their order, then waiting ones."""
    computed, tables = dict(frame.computed), dict(frame.block_tables)
    rows: list[Row] = []
    for place, names in ((1, frame.running), (2, frame.waiting)):
        for name in names[: _ROWS_OF_ONE_STEP - len(rows)]:
            held = sum(len(table) - table.count(0) for table in tables.get(name, ()))
            ordinal = run.timeline.ordinal(name)
            rows.append((ordinal, place, held, computed.get(name, 0), run.goals[ordinal], name))
    return rows


def _says(timeline: Timeline, stretch: Stretch) -> list[tuple[int, list[str]]]:
    by_step: dict[int, list[BlockEvent]] = {}
    for event in timeline.events_between(stretch.base, stretch.end):
        by_step.setdefault(event.step, []).append(event)
    return [(step, _texts(events)) for step, events in by_step.items()]


def _texts(events: Sequence[BlockEvent]) -> list[str]:
    """The sentences of one step, the gravest first."""
    ranked = sorted(events, key=lambda event: event.kind not in {"preempted", "shared", "resumed"})
    texts = [said(event.text) for event in ranked[:_TEXTS_OF_ONE_STEP]]
    more = len(events) - _TEXTS_OF_ONE_STEP
    return [*texts, t("and {count} more events", count=f"{more:,}")] if more > 0 else texts
