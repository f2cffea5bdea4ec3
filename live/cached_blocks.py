"""The prefix cache as its events tell it: cached blocks by group and medium, their prefix tree, and how old evicted ones were.

Only full, hashed blocks are in the events: partly filled ones, block numbers and reference counts are not.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from live.kv_event_frames import AllCleared, BlockHash, BlocksRemoved, BlocksStored, KvEventBatch
from live.kv_events import KvEventPoll

GPU = "GPU"
_MOST_BLOCKS = 4_000_000
_MOST_AGES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedCount:
    """Blocks of one KV cache group on one medium. `num_copies` counts equal blocks one by one, as they fill the pool."""

    group: int
    medium: str
    spec_kind: str | None
    num_blocks: int
    num_copies: int
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixNode:
    """A run of blocks without a branch. `is_detached`: its parent is not cached, so no request reaches it from the start."""

    first_hash: BlockHash
    num_blocks: int
    num_tokens: int
    depth_blocks: int
    parent: int | None  # the index of its node in the tree
    is_detached: bool


@dataclass(slots=True)
class _Block:
    parent: BlockHash | None
    num_tokens: int
    stored_at_seconds: float
    copies: int = 1


@dataclass(slots=True)
class _Total:
    """What the blocks of one place come to, kept up to date: a cache of a million blocks is counted every second."""

    num_copies: int = 0
    num_tokens: int = 0

    def add(self, block: _Block) -> None:
        self.num_copies += block.copies
        self.num_tokens += block.num_tokens


@dataclass(slots=True)
class CachedBlocks:
    """The cache of one publisher. `is_complete` is False where batches were lost or the start was missed: counts are then at least."""

    is_complete: bool = True
    num_batches: int = 0
    num_unknown_removals: int = 0
    _places: dict[tuple[int, str], dict[BlockHash, _Block]] = field(default_factory=lambda: defaultdict(dict))
    _kinds: dict[tuple[int, str], str | None] = field(default_factory=dict)
    _ages: dict[tuple[int, str], deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_MOST_AGES))
    )
    _num_known: int = 0
    _totals: dict[tuple[int, str], _Total] = field(default_factory=lambda: defaultdict(_Total))

    def take(self, poll: KvEventPoll) -> None:
        """Applies what a poll brought."""
        if poll.is_restart:
            self.forget()
            self.is_complete = True
        if poll.num_lost or poll.num_broken:
            self.is_complete = False
        for batch in poll.batches:
            self.apply(batch)

    def forget(self) -> None:
        """Empties the cache: the publisher started anew."""
        self._places.clear()
        self._ages.clear()
        self._totals.clear()
        self._num_known = 0

    def apply(self, batch: KvEventBatch) -> None:
        """Applies one batch."""
        self.num_batches += 1
        for event in batch.events:
            if isinstance(event, BlocksStored):
                self._store(event, batch.time_seconds)
            elif isinstance(event, BlocksRemoved):
                self._remove(event, batch.time_seconds)
            else:
                self._clear(event)

    def _store(self, event: BlocksStored, now_seconds: float) -> None:
        place = (event.group or 0, event.medium or GPU)
        blocks, total = self._places[place], self._totals[place]
        self._kinds[place] = event.spec_kind or self._kinds.get(place)
        parent = event.parent_block_hash
        num_tokens = event.block_size or event.num_tokens // max(len(event.block_hashes), 1)
        for block_hash in event.block_hashes:
            known = blocks.get(block_hash)
            if known is not None:
                # vLLM keeps equal blocks apart on the card and reports each removal; on other media a key is kept once.
                known.copies += place[1] == GPU
                total.num_copies += place[1] == GPU
                known.stored_at_seconds = now_seconds
            elif self._num_known < _MOST_BLOCKS:
                blocks[block_hash] = _Block(parent=parent, num_tokens=num_tokens, stored_at_seconds=now_seconds)
                total.add(blocks[block_hash])
                self._num_known += 1
            else:
                self.is_complete = False
            parent = block_hash

    def _remove(self, event: BlocksRemoved, now_seconds: float) -> None:
        place = (event.group or 0, event.medium or GPU)
        blocks = self._places[place]
        for block_hash in event.block_hashes:
            block = blocks.get(block_hash)
            if block is None:
                self.num_unknown_removals += 1
                continue
            self._ages[place].append(max(now_seconds - block.stored_at_seconds, 0.0))
            block.copies -= 1
            self._totals[place].num_copies -= 1
            if block.copies == 0:
                self._totals[place].num_tokens -= block.num_tokens
                del blocks[block_hash]
                self._num_known -= 1

    def _clear(self, _event: AllCleared) -> None:
        """A reset of the prefix cache is the card's: tiers below keep theirs."""
        for (group, medium), blocks in self._places.items():
            if medium == GPU:
                self._num_known -= len(blocks)
                self._places[group, medium] = {}
                self._totals[group, medium] = _Total()

    def counts(self) -> tuple[CachedCount, ...]:
        """What is cached, by group and medium."""
        return tuple(
            CachedCount(
                group=group,
                medium=medium,
                spec_kind=self._kinds.get((group, medium)),
                num_blocks=len(blocks),
                num_copies=self._totals[group, medium].num_copies,
                num_tokens=self._totals[group, medium].num_tokens,
            )
            for (group, medium), blocks in sorted(self._places.items())
        )

    def hashes(self, group: int = 0, medium: str = GPU) -> frozenset[BlockHash]:
        """The hashes that can be hit there."""
        return frozenset(self._places.get((group, medium), {}))

    def eviction_ages_seconds(self, group: int = 0, medium: str = GPU) -> tuple[float, ...]:
        """How long each of the blocks evicted last had been cached since it was last stored, oldest eviction first."""
        return tuple(self._ages.get((group, medium), ()))

    def prefix_tree(self, group: int = 0, medium: str = GPU, *, most_nodes: int = 500) -> tuple[PrefixNode, ...]:
        """The cached prefixes as runs, parents before children, widest part of the tree first up to `most_nodes`."""
        blocks = self._places.get((group, medium), {})
        children: dict[BlockHash | None, list[BlockHash]] = defaultdict(list)
        for block_hash, block in blocks.items():
            children[block.parent if block.parent in blocks else None].append(block_hash)
        waiting: deque[tuple[BlockHash, int | None, int]] = deque((root, None, 0) for root in children[None])
        nodes: list[PrefixNode] = []
        while waiting and len(nodes) < most_nodes:
            first, parent, depth = waiting.popleft()
            run = _run(first, children)
            nodes.append(
                PrefixNode(
                    first_hash=first,
                    num_blocks=len(run),
                    num_tokens=sum(blocks[one].num_tokens for one in run),
                    depth_blocks=depth,
                    parent=parent,
                    is_detached=parent is None and blocks[first].parent is not None,
                )
            )
            waiting.extend((child, len(nodes) - 1, depth + len(run)) for child in children.get(run[-1], ()))
        return tuple(nodes)


def _run(first: BlockHash, children: dict[BlockHash | None, list[BlockHash]]) -> list[BlockHash]:
    """The blocks from `first` on as long as each has one child."""
    run, seen = [first], {first}
    while len(following := children.get(run[-1], [])) == 1 and following[0] not in seen:
        run.append(following[0])
        seen.add(following[0])
    return run
