"""What a scheduler tells whoever writes its steps down."""

from __future__ import annotations

from typing import Protocol

from planner.block_tables import TableJournal
from planner.prefix_lookup import PrefixHit
from planner.sequence import Sequence


class ScheduleJournal(TableJournal, Protocol):
    """Whoever wants to know what a step did."""

    def begin_schedule(self, step: int, now_seconds: float) -> None:
        """The next changes belong to `step`, which starts now."""

    def queued(self, step: int, sequence: Sequence) -> None:
        """The sequence arrived."""

    def admitted(self, step: int, sequence: Sequence, hit: PrefixHit) -> None:
        """The sequence runs from this step on, with the blocks of `hit` found in the cache."""

    def preempted(self, step: int, sequence: Sequence, freed: int, kept: int) -> None:
        """`freed` references were given up; `kept` of those blocks stay findable."""

    def finished(self, step: int, sequence: Sequence, freed: int, kept: int) -> None:
        """The sequence sampled its last token; `kept` of the `freed` blocks stay findable."""

    def progressed(self, step: int, sequence: Sequence, num_tokens: int) -> None:
        """The sequence is at `computed` tokens after being scheduled `num_tokens` in this step."""

    def became_quiet(self, sequence: Sequence) -> None:
        """The sequence gains one token in each step of `[quiet_from, quiet_until)`."""

    def settled(self, step: int, sequence: Sequence) -> None:
        """The sequence enters `step` with `computed` tokens, by no steady gain any more."""
