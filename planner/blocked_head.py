"""The waiting sequence that did not fit: no need to look it up again until something changes in its favour."""

from __future__ import annotations

from planner.block_tables import BlockTables
from planner.sequence import Sequence


class BlockedHead:
    """Remembers who could not be admitted whole, at how many insertions, evictions and free blocks."""

    def __init__(self, tables: BlockTables) -> None:
        self._tables = tables
        self._ordinal = -1
        self._insertions = self._evictions = self._num_free = 0

    def note(self, sequence: Sequence, *, is_alone: bool) -> None:
        """The sequence was refused just now."""
        pool = self._tables.pool
        self._ordinal = sequence.ordinal if self._tables.is_too_long_for_now and not is_alone else -1
        self._insertions, self._evictions, self._num_free = pool.insertions, pool.num_evicted, pool.num_free

    def is_still(self, sequence: Sequence) -> bool:
        """Whether nothing was inserted or evicted since, and no more is free: it cannot fit either now."""
        pool = self._tables.pool
        return (
            self._ordinal == sequence.ordinal
            and self._insertions == pool.insertions
            and self._evictions == pool.num_evicted
            and self._num_free >= pool.num_free
        )
