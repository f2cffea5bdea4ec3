"""The pool of KV-cache blocks: reference counts, the free queue in eviction order and the prefix cache.

It holds all state of a block and nothing of a request. The rules are those of vLLM 0.33, `v1/core/block_pool.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.facts import PlanError

NULL_BLOCK = 0  # stands in a table where a block was given up; never allocated, never freed
MAX_BLOCKS = 4_000_000  # a pool beyond this is a typing error: some 200 times the largest card's
NO_HASH = 0


class BlockPool:
    """Every block of one engine, numbered from 0; block 0 is the null block."""

    __slots__ = (
        "_after",
        "_before",
        "_cached",
        "_end",
        "changed",
        "enable_prefix_caching",
        "evicted",
        "evicted_hashes",
        "hash_group",
        "hash_ids",
        "insertions",
        "num_blocks",
        "num_evicted",
        "num_free",
        "ref_counts",
    )

    def __init__(self, *, num_blocks: int, num_groups: int = 1, enable_prefix_caching: bool = True) -> None:
        if not 1 <= num_blocks <= MAX_BLOCKS:
            text = f"The pool must have from 1 to {MAX_BLOCKS:,} blocks; {num_blocks:,} was given."
            raise PlanError("num_gpu_blocks", num_blocks, text)
        self.num_blocks = num_blocks
        self.enable_prefix_caching = enable_prefix_caching
        self.ref_counts = [0] * num_blocks
        self.hash_ids = [NO_HASH] * num_blocks
        self.hash_group = [0] * num_blocks  # the group a hash belongs to; only valid beside a hash
        # The free queue is a ring through the sentinel `_end`: after it stands the next block to be handed out.
        self._end = num_blocks
        self._after: list[int] = [*range(1, num_blocks + 1), min(num_blocks, 1)]
        self._before = [num_blocks, *range(num_blocks)]
        if num_blocks > 1:
            self._before[1] = num_blocks
        else:
            self._before[num_blocks] = num_blocks
        self.num_free = num_blocks - 1
        # group -> hash -> the block, or the blocks in the order they were cached
        self._cached: list[dict[int, int | dict[int, None]]] = [{} for _ in range(num_groups)]
        self.changed: list[int] = []  # blocks whose state changed since the reader last cleared this
        self.evicted_hashes: list[int] | None = None  # a list: note which contents were evicted, for a lower tier
        self.evicted: list[int] = []  # blocks whose hash was forgotten since the reader last cleared this
        self.num_evicted = 0
        self.insertions = 0

    def allocate(self, num_blocks: int) -> list[int]:
        """The next `num_blocks` blocks of the free queue, each with one reference and its old hash forgotten."""
        if num_blocks > self.num_free:
            raise ValueError(f"asked for {num_blocks} blocks, free are {self.num_free}")
        after, ref_counts, hash_ids = self._after, self.ref_counts, self.hash_ids
        block = after[self._end]
        taken = []
        for _ in range(num_blocks):
            taken.append(block)
            ref_counts[block] = 1
            if hash_ids[block]:
                self._evict(block)
            block = after[block]
        after[self._end] = block
        self._before[block] = self._end
        self.num_free -= num_blocks
        self.changed += taken
        return taken

    def allocate_one(self) -> int | None:
        """The next block of the free queue, as `allocate` gives it; None when none is free."""
        end, after = self._end, self._after
        block = after[end]
        if block == end:
            return None
        following = after[block]
        after[end] = following
        self._before[following] = end
        self.num_free -= 1
        self.ref_counts[block] = 1
        if self.hash_ids[block]:
            self._evict(block)
        self.changed.append(block)
        return block

    def free(self, blocks: Iterable[int]) -> None:
        """Give up one reference to each block, in this order: hashless ones queue first, hashed ones last."""
        first: list[int] = []
        last: list[int] = []
        ref_counts, hash_ids = self.ref_counts, self.hash_ids
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            self.changed.append(block)
            ref_counts[block] -= 1
            if ref_counts[block] == 0:
                (last if hash_ids[block] else first).append(block)
        if first:
            self._link(self._end, first, self._after[self._end])
        if last:
            self._link(self._before[self._end], last, self._end)

    def touch(self, blocks: Iterable[int]) -> None:
        """Add one reference to each block; a cached block that was free leaves the free queue."""
        ref_counts, after, before = self.ref_counts, self._after, self._before
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            if ref_counts[block] == 0:
                after[before[block]] = after[block]
                before[after[block]] = before[block]
                self.num_free -= 1
            ref_counts[block] += 1
            self.changed.append(block)

    def cache(self, block: int, hash_id: int, group: int) -> None:
        """Make a full block findable under `hash_id` in `group`."""
        self.hash_ids[block] = hash_id
        self.hash_group[block] = group
        self.insertions += 1
        found = self._cached[group].get(hash_id)
        if found is None:
            self._cached[group][hash_id] = block
        elif isinstance(found, int):
            self._cached[group][hash_id] = {found: None, block: None}
        else:
            found[block] = None
        self.changed.append(block)

    def find(self, hash_id: int, groups: Sequence[int]) -> list[int] | None:
        """The first cached block of every group in `groups`, or None when one of them has none."""
        blocks = []
        for group in groups:
            found = self._cached[group].get(hash_id)
            if found is None:
                return None
            blocks.append(found if isinstance(found, int) else next(iter(found)))
        return blocks

    def free_blocks(self) -> list[int]:
        """The free blocks in the order they will be handed out."""
        order = []
        block = self._after[self._end]
        while block != self._end:
            order.append(block)
            block = self._after[block]
        return order

    def forget_changes(self) -> None:
        """Drop what was noted for a reader of changes."""
        self.changed.clear()
        self.evicted.clear()

    def num_cached(self) -> int:
        """How many blocks, in use or free, a prefix lookup can find."""
        return sum(1 for hash_id in self.hash_ids if hash_id)

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise with the numbers unless free + used = total and each reference is held by one table."""
        held = [0] * self.num_blocks
        for table in tables:
            for block in table:
                held[block] += 1
        held[NULL_BLOCK] = 0
        wrong = [block for block in range(1, self.num_blocks) if held[block] != self.ref_counts[block]]
        if wrong:
            block = wrong[0]
            raise AssertionError(f"block {block}: {self.ref_counts[block]} references, {held[block]} tables hold it")
        queue = self.free_blocks()
        used = sum(1 for count in held if count)
        if len(queue) != self.num_free or len(queue) + used + 1 != self.num_blocks:
            raise AssertionError(f"free {len(queue)} ({self.num_free} counted) + used {used} + 1 ≠ {self.num_blocks}")

    def _evict(self, block: int) -> None:
        cached, hash_id = self._cached[self.hash_group[block]], self.hash_ids[block]
        found = cached[hash_id]
        if isinstance(found, int):
            del cached[hash_id]
        else:
            del found[block]
            if not found:
                del cached[hash_id]
        self.hash_ids[block] = NO_HASH
        self.num_evicted += 1
        self.evicted.append(block)
        if self.evicted_hashes is not None:
            self.evicted_hashes.append(hash_id)

    def _link(self, left: int, blocks: list[int], right: int) -> None:
        after, before = self._after, self._before
        for block in blocks:
            after[left] = block
            before[block] = left
            left = block
        after[left] = right
        before[right] = left
        self.num_free += len(blocks)
