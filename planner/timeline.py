"""A whole simulation, any step of which can be looked at in any order: frame, block map, tables, events, columns."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.block_codes import SHARED, STATE_NAMES, ColourBy, decode, to_bytes
from planner.block_events import BlockEvent
from planner.blocks import NULL_BLOCK
from planner.facts import PlanError
from planner.recorder import APPEND, CLEAR, RUNNING, WAITING, Columns, Recorder
from planner.sequence import Sequence
from planner.simulator_config import SimulatorConfig
from planner.step_frames import BlockTable, StepFrame
from planner.tiers import TierColumns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from planner.block_codes import Codes


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFacts:
    """One block at one step: what a reader sees when pointing at it."""

    block: int
    state: str
    group: int
    holders: tuple[str, ...]
    last_holder: str | None  # who wrote a block that is cached and free
    first_token: int | None  # of that request's tokens
    num_tokens: int  # of them computed
    content_number: int | None  # equal for equal contents
    age_steps: int  # since its state or holder last changed


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalBlock:
    """One row of a request's block table."""

    group: int
    index: int
    block: int  # 0: given up, outside the window
    first_token: int
    num_tokens: int  # computed so far
    shared_with: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockChanges:
    """The blocks that changed in a run of steps, in order; the i-th step's are `[offsets[i], offsets[i + 1])`."""

    offsets: NDArray[np.int64]
    blocks: Codes
    codes: Codes
    indices: Codes  # the block's logical index in its holder's table


class Timeline:
    """What a simulation did. Steps are numbered from 0; a step is seen right after it was scheduled."""

    def __init__(
        self,
        config: SimulatorConfig,
        sequences: Items[Sequence],
        recorder: Recorder,
        tiers: TierColumns | None = None,
    ) -> None:
        self.config = config
        self.request_ids = tuple(sequence.request_id for sequence in sequences)
        self.events: tuple[BlockEvent, ...] = tuple(recorder.events)
        self.columns: Columns = recorder.columns
        self.tiers: TierColumns | None = tiers
        self._sequences = tuple(sequences)
        self._recorder = recorder
        self._ordinals = {request_id: ordinal for ordinal, request_id in enumerate(self.request_ids)}
        self._event_steps = [event.step for event in self.events]
        self._last: tuple[int, Codes] | None = None

    @property
    def num_steps(self) -> int:
        """How many steps were simulated."""
        return len(self.columns.free_blocks)

    # -- whole steps --------------------------------------------------------------------------------------

    def frame(self, step: int) -> StepFrame:
        """The step in the form of vLLM's traces."""
        self._check(step)
        running, waiting = self.standing(step)
        names, live = self.request_ids, [*running, *waiting]
        progress = {ordinal: self._progress(ordinal, step) for ordinal in live}
        recorder = self._recorder
        return StepFrame(
            step=step,
            scheduled=tuple((names[ordinal], progress[ordinal][0]) for ordinal in running if progress[ordinal][0]),
            running=tuple(names[ordinal] for ordinal in running),
            waiting=tuple(names[ordinal] for ordinal in waiting),
            preempted=tuple(names[ordinal] for ordinal in recorder.preempted_ids.get(step, ())),
            computed=tuple((names[ordinal], progress[ordinal][1]) for ordinal in live),
            block_tables=tuple((names[ordinal], self._tables(ordinal, step)) for ordinal in running),
            free_blocks=self.columns.free_blocks[step],
            finished=tuple(names[ordinal] for ordinal in recorder.finished_ids.get(step, ())),
        )

    def standing(self, step: int) -> tuple[list[int], list[int]]:
        """The ordinals of the running and of the waiting requests, each in its order."""
        self._check(step)
        running: list[tuple[int, int]] = []
        waiting: list[tuple[tuple[int, int, str] | int, int]] = []
        for ordinal, log in enumerate(self._recorder.logs):
            entry = bisect_right(log.place_steps, step) - 1
            if entry < 0:
                continue
            place, order = log.places[entry]
            if place == RUNNING:
                running.append((order, ordinal))
            elif place == WAITING:
                waiting.append((order, ordinal))
        if self.config.scheduling_policy == "priority":
            waiting = [(self._rank(ordinal), ordinal) for _, ordinal in waiting]
        return [ordinal for _, ordinal in sorted(running)], [ordinal for _, ordinal in sorted(waiting)]

    def first_token_steps(self) -> tuple[int | None, ...]:
        """Per request, in the order of `request_ids`: the step that computed its whole prompt; None: none did."""
        return tuple(
            next(
                (
                    step + max(0, sequence.num_prompt - computed) * slope
                    for step, (_, computed, slope) in zip(log.progress_steps, log.progress, strict=True)
                    if computed >= sequence.num_prompt or slope
                ),
                None,
            )
            for sequence, log in zip(self._sequences, self._recorder.logs, strict=True)
        )

    # -- blocks -------------------------------------------------------------------------------------------

    def block_codes(self, step: int) -> Codes:
        """Every block's code at `step`; `planner.block_codes` reads them."""
        import numpy as np  # noqa: PLC0415 - the command line must start without it

        self._check(step)
        recorder = self._recorder
        last_step, codes = self._last or (-1, np.zeros(self.config.num_gpu_blocks, dtype=np.uint32))
        if last_step > step:
            last_step, codes = -1, np.zeros(self.config.num_gpu_blocks, dtype=np.uint32)
        start = recorder.change_offsets[last_step + 1] if last_step >= 0 else 0
        end = recorder.change_offsets[step + 1]
        if end > start:
            blocks = np.frombuffer(recorder.change_blocks, dtype=np.uint32)[start:end]
            codes = codes.copy()
            # a block that changed twice keeps its last code: assignment goes in order
            codes[blocks] = np.frombuffer(recorder.change_codes, dtype=np.uint32)[start:end]
        self._last = (step, codes)
        return codes

    def block_map(self, step: int, colour_by: ColourBy = "request") -> bytes:
        """One byte a block for drawing: state in the low three bits, colour above; see `planner.block_codes`."""
        return to_bytes(self.block_codes(step), colour_by)

    def block_changes(self, start: int, end: int) -> BlockChanges:
        """What changed in steps `[start, end)`: applied to the codes before `start`, they give those after each step."""
        import numpy as np  # noqa: PLC0415 - the command line must start without it

        recorder = self._recorder
        offsets = np.frombuffer(recorder.change_offsets, dtype=np.uint64)[start : end + 1].astype(np.int64)
        low, high = int(offsets[0]), int(offsets[-1])
        blocks, codes, indices = (
            np.frombuffer(column, dtype=np.uint32)[low:high]
            for column in (recorder.change_blocks, recorder.change_codes, recorder.change_indices)
        )
        return BlockChanges(offsets=offsets - low, blocks=blocks, codes=codes, indices=indices)

    def content_numbers(self, ordinal: int) -> tuple[int, ...]:
        """The content numbers of a request's full logical blocks, from its first one on."""
        return tuple(self._sequences[ordinal].hashes)

    def block(self, step: int, block: int) -> BlockFacts:
        """What is known of one block at one step."""
        if not 0 <= block < self.config.num_gpu_blocks:
            raise PlanError(
                "block", block, f"There is no block {block}; the pool ends at {self.config.num_gpu_blocks - 1}."
            )
        state, group, owner = decode(int(self.block_codes(step)[block]))
        index, changed = self._last_change(step, block)
        holders: tuple[str, ...] = ()
        first_token, num_tokens, content = None, 0, None
        size = self._block_tokens(group)
        if STATE_NAMES[state] in {"active", "shared"}:
            holders = self._holders(step, block)
        if owner is not None and STATE_NAMES[state] != "free":
            first_token = index * size
            computed = self._progress(owner, step)[1] if holders else first_token + size
            num_tokens = max(0, min(size, computed - first_token))
            hashes = self._sequences[owner].hashes
            content = hashes[index] if index < len(hashes) and num_tokens == size else None
        return BlockFacts(
            block=block,
            state=STATE_NAMES[state],
            group=group,
            holders=holders,
            last_holder=None if owner is None else self.request_ids[owner],
            first_token=first_token,
            num_tokens=num_tokens,
            content_number=content,
            age_steps=step - changed,
        )

    def blocks_of(self, step: int, request_id: str) -> tuple[int, ...]:
        """The physical blocks a request holds, over all groups."""
        tables = self._tables(self.ordinal(request_id), step)
        return tuple(block for table in tables for block in table if block != NULL_BLOCK)

    def table(self, step: int, request_id: str) -> tuple[LogicalBlock, ...]:
        """A request's logical blocks in order, group by group, with the physical block behind each."""
        ordinal = self.ordinal(request_id)
        tables, codes = self._tables(ordinal, step), self.block_codes(step)
        mine = {block for table in tables for block in table if codes[block] & 7 == SHARED}
        running, _ = self.standing(step)
        others = {
            other: {block for table in self._tables(other, step) for block in table if block in mine}
            for other in running
            if mine and other != ordinal
        }
        computed = self._progress(ordinal, step)[1]
        return tuple(
            LogicalBlock(
                group=group,
                index=index,
                block=block,
                first_token=index * self._block_tokens(group),
                num_tokens=max(0, min(self._block_tokens(group), computed - index * self._block_tokens(group))),
                shared_with=tuple(self.request_ids[other] for other, held in others.items() if block and block in held),
            )
            for group, table in enumerate(tables)
            for index, block in enumerate(table)
        )

    # -- events -------------------------------------------------------------------------------------------

    def events_at(self, step: int) -> tuple[BlockEvent, ...]:
        """What happened in one step."""
        return self.events[bisect_left(self._event_steps, step) : bisect_right(self._event_steps, step)]

    def events_between(self, start: int, end: int) -> tuple[BlockEvent, ...]:
        """What happened in steps `[start, end)`."""
        return self.events[bisect_left(self._event_steps, start) : bisect_left(self._event_steps, end)]

    def next_event_step(self, step: int) -> int | None:
        """The next step after `step` in which something happened; None: nothing more."""
        place = bisect_right(self._event_steps, step)
        return self._event_steps[place] if place < len(self._event_steps) else None

    def column(self, name: str) -> NDArray[np.float64]:
        """One of the columns as an array, a value a step."""
        import numpy as np  # noqa: PLC0415 - the command line must start without it

        return np.asarray(getattr(self.columns, name), dtype=np.float64)

    # -- inside -------------------------------------------------------------------------------------------

    def _check(self, step: int) -> None:
        if not 0 <= step < self.num_steps:
            raise PlanError("step", step, f"Step {step} was not simulated; the last one is {self.num_steps - 1}.")

    def ordinal(self, request_id: str) -> int:
        """The place of a request in `request_ids`."""
        ordinal = self._ordinals.get(request_id)
        if ordinal is None:
            raise PlanError("request_id", request_id, f"There is no request {request_id} in this simulation.")
        return ordinal

    def _block_tokens(self, group: int) -> int:
        return self.config.block_size_of(self.config.groups[group])

    def _rank(self, ordinal: int) -> tuple[int, int, str]:
        sequence = self._sequences[ordinal]
        return (sequence.priority, sequence.arrival, sequence.request_id)

    def _progress(self, ordinal: int, step: int) -> tuple[int, int]:
        """Tokens given in this step, and computed after it."""
        log = self._recorder.logs[ordinal]
        entry = bisect_right(log.progress_steps, step) - 1
        if entry < 0:
            return 0, 0
        num_tokens, computed, slope = log.progress[entry]
        passed = step - log.progress_steps[entry]
        return (num_tokens if slope or not passed else 0), computed + slope * passed

    def _tables(self, ordinal: int, step: int) -> BlockTable:
        tables: list[list[int]] = [[] for _ in self.config.groups]
        for changed, kind, group, start, blocks in self._recorder.logs[ordinal].table_changes:
            if changed > step:
                break
            if kind == APPEND:
                tables[group] += blocks
            elif kind == CLEAR:
                for table in tables:
                    table.clear()
            else:
                tables[group][start : blocks[0]] = [NULL_BLOCK] * (blocks[0] - start)
        return tuple(tuple(table) for table in tables)

    def _holders(self, step: int, block: int) -> tuple[str, ...]:
        running, _ = self.standing(step)
        return tuple(
            self.request_ids[ordinal]
            for ordinal in running
            if any(block in table for table in self._tables(ordinal, step))
        )

    def _last_change(self, step: int, block: int) -> tuple[int, int]:
        """The block's logical index and the step of its last change."""
        import numpy as np  # noqa: PLC0415 - the command line must start without it

        recorder = self._recorder
        end = recorder.change_offsets[step + 1]
        places = np.flatnonzero(np.frombuffer(recorder.change_blocks, dtype=np.uint32)[:end] == block)
        if not len(places):
            return 0, 0
        place = int(places[-1])
        return recorder.change_indices[place], bisect_right(recorder.change_offsets, place) - 1
