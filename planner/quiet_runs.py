"""Quiet runs: stretches of steps in which a decoding sequence gains one token a step and nothing else can happen.

The scheduler does not look at a quiet sequence. At the end of a stretch (a block is full, a new one is needed, a block
leaves the window) the one thing due is done and the next stretch is worked out.
"""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter

from planner.block_tables import NEVER, BlockTables
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
        self._is_plain = (
            self._is_simple and not config.num_hash_lookahead_tokens and config.num_prefill_lookahead_tokens <= 1
        )
        self._due: defaultdict[int, list[Sequence]] = defaultdict(list)
        self.num_quiet = 0
        self._base_tokens = 0  # the sum of `computed - quiet_from`, which stays while a sequence is quiet

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
            found.sort(key=attrgetter("admission"))
        return found

    def prolong_due(self, due: list[Sequence], step: int) -> Sequence | None:
        """The first sequence of `due` that `prolong` refuses; None when this step is a quiet one for all of them."""
        # With one full-attention group and no lookahead only a full table or a full block can be due, and the lengths
        # of the table and of its findable part say which is next: that loop does what `prolong` does, at half the time.
        if self._is_plain:
            return self._prolong_plain(due, step)
        for sequence in due:
            if sequence.quiet_until == step and not self.prolong(sequence, step):
                return sequence
        return None

    def _prolong_plain(self, due: list[Sequence], step: int) -> Sequence | None:
        """`prolong_due` in one loop; what is refused is left to `prolong`."""
        tables, pool, size, is_caching = self._tables, self._tables.pool, self._block_size, self._is_caching
        all_due, before_full, full = self._due, 1 - self._lag, NEVER
        for sequence in due:
            if sequence.quiet_until != step:
                continue
            computed, following = sequence.computed + step - sequence.quiet_from, sequence.quiet_end
            room = len(sequence.tables[0]) * size
            if computed >= following or (computed >= room and not pool.num_free):
                self.prolong(sequence, step)
                return sequence
            sequence.num_tokens += computed - sequence.computed
            sequence.computed, sequence.quiet_from = computed, step
            if computed >= room:
                tables.append_one(sequence)
                room += size
            if is_caching:
                full = (sequence.num_cached_blocks + 1) * size - before_full
                while computed >= full:
                    tables.cache_next(sequence)
                    full += size
            sequence.quiet_until = until = step + min(following, room, full) - computed
            all_due[until].append(sequence)
        return None

    def prolong(self, sequence: Sequence, step: int) -> bool:
        """Whether this step is one more quiet one; what is due in it has then been done."""
        if sequence.quiet_until:
            passed = step - sequence.quiet_from
            sequence.computed += passed
            sequence.num_tokens += passed
        else:
            self.num_quiet += 1
            self._base_tokens += sequence.computed - step
            # the step that computes the last but one token samples the last one: it is written down, never quiet
            sequence.quiet_end = min(sequence.num_prompt + sequence.max_tokens, self._max_model_len) - 2
        sequence.quiet_from = sequence.quiet_until = step
        computed, end = sequence.computed, sequence.quiet_end
        if computed >= end or not (self._grow(sequence) if self._is_simple else self._extend(sequence, 1)):
            return False
        following = self._following(sequence, end)
        until = step + (following - computed if following > computed else 1)
        sequence.quiet_until = until
        self._due[until].append(sequence)
        return True

    def end(self, sequence: Sequence, step: int) -> None:
        """Bring the sequence up to the state before `step`."""
        passed = step - sequence.quiet_from
        sequence.computed += passed
        sequence.num_tokens += passed
        sequence.quiet_from = sequence.quiet_until = 0
        self.num_quiet -= 1
        self._base_tokens -= sequence.computed - step

    def held_tokens(self, running: list[Sequence], step: int) -> int:
        """The computed tokens of all `running` sequences right after `step` was scheduled."""
        held = self._base_tokens + self.num_quiet * (step + 1)
        if self.num_quiet < len(running):
            held += sum([sequence.computed for sequence in running if not sequence.quiet_until])
        return held

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
