"""Quiet runs: stretches of steps in which a decoding sequence gains one token a step and nothing else can happen.

The scheduler does not look at a quiet sequence. At the end of a stretch (a block is full, a new one is needed, a block
leaves the window) the one thing due is done and the next stretch is worked out.
"""

from __future__ import annotations

from planner.block_tables import BlockTables
from planner.sequence import Sequence
from planner.simulator_config import FULL_ATTENTION, SimulatorConfig


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
        self._has_windows = any(group.span_tokens is not None for group in config.groups)
        # tokens a block; None for states, which never grow
        self._sizes = [None if group.kind == "state" else config.block_size_of(group) for group in config.groups]
        self._is_simple = len(config.groups) == 1 and config.groups[0] == FULL_ATTENTION and not self._lookahead
        self._due: dict[int, list[Sequence]] = {}
        self.num_quiet = 0

    def can_start(self, sequence: Sequence) -> bool:
        """Whether the sequence decodes and everything but the last step's output is settled."""
        if not self._lag:
            return sequence.num_tokens == sequence.computed + 1
        return (
            sequence.num_tokens == sequence.computed
            and sequence.in_flight == sequence.placeholders == 1
            and not sequence.stale
        )

    def due(self, step: int) -> list[Sequence]:
        """The quiet sequences whose stretch ends before `step`, in the order they run; asked once a step."""
        found = self._due.pop(step, None)
        if found is None:
            return []
        if len(found) > 1:
            found.sort(key=_admission)
        return found

    def prolong(self, sequence: Sequence, step: int) -> bool:
        """Whether this step is one more quiet one; what is due in it has then been done."""
        if sequence.quiet_until:
            passed = step - sequence.quiet_from
            sequence.computed += passed
            sequence.num_tokens += passed
        else:
            self.num_quiet += 1
        sequence.quiet_from = sequence.quiet_until = step
        computed = sequence.computed
        # the step that computes the last but one token samples the last one: it is written down, never quiet
        end = min(sequence.num_prompt + sequence.max_tokens, self._max_model_len) - 2
        if computed >= end or not (self._grow(sequence) if self._is_simple else self._extend(sequence, 1)):
            return False
        following = self._following(sequence, end)
        until = step + (following - computed if following > computed else 1)
        sequence.quiet_until = until
        if until in self._due:
            self._due[until].append(sequence)
        else:
            self._due[until] = [sequence]
        return True

    def end(self, sequence: Sequence, step: int) -> None:
        """Bring the sequence up to the state before `step`."""
        passed = step - sequence.quiet_from
        sequence.computed += passed
        sequence.num_tokens += passed
        sequence.quiet_from = sequence.quiet_until = 0
        self.num_quiet -= 1

    def _following(self, sequence: Sequence, end: int) -> int:
        """The computed tokens at which something is due next."""
        block_size = self._block_size
        following = end
        for table, size in zip(sequence.tables, self._sizes, strict=True):
            if size is not None:
                following = min(len(table) * size - self._lookahead, following)
        if self._is_caching:
            full = (sequence.num_cached_blocks + 1) * block_size - 1 + self._lag
            following = min(full, following)
        if self._has_windows:
            gone = self._tables.next_given_up(sequence, sequence.computed + 1 - self._lag) + self._lag
            following = min(gone, following)
        return following

    def _grow(self, sequence: Sequence) -> bool:
        """`BlockTables.extend` by one token for one group of full attention."""
        computed, table, block_size = sequence.computed, sequence.tables[0], self._block_size
        if computed >= len(table) * block_size and not self._tables.append_one(sequence):
            return False
        if self._is_caching and computed + 1 - self._lag >= (sequence.num_cached_blocks + 1) * block_size:
            self._tables.cache(sequence, computed + 1 - self._lag)
        return True


def _admission(sequence: Sequence) -> int:
    return sequence.admission
