"""A step as vLLM's own traces write it down: who was scheduled, in which order all stand, and every block table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from planner.schedule import Scheduler
from planner.sequence import Sequence, Status

BlockTable = tuple[tuple[int, ...], ...]  # per KV group


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFrame:
    """The state right after `schedule()` of one step, and who finished when its outputs were applied."""

    step: int
    scheduled: tuple[tuple[str, int], ...]  # tokens per request
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    preempted: tuple[str, ...]
    computed: tuple[tuple[str, int], ...]  # tokens per request that runs or waits
    block_tables: tuple[tuple[str, BlockTable], ...]  # per running request
    free_blocks: int
    finished: tuple[str, ...] = ()

    def to_mapping(self) -> dict[str, object]:
        """The step under the keys of the traces."""
        return {
            "step": self.step,
            "scheduled": dict(self.scheduled),
            "running": list(self.running),
            "waiting": list(self.waiting),
            "preempted": list(self.preempted),
            "computed": dict(self.computed),
            "block_tables": {name: [list(table) for table in tables] for name, tables in self.block_tables},
            "free_blocks": self.free_blocks,
            "finished": list(self.finished),
        }


def frame_of(scheduler: Scheduler) -> StepFrame:
    """The frame of the step that `scheduler` has just scheduled."""
    running, waiting = scheduler.running, list(scheduler.waiting)
    given = {scheduled.sequence.ordinal: scheduled.num_tokens for scheduled in scheduler.batch}
    live = [*running, *waiting]
    return StepFrame(
        step=scheduler.step,
        scheduled=tuple(
            (sequence.request_id, num_tokens)
            for sequence in running
            if (num_tokens := _tokens_given(scheduler, sequence, given))
        ),
        running=tuple(sequence.request_id for sequence in running),
        waiting=tuple(sequence.request_id for sequence in waiting),
        preempted=tuple(sequence.request_id for sequence in in_arrival_order(scheduler.preempted)),
        computed=tuple((sequence.request_id, scheduler.computed_after_schedule(sequence)) for sequence in live),
        block_tables=tuple(
            (sequence.request_id, tuple(tuple(table) for table in sequence.tables)) for sequence in running
        ),
        free_blocks=scheduler.pool.num_free,
    )


def in_arrival_order(sequences: Iterable[Sequence]) -> list[Sequence]:
    """The sequences in the order of the workload; the traces name a step's preempted ones in this order."""
    return sorted(sequences, key=lambda sequence: sequence.ordinal)


def _tokens_given(scheduler: Scheduler, sequence: Sequence, given: dict[int, int]) -> int:
    if sequence.status is Status.RUNNING and scheduler.step < sequence.quiet_until:
        return 1
    return given.get(sequence.ordinal, 0)
