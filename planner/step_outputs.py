"""What the tokens that a step returns do to their sequence: drafts right or wrong, blocks made findable, the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.block_tables import BlockTables
from planner.sequence import Sequence, Status
from planner.simulator_config import SimulatorConfig


@dataclass(slots=True)
class Scheduled:
    """One sequence's share of a step."""

    sequence: Sequence
    num_tokens: int
    num_drafts: int
    samples: bool = False


AcceptDrafts = Callable[[Sequence, int], int]


def accept_none(_sequence: Sequence, _num_drafts: int) -> int:
    """No draft token is ever right."""
    return 0


class StepOutputs:
    """Applies returned tokens, as `update_from_output` of vLLM's scheduler does."""

    def __init__(self, config: SimulatorConfig, tables: BlockTables, accept_drafts: AcceptDrafts) -> None:
        self._config = config
        self._tables = tables
        self._accept_drafts = accept_drafts

    def apply(self, scheduled: Scheduled) -> bool:
        """Whether the sequence finished with the tokens of this batch."""
        sequence = scheduled.sequence
        sequence.in_flight -= scheduled.num_tokens
        is_stale = sequence.stale > 0
        if is_stale:
            sequence.stale -= scheduled.num_tokens
        if sequence.status is Status.FINISHED or not scheduled.samples:
            return False
        accepted = self._accept_drafts(sequence, scheduled.num_drafts) if scheduled.num_drafts else 0
        rejected = scheduled.num_drafts - accepted
        if rejected and not is_stale:
            if sequence.computed > 0:
                sequence.computed -= rejected
            if sequence.placeholders > 0:
                sequence.placeholders -= rejected
        had_placeholders = sequence.placeholders > 0
        is_stopped = self._append_tokens(sequence, 1 + accepted, is_stale=is_stale)
        if not is_stale and sequence.status is Status.RUNNING and self._config.enable_prefix_caching:
            self._cache_outputs(sequence, had_placeholders=had_placeholders)
        return is_stopped

    def _cache_outputs(self, sequence: Sequence, *, had_placeholders: bool) -> None:
        """Make findable what the returned tokens filled."""
        if self._config.release < (0, 33):
            if self._config.async_scheduling:
                self._tables.cache(sequence, sequence.computed - sequence.placeholders)
        elif had_placeholders or self._config.num_speculative_tokens > 0:
            self._tables.cache(sequence, sequence.computed - sequence.in_flight)

    def _append_tokens(self, sequence: Sequence, sampled: int, *, is_stale: bool) -> bool:
        """Whether the sequence reached its end with some of the `sampled` tokens; the rest are dropped."""
        end = min(sequence.num_prompt + sequence.max_tokens, self._config.max_model_len)
        kept = min(sampled, max(end - sequence.num_tokens, 1))
        sequence.num_tokens += kept
        if not is_stale:
            sequence.computed -= sampled - kept
            if sequence.placeholders > 0:
                sequence.placeholders -= sampled
        return sequence.num_tokens >= end
