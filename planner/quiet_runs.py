"""Quiet runs: stretches of steps in which a decoding sequence gains one token a step and nothing else can happen.

The scheduler passes over a quiet sequence at the cost of one comparison. At the end of a stretch (a block is full, a
new one is needed, a block leaves the window) the one thing due is done and the next stretch is worked out.
"""

from __future__ import annotations

from planner.block_tables import BlockTables
from planner.sequence import Sequence
from planner.simulator_config import SimulatorConfig


class QuietRuns:
    """Starts, prolongs and ends quiet stretches for the sequences of one scheduler.

    A quiet sequence's `computed` and `num_tokens` are those before step `quiet_from`. Under async scheduling the
    output of the step before is always under way, without being written down in a batch.
    """

    def __init__(self, config: SimulatorConfig, tables: BlockTables) -> None:
        self._tables = tables
        self._extend = tables.extend
        self._block_size = config.block_size
        self._lookahead = config.num_lookahead_tokens
        self._max_model_len = config.max_model_len
        self._lag = 1 if config.async_scheduling else 0  # tokens by which the known ones trail the computed ones
        self._is_caching = config.enable_prefix_caching
        self._has_windows = any(group.kind != "full" for group in config.groups)

    def can_start(self, sequence: Sequence) -> bool:
        """Whether the sequence decodes and everything but the last step's output is settled."""
        if not self._lag:
            return sequence.num_tokens == sequence.computed + 1
        return (
            sequence.num_tokens == sequence.computed
            and sequence.in_flight == sequence.placeholders == 1
            and not sequence.stale
        )

    def prolong(self, sequence: Sequence, step: int) -> bool:
        """Whether this step is one more quiet one; what is due in it has then been done."""
        if sequence.quiet_until:
            passed = step - sequence.quiet_from
            sequence.computed += passed
            sequence.num_tokens += passed
        sequence.quiet_from = sequence.quiet_until = step
        computed = sequence.computed
        # the step that computes the last but one token samples the last one: it is written down, never quiet
        end = min(sequence.num_prompt + sequence.max_tokens, self._max_model_len) - 2
        if computed >= end or not self._extend(sequence, 1):
            return False
        block_size = self._block_size
        following = end
        for table in sequence.tables:
            following = min(following, len(table) * block_size - self._lookahead)
        if self._is_caching:
            following = min(following, (sequence.num_cached_blocks + 1) * block_size - 1 + self._lag)
        if self._has_windows:
            following = min(following, self._tables.next_given_up(sequence, computed + 1 - self._lag) + self._lag)
        sequence.quiet_until = step + max(1, following - computed)
        return True

    @staticmethod
    def end(sequence: Sequence, step: int) -> None:
        """Bring the sequence up to the state before `step`."""
        passed = step - sequence.quiet_from
        sequence.computed += passed
        sequence.num_tokens += passed
        sequence.quiet_from = sequence.quiet_until = 0
