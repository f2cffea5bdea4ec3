"""Writes down what a simulation does, step by step, in a form from which any step can be rebuilt at once."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from planner.block_codes import ACTIVE, CACHED_FREE, FREE, NULL, SHARED, encode
from planner.block_events import BlockEvent, EventKind, ranges
from planner.blocks import NULL_BLOCK
from planner.prefix_lookup import PrefixHit
from planner.schedule import Scheduler
from planner.sequence import Sequence
from planner.step_frames import in_arrival_order

# kinds of entry in a sequence's history of its tables
APPEND, GIVE_UP, CLEAR = range(3)
TableChange = tuple[int, int, int, int, tuple[int, ...]]  # step, kind, group, (start, or 0), blocks or (end,)
ABSENT, WAITING, RUNNING = range(3)


@dataclass(slots=True)
class SequenceLog:
    """One sequence's history."""

    table_changes: list[TableChange] = field(default_factory=list)
    # progress entries: from this step on, so many tokens a step, so many computed after it, growing by 0 or 1 a step
    progress_steps: array[int] = field(default_factory=lambda: array("q"))
    progress: list[tuple[int, int, int]] = field(default_factory=list)
    place_steps: array[int] = field(default_factory=lambda: array("q"))
    places: list[tuple[int, int]] = field(default_factory=list)  # where it stands, and its order there


@dataclass(slots=True)
class Columns:
    """One number a step, for charts; all taken right after the step was scheduled."""

    free_blocks: array[int] = field(default_factory=lambda: array("q"))
    cached_free_blocks: array[int] = field(default_factory=lambda: array("q"))
    held_tokens: array[int] = field(default_factory=lambda: array("q"))  # computed, over all running requests
    num_running: array[int] = field(default_factory=lambda: array("q"))
    num_waiting: array[int] = field(default_factory=lambda: array("q"))
    scheduled_tokens: array[int] = field(default_factory=lambda: array("q"))
    preemptions: array[int] = field(default_factory=lambda: array("q"))  # so far
    hit_tokens: array[int] = field(default_factory=lambda: array("q"))  # so far
    queried_tokens: array[int] = field(default_factory=lambda: array("q"))  # so far
    evicted_blocks: array[int] = field(default_factory=lambda: array("q"))  # so far
    start_seconds: array[float] = field(default_factory=lambda: array("d"))


class Recorder:
    """A journal of one scheduler; `begin` attaches it, `end_schedule` closes each step's frame."""

    def __init__(self) -> None:
        self.logs: list[SequenceLog] = []
        self.columns = Columns()
        self.events: list[BlockEvent] = []
        self.preempted_ids: dict[int, tuple[int, ...]] = {}
        self.finished_ids: dict[int, tuple[int, ...]] = {}
        # block changes: in step i, entries [offsets[i], offsets[i + 1])
        self.change_blocks = array("I")
        self.change_codes = array("I")
        self.change_indices = array("I")  # logical index of the block in its owner's table
        self.change_offsets = array("Q", [0])
        self._step = 0
        self._owner: list[int | None] = []
        self._group: list[int] = []
        self._index: list[int] = []
        self._holders: dict[int, list[int]] = {}  # of blocks that were shared
        self._codes: list[int] = []
        self._cached_free = 0
        self._front = 0
        self._admissions = 0
        self._preemptions = 0
        self._evicted_before = 0
        self._names: list[str] = []
        self._scheduler: Scheduler | None = None

    def begin(self, scheduler: Scheduler, sequences: list[Sequence]) -> None:
        """Attach to a scheduler that has not started."""
        num_blocks = scheduler.config.num_gpu_blocks
        self._scheduler = scheduler
        self.logs = [SequenceLog() for _ in sequences]
        self._names = [sequence.request_id for sequence in sequences]
        self._owner = [None] * num_blocks
        self._group = [0] * num_blocks
        self._index = [0] * num_blocks
        self._codes = [FREE] * num_blocks
        self.change_blocks.append(NULL_BLOCK)
        self.change_codes.append(encode(NULL, 0, None))
        self.change_indices.append(0)
        scheduler.pool.changed.clear()

    # -- what the scheduler tells -------------------------------------------------------------------------

    def queued(self, step: int, sequence: Sequence) -> None:
        """The sequence arrived."""
        self._stand(sequence, step, WAITING, sequence.arrival)
        self._progress(sequence, step, 0, 0, 0)
        self.events.append(
            BlockEvent(step=step, kind="arrived", request_id=sequence.request_id, num_tokens=sequence.num_prompt)
        )

    def admitted(self, step: int, sequence: Sequence, hit: PrefixHit) -> None:
        """The sequence runs from this step on."""
        self._admissions += 1
        self._stand(sequence, step, RUNNING, self._admissions)
        kind: EventKind = "resumed" if sequence.num_preemptions else "admitted"
        held = sum(1 for table in sequence.tables for block in table if block)
        self.events.append(
            BlockEvent(step=step, kind=kind, request_id=sequence.request_id, num_blocks=held, num_tokens=hit.num_tokens)
        )

    def preempted(self, step: int, sequence: Sequence, freed: int, kept: int) -> None:
        """The sequence lost its blocks."""
        self._front -= 1
        self._preemptions += 1
        self._stand(sequence, step, WAITING, self._front)
        self._progress(sequence, step, 0, 0, 0)
        self.events.append(
            BlockEvent(step=step, kind="preempted", request_id=sequence.request_id, num_blocks=freed, num_kept=kept)
        )

    def finished(self, step: int, sequence: Sequence, freed: int, kept: int) -> None:
        """The sequence sampled its last token."""
        self._stand(sequence, step + 1, ABSENT, 0)
        self.events.append(
            BlockEvent(step=step, kind="finished", request_id=sequence.request_id, num_blocks=freed, num_kept=kept)
        )

    def progressed(self, step: int, sequence: Sequence, num_tokens: int) -> None:
        """The sequence was scheduled `num_tokens` in this step."""
        self._progress(sequence, step, num_tokens, sequence.computed, 0)

    def became_quiet(self, sequence: Sequence) -> None:
        """The sequence gains one token a step from now on."""
        self._progress(sequence, sequence.quiet_from, 1, sequence.computed + 1, 1)

    def settled(self, step: int, sequence: Sequence) -> None:
        """The sequence no longer gains one token a step."""
        self._progress(sequence, step, 0, sequence.computed, 0)

    def appended(self, sequence: Sequence, group: int, blocks: list[int], *, is_shared: bool) -> None:
        """Blocks were put at the end of a table."""
        start = len(sequence.tables[group]) - len(blocks)
        self.logs[sequence.ordinal].table_changes.append((self._step, APPEND, group, 0, tuple(blocks)))
        if is_shared:
            self._share(sequence, group, blocks)
            return
        owner, groups, index = self._owner, self._group, self._index
        for place, block in enumerate(blocks, start):
            owner[block] = sequence.ordinal
            groups[block] = group
            index[block] = place

    def given_up(self, sequence: Sequence, group: int, start: int, end: int) -> None:
        """Entries of a table become the null block."""
        self.logs[sequence.ordinal].table_changes.append((self._step, GIVE_UP, group, start, (end,)))
        self._leave(sequence, sequence.tables[group][start:end])

    def cleared(self, sequence: Sequence) -> None:
        """All blocks of the sequence are given up."""
        self.logs[sequence.ordinal].table_changes.append((self._step, CLEAR, 0, 0, ()))
        for table in sequence.tables:
            self._leave(sequence, table)

    # -- steps --------------------------------------------------------------------------------------------

    def begin_schedule(self, step: int, now_seconds: float) -> None:
        """The next changes belong to `step`."""
        self._step = step
        self.columns.start_seconds.append(now_seconds)

    def end_schedule(self) -> None:
        """Close the frame of this step; later changes show in the next one."""
        scheduler = self._scheduler
        if scheduler is None:
            raise RuntimeError("begin() was not called")
        self._write_changes(scheduler)
        pool, columns = scheduler.pool, self.columns
        columns.free_blocks.append(pool.num_free)
        columns.cached_free_blocks.append(self._cached_free)
        columns.held_tokens.append(scheduler.held_tokens())
        columns.num_running.append(len(scheduler.running))
        columns.num_waiting.append(len(scheduler.waiting))
        columns.scheduled_tokens.append(scheduler.num_scheduled_tokens)
        columns.preemptions.append(self._preemptions)
        columns.hit_tokens.append(scheduler.hit_tokens)
        columns.queried_tokens.append(scheduler.queried_tokens)
        columns.evicted_blocks.append(pool.num_evicted)
        if scheduler.preempted:
            self.preempted_ids[self._step] = tuple(
                sequence.ordinal for sequence in in_arrival_order(scheduler.preempted)
            )
        if pool.evicted:
            blocks = ranges(pool.evicted)
            event = BlockEvent(
                step=self._step, kind="evicted", request_id=None, num_blocks=len(pool.evicted), blocks=blocks
            )
            self.events.append(event)
            pool.evicted.clear()
        self._step += 1

    def end_outputs(self, finished: list[Sequence]) -> None:
        """The outputs of this step were applied."""
        if finished:
            self.finished_ids[self._step - 1] = tuple(sequence.ordinal for sequence in finished)

    # -- inside -------------------------------------------------------------------------------------------

    def _write_changes(self, scheduler: Scheduler) -> None:
        pool, codes = scheduler.pool, self._codes
        ref_counts, hash_ids = pool.ref_counts, pool.hash_ids
        for block in dict.fromkeys(pool.changed):
            count = ref_counts[block]
            idle = CACHED_FREE if hash_ids[block] else FREE
            state = (SHARED if count > 1 else ACTIVE) if count else idle
            code = encode(state, self._group[block], self._owner[block])
            before = codes[block]
            if code == before:
                continue
            self._cached_free += (state == CACHED_FREE) - (before & 7 == CACHED_FREE)
            codes[block] = code
            self.change_blocks.append(block)
            self.change_codes.append(code)
            self.change_indices.append(self._index[block])
        self.change_offsets.append(len(self.change_blocks))
        pool.changed.clear()

    def _share(self, sequence: Sequence, group: int, blocks: list[int]) -> None:
        """Note who holds blocks that were found in the cache, and tell it once per other holder."""
        ref_counts = self._scheduler.pool.ref_counts if self._scheduler else []
        by_other: dict[int | None, list[int]] = {}
        for place, block in enumerate(blocks):
            if block == NULL_BLOCK:
                continue
            owner = self._owner[block]
            if ref_counts[block] == 1 or owner is None:  # nobody held it: it was cached and free
                by_other.setdefault(None, []).append(block)
                self._owner[block] = sequence.ordinal
                self._index[block] = place
                self._group[block] = group
                self._holders.pop(block, None)
                continue
            holders = self._holders.setdefault(block, [owner])
            by_other.setdefault(holders[0], []).append(block)
            holders.append(sequence.ordinal)
        for other, shared in by_other.items():
            event = BlockEvent(
                step=self._step,
                kind="shared",
                request_id=sequence.request_id,
                num_blocks=len(shared),
                blocks=ranges(shared),
                other_request_id=None if other is None else self._names[other],
            )
            self.events.append(event)

    def _leave(self, sequence: Sequence, blocks: list[int]) -> None:
        holders_of = self._holders
        if not holders_of:
            return
        for block in blocks:
            holders = holders_of.get(block)
            if holders is None or sequence.ordinal not in holders:
                continue
            holders.remove(sequence.ordinal)
            if holders:
                self._owner[block] = holders[0]
            if len(holders) <= 1:
                del holders_of[block]

    def _stand(self, sequence: Sequence, step: int, place: int, order: int) -> None:
        log = self.logs[sequence.ordinal]
        if log.place_steps and log.place_steps[-1] == step:
            log.places[-1] = (place, order)
            return
        log.place_steps.append(step)
        log.places.append((place, order))

    def _progress(self, sequence: Sequence, step: int, num_tokens: int, computed: int, slope: int) -> None:
        log = self.logs[sequence.ordinal]
        if log.progress_steps and log.progress_steps[-1] == step:
            log.progress[-1] = (num_tokens, computed, slope)
            return
        log.progress_steps.append(step)
        log.progress.append((num_tokens, computed, slope))
