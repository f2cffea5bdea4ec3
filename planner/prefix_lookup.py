"""The longest cached prefix of a sequence, agreed on by all KV groups."""

from __future__ import annotations

from dataclasses import dataclass

from planner.block_hashes import HashChain
from planner.blocks import NULL_BLOCK, BlockPool
from planner.retention import blocks_for_hit
from planner.sequence import Sequence
from planner.simulator_config import KvGroup, SimulatorConfig


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """`blocks` per group, null where a window no longer needs them, for the first `num_tokens` tokens."""

    blocks: tuple[list[int], ...]
    num_tokens: int
    shared_boundary: int = 0  # the end of a longer prefix that one group holds and another does not; 0: none
    loaded_tokens: int = 0  # the next tokens, whose blocks come back from a lower tier

    @property
    def computed_tokens(self) -> int:
        """All tokens that need not be computed."""
        return self.num_tokens + self.loaded_tokens


NO_HIT = PrefixHit((), 0)


@dataclass(slots=True)
class _Kind:
    """Groups of one kind: they are looked up together, so a hit must be in each of them."""

    group: KvGroup
    indices: list[int]
    blocks: list[list[int]] | None = None
    num_tokens: int = 0


class PrefixLookup:
    """Finds hits in one pool."""

    def __init__(self, config: SimulatorConfig, pool: BlockPool, chain: HashChain) -> None:
        self._config = config
        self._pool = pool
        self._chain = chain
        kinds: dict[tuple[str, int | None], list[int]] = {}
        for index, group in enumerate(config.groups):
            kinds.setdefault((group.kind, group.span_tokens), []).append(index)
        self._kinds = [(config.groups[indices[0]], indices) for indices in kinds.values()]
        self._kinds.sort(key=lambda kind: kind[0].kind != "full")  # full attention bounds the others' search
        self._is_simple = len(self._kinds) == 1
        self._ends_after_one_pass = len(self._kinds) == 2 and self._kinds[0][0].kind == "full"

    def find(self, sequence: Sequence) -> PrefixHit:
        """The hit of the sequence's known tokens but the last, which must be computed for its logits."""
        if not self._config.enable_prefix_caching:
            return NO_HIT
        limit = sequence.num_tokens - 1
        if self._is_simple:
            group, indices = self._kinds[0]
            blocks = self._find_kind(sequence, group, indices, limit, drop=self._config.drop_last_hit_block)
            if not blocks[0]:
                return NO_HIT
            return PrefixHit(self._by_group([(indices, blocks)]), len(blocks[0]) * self._config.block_size)
        return self._find_agreed(sequence, limit)

    def _find_agreed(self, sequence: Sequence, limit: int) -> PrefixHit:
        """Let each kind of group accept the length or shorten it until all agree."""
        block_size, drop = self._config.block_size, self._config.drop_last_hit_block
        kinds = [_Kind(group, indices) for group, indices in self._kinds]
        dropped: set[int] = set()
        length = limit
        longest = 0
        while True:
            current = length
            for index, kind in enumerate(kinds):
                if kind.group.kind == "full" and kind.blocks is not None:
                    current = min(current, kind.num_tokens)
                    continue
                must_drop = drop and index not in dropped
                known = self._num_hashed(sequence) * block_size
                reach = min(current + block_size, known) if must_drop else current
                kind.blocks = self._find_kind(sequence, kind.group, kind.indices, reach, drop=must_drop)
                kind.num_tokens = len(kind.blocks[0]) * block_size
                if must_drop:
                    dropped.add(index)
                elif kind.num_tokens < current:
                    dropped.clear()
                current = kind.num_tokens
                longest = max(longest, current)
            if current >= length:
                break
            length = current
            if self._ends_after_one_pass:
                break
        return self._agreed(kinds, length, longest)

    def _agreed(self, kinds: list[_Kind], length: int, longest: int) -> PrefixHit:
        block_size = self._config.block_size
        boundary = longest if longest > length else 0
        if length < block_size:
            return PrefixHit((), 0, boundary)
        for kind in kinds:
            if kind.group.kind == "full" and kind.blocks is not None:
                for blocks in kind.blocks:
                    del blocks[-(-length // block_size) :]
        found = [(kind.indices, kind.blocks or [[] for _ in kind.indices]) for kind in kinds]
        return PrefixHit(self._by_group(found), length, boundary)

    def _by_group(self, found: list[tuple[list[int], list[list[int]]]]) -> tuple[list[int], ...]:
        tables: list[list[int]] = [[] for _ in self._config.groups]
        for indices, blocks in found:
            for index, table in zip(indices, blocks, strict=True):
                tables[index] = table
        return tuple(tables)

    def _num_hashed(self, sequence: Sequence) -> int:
        return max(0, sequence.num_tokens - self._config.num_hash_lookahead_tokens) // self._config.block_size

    def _find_kind(
        self, sequence: Sequence, group: KvGroup, indices: list[int], limit: int, *, drop: bool
    ) -> list[list[int]]:
        num_blocks = min(max(limit, 0) // self._config.block_size, self._num_hashed(sequence))
        if group.kind == "sliding_window":
            found = self._find_window(sequence, group, indices, num_blocks, drop=drop)
        elif group.kind == "chunked_local":
            first = group.num_skipped_tokens(max(limit, 0)) // self._config.block_size
            found = self._find_run(sequence, indices, min(first, num_blocks), num_blocks)
        else:
            found = self._find_run(sequence, indices, 0, num_blocks)
        if drop and found[0]:
            for blocks in found:
                blocks.pop()
        return found

    def _find_run(self, sequence: Sequence, indices: list[int], start: int, end: int) -> list[list[int]]:
        """The blocks from `start` to the first one missing; those before `start` are not needed."""
        found = [[NULL_BLOCK] * start for _ in indices]
        for index in range(start, end):
            blocks = self._find_block(sequence, index, indices)
            if blocks is None:
                break
            for table, block in zip(found, blocks, strict=True):
                table.append(block)
        return found

    def _find_window(
        self, sequence: Sequence, group: KvGroup, indices: list[int], num_blocks: int, *, drop: bool
    ) -> list[list[int]]:
        """The last run of blocks that fills the window, or the run that starts the sequence."""
        need = blocks_for_hit(group.span_tokens or 1, self._config.block_size, drop_last_hit_block=drop)
        found = [[NULL_BLOCK] * num_blocks for _ in indices]
        run = 0
        for index in range(num_blocks - 1, -1, -1):
            blocks = self._find_block(sequence, index, indices)
            if blocks is None:
                run = 0
                continue
            for table, block in zip(found, blocks, strict=True):
                table[index] = block
            run += 1
            if run >= need:
                return [table[: index + run] for table in found]
        return [table[:run] for table in found]

    def _find_block(self, sequence: Sequence, index: int, indices: list[int]) -> list[int] | None:
        config = self._config
        number = sequence.hash_of_block(index, config.block_size, config.num_hash_lookahead_tokens, self._chain)
        return self._pool.find(number, indices)
