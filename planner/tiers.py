"""Host memory and disk below the card: blocks go down when the pool evicts them and come back on a prefix hit.

This is V1's KV offload in outline: it adds prefix hits, never room for more running tokens. A load is counted as
taking time in the step that admits its request. Swap of the V0 engine is in `v0_schedule`.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from typing import Literal

from planner.block_tables import BlockTables
from planner.eviction import EvictionPolicy, Store, make_store
from planner.facts import PlanError
from planner.prefix_lookup import PrefixHit
from planner.sequence import Sequence

LoadRule = Literal["always", "when_faster"]
_THRASH_STEPS = 64  # a block that comes back this soon after it went was evicted too early


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One tier below the card."""

    name: str
    capacity_bytes: int
    bytes_per_second: float  # to and from the card
    policy: EvictionPolicy = "lru"

    def __post_init__(self) -> None:
        if self.capacity_bytes < 0 or self.bytes_per_second <= 0.0:
            text = f"Tier {self.name}: its size must be 0 or more and its bandwidth above 0."
            raise PlanError("capacity_bytes", self.capacity_bytes, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadConfig:
    """The tiers from the card downwards, and when a load is worth it."""

    tiers: tuple[Tier, ...]
    block_bytes: int  # of one block over all layers
    recompute_seconds_per_token: float
    load_rule: LoadRule = "always"

    def move_seconds(self, tier: Tier, num_blocks: int) -> float:
        """The time to move `num_blocks` between `tier` and the card: blocks × block_bytes / bandwidth."""
        return num_blocks * self.block_bytes / tier.bytes_per_second

    def recompute_seconds(self, num_tokens: int) -> float:
        """The time to compute `num_tokens` again."""
        return num_tokens * self.recompute_seconds_per_token


@dataclass(slots=True)
class TierColumns:
    """One number a step."""

    blocks_held: list[array[int]] = field(default_factory=list)  # per tier
    bytes_down: array[int] = field(default_factory=lambda: array("q"))
    bytes_up: array[int] = field(default_factory=lambda: array("q"))
    hit_tokens: array[int] = field(default_factory=lambda: array("q"))  # loaded, not computed again
    thrashed_blocks: array[int] = field(default_factory=lambda: array("q"))  # back within 64 steps of going
    seconds_moving: array[float] = field(default_factory=lambda: array("d"))


class LowerTiers:
    """The contents of all tiers during one simulation."""

    def __init__(self, config: OffloadConfig) -> None:
        if config.block_bytes < 1:
            raise PlanError("block_bytes", config.block_bytes, "A block has at least one byte.")
        self.config = config
        self.columns = TierColumns(blocks_held=[array("q") for _ in config.tiers])
        self.seconds_in_step = 0.0
        self._stores: list[Store] = [
            make_store(tier.policy, tier.capacity_bytes // config.block_bytes) for tier in config.tiers
        ]
        self._tables: BlockTables | None = None
        self._gone_at: dict[int, int] = {}
        self._step = 0
        self._down = self._up = self._hit_tokens = self._thrashed = 0

    def attach(self, tables: BlockTables) -> None:
        """Receive what the pool of `tables` evicts."""
        if len(tables.config.groups) != 1 or tables.config.groups[0].kind != "full":
            text = "Lower tiers are simulated for models with one full-attention KV group."
            raise PlanError("groups", len(tables.config.groups), text)
        self._tables = tables
        tables.pool.evicted_hashes = []

    def lengthen(self, sequence: Sequence, hit: PrefixHit) -> PrefixHit:
        """The hit with the blocks that a lower tier adds to it."""
        contents = self._found_below(sequence, hit)
        if not contents:
            return hit
        size = self._attached.config.block_size
        by_tier = [sum(1 for _, tier in contents if tier == index) for index in range(len(self._stores))]
        moving = sum(
            self.config.move_seconds(tier, count) for tier, count in zip(self.config.tiers, by_tier, strict=True)
        )
        if self.config.load_rule == "when_faster" and moving >= self.config.recompute_seconds(len(contents) * size):
            return hit
        blocks = hit.blocks or tuple([] for _ in self._attached.config.groups)
        return replace(hit, blocks=blocks, loaded_tokens=len(contents) * size)

    def load(self, sequence: Sequence, hit: PrefixHit) -> None:
        """The sequence was admitted with this hit: count what moved up."""
        if not hit.loaded_tokens:
            return
        size = self._attached.config.block_size
        first = hit.num_tokens // size
        for index in range(first, first + hit.loaded_tokens // size):
            content = sequence.hashes[index]
            tier = self._tier_of(content)
            if tier is None:  # dropped meanwhile by the blocks this very admission evicted
                continue
            self._stores[tier].use(content)
            self._up += 1
            self.seconds_in_step += self.config.move_seconds(self.config.tiers[tier], 1)
            if self._step - self._gone_at.get(content, -_THRASH_STEPS) < _THRASH_STEPS:
                self._thrashed += 1
        self._hit_tokens += hit.loaded_tokens

    def end_step(self) -> None:
        """Take in what this step evicted and write the columns."""
        self._absorb()
        columns, block_bytes = self.columns, self.config.block_bytes
        for column, store in zip(columns.blocks_held, self._stores, strict=True):
            column.append(len(store))
        columns.bytes_down.append(self._down * block_bytes)
        columns.bytes_up.append(self._up * block_bytes)
        columns.hit_tokens.append(self._hit_tokens)
        columns.thrashed_blocks.append(self._thrashed)
        columns.seconds_moving.append(self.seconds_in_step)
        self._down = self._up = self._hit_tokens = self._thrashed = 0
        self.seconds_in_step = 0.0
        self._step += 1

    @property
    def _attached(self) -> BlockTables:
        if self._tables is None:
            raise RuntimeError("attach() was not called")
        return self._tables

    def _tier_of(self, content: int) -> int | None:
        return next((index for index, store in enumerate(self._stores) if content in store), None)

    def _found_below(self, sequence: Sequence, hit: PrefixHit) -> list[tuple[int, int]]:
        """The contents that follow the hit without a gap, with the tier that holds each; never the last token's."""
        self._absorb()
        tables = self._attached
        size = tables.config.block_size
        found: list[tuple[int, int]] = []
        for index in range(hit.num_tokens // size, (sequence.num_tokens - 1) // size):
            content = sequence.hash_of_block(index, size, 0, tables.chain)
            tier = self._tier_of(content)
            if tier is None:
                break
            found.append((content, tier))
        return found

    def _absorb(self) -> None:
        evicted = self._attached.pool.evicted_hashes
        if not evicted:
            return
        for content in evicted:
            self._gone_at[content] = self._step
            self._put(content)
        evicted.clear()

    def _put(self, content: int) -> None:
        """Store an evicted block in the first tier; what that drops goes one down."""
        held = self._tier_of(content)
        if held is not None:
            self._stores[held].use(content)
            return
        falling: int | None = content
        for store in self._stores:
            if falling is None:
                return
            self._down += 1
            falling = store.put(falling)
