"""Each sequence's block tables: what a step must allocate, what a prefix lookup finds, what leaves the window.

The rules are those of vLLM 0.33 (`v1/core/kv_cache_manager.py`, `kv_cache_coordinator.py` and
`single_type_kv_cache_manager.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from planner.block_hashes import HashChain
from planner.blocks import NULL_BLOCK, BlockPool
from planner.prefix_lookup import PrefixHit, PrefixLookup
from planner.retention import kept_blocks
from planner.sequence import Sequence
from planner.simulator_config import KvGroup, SimulatorConfig

NEVER = 1 << 60


class TableJournal(Protocol):
    """Whoever wants to know how tables change."""

    def appended(self, sequence: Sequence, group: int, blocks: list[int], *, is_shared: bool) -> None:
        """`blocks` were put at the end of the sequence's table, new or found in the cache."""

    def given_up(self, sequence: Sequence, group: int, start: int, end: int) -> None:
        """Entries `[start, end)` of the table are about to become the null block."""

    def cleared(self, sequence: Sequence) -> None:
        """All blocks of the sequence are about to be given up."""


@dataclass(frozen=True, slots=True)
class _Window:
    """A group that gives blocks up, with its place among the groups."""

    index: int
    group: KvGroup


class BlockTables:
    """Allocates, shares and frees blocks for sequences of one engine."""

    def __init__(self, config: SimulatorConfig, journal: TableJournal | None = None) -> None:
        self.config = config
        self.journal = journal
        self.pool = BlockPool(
            num_blocks=config.num_gpu_blocks,
            num_groups=len(config.groups),
            enable_prefix_caching=config.enable_prefix_caching,
        )
        self.is_too_long_for_now = False  # the last sequence refused could not fit whole
        self.chain = HashChain()
        self.lookup = PrefixLookup(config, self.pool, self.chain)
        self._block_size = config.block_size
        self._reprefilled = max(0, config.num_prefill_lookahead_tokens - 1)
        caps = [config.admission_cap_blocks(group) for group in config.groups]
        self._windows = [
            _Window(index, group)
            for index, (group, cap) in enumerate(zip(config.groups, caps, strict=True))
            if cap is not None
        ]
        self._caps = caps
        self._is_simple = len(config.groups) == 1 and config.groups[0].kind == "full" and config.has_like_groups

    def find_hit(self, sequence: Sequence) -> PrefixHit:
        """What the prefix cache holds of the sequence's known tokens, all but the last one."""
        return self.lookup.find(sequence)

    def extend(self, sequence: Sequence, num_new_tokens: int) -> bool:
        """Whether a running sequence got the slots for `num_new_tokens` more; on False nothing was allocated."""
        config = self.config
        total = sequence.computed
        needed = min(total + num_new_tokens + config.num_lookahead_tokens, config.max_model_len)
        if self._windows:
            self._give_up(sequence, max(0, min(total, config.max_model_len) - sequence.in_flight))
        if self._is_simple:
            missing = -(-needed // self._block_size) - len(sequence.tables[0])
            if missing > self.pool.num_free:
                return False
            if missing > 0:
                self._append(sequence, 0, missing)
        else:
            blocks_for = config.blocks_for
            missing = sum(
                max(blocks_for(group, needed) - len(table), 0)
                for group, table in zip(config.groups, sequence.tables, strict=True)
            )
            if missing > self.pool.num_free:
                return False
            self._fill(sequence, needed)
        if config.enable_prefix_caching:
            self.cache(sequence, min(total + num_new_tokens, sequence.num_tokens))
        return True

    def append_one(self, sequence: Sequence) -> bool:
        """Whether a sequence of the one full-attention group got one more block."""
        block = self.pool.allocate_one()
        if block is None:
            return False
        sequence.tables[0].append(block)
        if self.journal is not None:
            self.journal.appended(sequence, 0, [block], is_shared=False)
        return True

    def admit(self, sequence: Sequence, hit: PrefixHit, num_new_tokens: int, *, is_alone: bool) -> bool:
        """Whether a waiting sequence got its hit blocks and slots for `num_new_tokens`; on False nothing was taken."""
        config = self.config
        reserve = 0 if is_alone else config.watermark_blocks
        available = self.pool.num_free - reserve
        if config.scheduler_reserve_full_isl:
            whole = min(sequence.num_tokens, config.max_model_len)
            self.is_too_long_for_now = self._need(whole, hit, is_capped=True) > available
            if self.is_too_long_for_now:
                return False
        total = min(hit.computed_tokens, config.max_model_len)
        needed = min(total + num_new_tokens + config.num_lookahead_tokens, config.max_model_len)
        if self._need(needed, hit, is_capped=False) > available:
            return False
        if hit.num_tokens:
            self._adopt(sequence, hit)
        self._fill(sequence, needed)
        if config.enable_prefix_caching:
            self.cache(sequence, min(total + num_new_tokens, sequence.num_tokens))
        return True

    def cache(self, sequence: Sequence, num_tokens: int) -> None:
        """Make the sequence's full blocks of its first `num_tokens` tokens findable."""
        config, block_size = self.config, self._block_size
        finished = num_tokens - self._reprefilled
        hashed = sequence.num_tokens - config.num_hash_lookahead_tokens
        start, end = sequence.num_cached_blocks, (min(hashed, finished)) // block_size
        if start >= end:
            return
        pool, lookahead = self.pool, config.num_hash_lookahead_tokens
        if self._is_simple and end == start + 1:
            self.cache_next(sequence)
            return
        numbers = [sequence.hash_of_block(index, block_size, lookahead, self.chain) for index in range(start, end)]
        for group, table in enumerate(sequence.tables):
            kept = kept_blocks(config, config.groups[group], sequence, start, end)
            for index in range(start, end) if kept is None else kept:
                if table[index] != NULL_BLOCK:
                    pool.cache(table[index], numbers[index - start], group)
        sequence.num_cached_blocks = end

    def cache_next(self, sequence: Sequence) -> None:
        """Make the next full block findable, for a sequence of the one full-attention group."""
        index, lookahead = sequence.num_cached_blocks, self.config.num_hash_lookahead_tokens
        number = sequence.hash_of_block(index, self._block_size, lookahead, self.chain)
        self.pool.cache(sequence.tables[0][index], number, 0)
        sequence.num_cached_blocks = index + 1

    def release(self, sequence: Sequence) -> None:
        """Give up all blocks of the sequence, group by group, the tail block first."""
        if self.journal is not None:
            self.journal.cleared(sequence)
        for table in sequence.tables:
            if table:
                self.pool.free(reversed(table))
                table.clear()
        sequence.num_cached_blocks = 0

    def next_given_up(self, sequence: Sequence, processed_tokens: int) -> int:
        """The least number of processed tokens, `processed_tokens` or more, at which a block may leave a window."""
        following = NEVER
        for window in self._windows:
            block_size = self.config.block_size_of(window.group)
            table = sequence.tables[window.index]
            span = window.group.span_tokens or 1
            below = min(window.group.num_skipped_tokens(processed_tokens) // block_size, len(table))
            if below and table[below - 1] != NULL_BLOCK:
                return processed_tokens
            if window.group.kind == "sliding_window":
                following = min(following, (below + 1) * block_size + span - 1)
            else:
                following = min(following, (processed_tokens // span + 1) * span)
        return following

    def _need(self, num_tokens: int, hit: PrefixHit, *, is_capped: bool) -> int:
        """The free blocks that a sequence without a table takes: new ones, and hit ones now in the free queue."""
        ref_counts, total = self.pool.ref_counts, 0
        for index, group in enumerate(self.config.groups):
            required = self.config.blocks_for(group, num_tokens)
            cap = self._caps[index]
            if is_capped and cap is not None:
                required = min(required, cap)
            blocks = hit.blocks[index] if hit.num_tokens else []
            skipped = group.num_skipped_tokens(hit.num_tokens) // self._block_size
            total += max(required - max(skipped, len(blocks)), 0)
            total += sum(1 for block in blocks[skipped:] if block != NULL_BLOCK and ref_counts[block] == 0)
        return total

    def _adopt(self, sequence: Sequence, hit: PrefixHit) -> None:
        for index, group in enumerate(self.config.groups):
            skipped = group.num_skipped_tokens(hit.num_tokens) // self._block_size
            kept = hit.blocks[index][skipped:]
            self.pool.touch(kept)
            sequence.tables[index] += [NULL_BLOCK] * skipped + kept
            if self.journal is not None:
                self.journal.appended(sequence, index, sequence.tables[index][:], is_shared=True)
        sequence.num_cached_blocks = hit.num_tokens // self._block_size

    def _fill(self, sequence: Sequence, num_tokens: int) -> None:
        for group, table in enumerate(sequence.tables):
            missing = self.config.blocks_for(self.config.groups[group], num_tokens) - len(table)
            if missing > 0:
                self._append(sequence, group, missing)

    def _append(self, sequence: Sequence, group: int, num_blocks: int) -> None:
        blocks = self.pool.allocate(num_blocks)
        sequence.tables[group] += blocks
        if self.journal is not None:
            self.journal.appended(sequence, group, blocks, is_shared=False)

    def _give_up(self, sequence: Sequence, processed_tokens: int) -> None:
        """Free the blocks wholly below the window of what is processed, the later ones first."""
        for window in self._windows:
            table = sequence.tables[window.index]
            skipped = window.group.num_skipped_tokens(processed_tokens)
            end = min(skipped // self.config.block_size_of(window.group), len(table))
            start = end
            while start > 0 and table[start - 1] != NULL_BLOCK:
                start -= 1
            if start == end:
                continue
            if self.journal is not None:
                self.journal.given_up(sequence, window.index, start, end)
            self.pool.free(reversed(table[start:end]))
            table[start:end] = [NULL_BLOCK] * (end - start)
