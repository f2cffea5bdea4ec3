"""What a simulated engine is told: the pool, the KV groups and the scheduler's flags, by vLLM's own names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.blocks import MAX_BLOCKS
from planner.facts import PlanError
from planner.units import div_ceil

GroupKind = Literal["full", "sliding_window", "chunked_local", "state"]
SchedulingPolicy = Literal["fcfs", "priority"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """One KV-cache group: layers that share a block table. `span_tokens` is the window or the local chunk.

    A `state` group (linear attention) holds `num_state_blocks` for a request of any length.
    """

    kind: GroupKind = "full"
    span_tokens: int | None = None
    name: str = ""
    block_size: int | None = None  # tokens, where it differs from the engine's; only without prefix caching
    num_state_blocks: int = 1

    def __post_init__(self) -> None:
        if self.num_state_blocks < 1 or (self.block_size is not None and self.block_size < 1):
            text = "A state group holds at least one block, and a block at least one token."
            raise PlanError("num_state_blocks", self.num_state_blocks, text)
        if (self.kind in {"full", "state"}) != (self.span_tokens is None) or (self.span_tokens or 1) < 1:
            text = "A windowed KV group needs a span of at least 1 token, and a full one has none."
            raise PlanError("sliding_window", self.span_tokens, text)

    def num_skipped_tokens(self, computed_tokens: int) -> int:
        """The tokens in front that the next token no longer attends to."""
        if self.kind == "sliding_window" and self.span_tokens:
            return max(0, computed_tokens - self.span_tokens + 1)
        if self.kind == "chunked_local" and self.span_tokens:
            return computed_tokens // self.span_tokens * self.span_tokens
        return 0


FULL_ATTENTION = KvGroup()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorConfig:
    """One engine: vLLM's flags by their names; sizes in tokens unless the name says blocks."""

    num_gpu_blocks: int  # with the null block, as vLLM counts
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 8192
    enable_prefix_caching: bool = True
    groups: tuple[KvGroup, ...] = (FULL_ATTENTION,)
    scheduling_policy: SchedulingPolicy = "fcfs"
    async_scheduling: bool = False
    pipeline_parallel_size: int = 1  # as many batches are under way at once; not beside async_scheduling
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0  # 0: no limit on one request's share of a step
    scheduler_reserve_full_isl: bool = True  # admit only what fits whole
    watermark: float = 0.0  # fraction of the pool kept free when admitting
    prefix_cache_retention_interval: int | None = None  # None: every block of a window group is kept findable
    num_speculative_tokens: int = 0
    num_lookahead_tokens: int = 0  # slots reserved for a drafter with KV of its own
    num_draft_slots: int = 0  # input rows per request that drafting adds to the budget
    num_prefill_lookahead_tokens: int = 0  # tokens past a prefill chunk that a multi-module MTP drafter reads
    num_hash_lookahead_tokens: int = 0  # tokens past a block that its hash covers
    release: tuple[int, int] = (
        0,
        33,
    )  # of vLLM; 0.32 differs when a sequence preempts itself and in when drafts are cached
    drop_last_hit_block: bool = False  # EAGLE without lookahead hashes recomputes the last matched block

    def __post_init__(self) -> None:
        self._check_counts()
        if self.async_scheduling and self.pipeline_parallel_size > 1:
            text = "Async scheduling is not simulated beside pipeline stages; turn it off."
            raise PlanError("async_scheduling", True, text)
        if self.scheduling_policy not in {"fcfs", "priority"}:
            text = f'scheduling_policy must be "fcfs" or "priority", not "{self.scheduling_policy}".'
            raise PlanError("scheduling_policy", self.scheduling_policy, text)
        if not 0.0 <= self.watermark < 1.0:
            raise PlanError("watermark", self.watermark, "watermark must be a fraction from 0 up to 1.")
        interval = self.prefix_cache_retention_interval
        if interval is not None and (interval < 0 or interval % self.block_size):
            text = f"prefix_cache_retention_interval must be a multiple of the block size, {self.block_size}."
            raise PlanError("prefix_cache_retention_interval", interval, text)
        if self.enable_prefix_caching and not self.has_like_groups:
            text = (
                "Prefix caching is not simulated for state groups, or groups with blocks of unlike size; turn it off."
            )
            raise PlanError("enable_prefix_caching", True, text)
        if not self.groups:
            raise PlanError("groups", (), "The engine needs at least one KV group.")

    def _check_counts(self) -> None:
        limits = {
            "num_gpu_blocks": (2, MAX_BLOCKS),
            "block_size": (1, 65_536),
            "max_num_seqs": (1, 1_000_000),
            "max_num_batched_tokens": (1, 100_000_000),
            "max_model_len": (2, 100_000_000),
            "pipeline_parallel_size": (1, 1_000),
            "num_speculative_tokens": (0, 1_000),
            "num_lookahead_tokens": (0, 1_000),
            "long_prefill_token_threshold": (0, 100_000_000),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise PlanError(name, value, f"{name} must be from {low:,} to {high:,}; {value:,} was given.")

    @property
    def has_like_groups(self) -> bool:
        """Whether every group keeps KV in blocks of the engine's size."""
        return all(group.kind != "state" and self.block_size_of(group) == self.block_size for group in self.groups)

    def block_size_of(self, group: KvGroup) -> int:
        """The tokens in a block of `group`."""
        return group.block_size or self.block_size

    def blocks_for(self, group: KvGroup, num_tokens: int) -> int:
        """The blocks that `num_tokens` take in `group`, none given up."""
        return group.num_state_blocks if group.kind == "state" else div_ceil(num_tokens, self.block_size_of(group))

    @property
    def num_usable_blocks(self) -> int:
        """The pool without its null block."""
        return self.num_gpu_blocks - 1

    @property
    def watermark_blocks(self) -> int:
        """The blocks kept free when a request is admitted beside others."""
        return int(self.watermark * self.num_gpu_blocks)

    @property
    def max_concurrent_batches(self) -> int:
        """The batches under way at once; async scheduling keeps two, pipeline stages one each."""
        return 2 if self.async_scheduling else self.pipeline_parallel_size

    @property
    def has_quiet_steps(self) -> bool:
        """Whether a decoding sequence gains one token in each step: not with drafts, nor while its batch is in a pipeline."""
        return not self.num_speculative_tokens and self.pipeline_parallel_size == 1

    @property
    def max_in_flight_tokens(self) -> int:
        """The most tokens scheduled but not yet settled."""
        return self.max_concurrent_batches * self.max_num_batched_tokens

    def admission_cap_blocks(self, group: KvGroup) -> int | None:
        """The most blocks one request of a windowed group can hold at once; None: no cap."""
        if group.span_tokens is None:
            return None
        kept = group.span_tokens - 1 if group.kind == "sliding_window" else group.span_tokens
        cap = div_ceil(min(kept + self.max_in_flight_tokens, self.max_model_len), self.block_size_of(group))
        return cap + 1 if group.kind == "sliding_window" else cap
