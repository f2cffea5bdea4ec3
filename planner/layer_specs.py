"""One layer's KV cache on one rank: the kinds of cache vLLM knows, the bytes of a page and the pages a request holds.

A page is one layer's part of one block. Nothing here knows a model: `kv_specs` makes these values from a model,
tests write them by hand, `kv_groups` and `kv_cache` plan over them.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.units import div_ceil, round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a request's page count depends on beside its length."""

    max_in_flight_tokens: int  # scheduled and not yet settled, over all concurrent batches
    dcp: int = 1  # decode-context-parallel ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """A cache of attention states: `num_kv_heads` heads of this rank, `content_bytes` for one head's state (K and V).

    page_bytes = num_kv_heads * (block_size // tokens_per_state) * content_bytes, or `padded_page_bytes` where set.
    """

    block_size: int  # tokens
    num_kv_heads: int
    content_bytes: int
    kv_format: str = "bfloat16"  # as --kv-cache-dtype writes it; layers of unlike formats never merge
    head_size: int = 0
    tokens_per_state: int = 1  # more than one: a compressed cache
    padded_page_bytes: int | None = None
    stride_alignment_bytes: int = 1  # the distance between blocks is a multiple of this
    is_dcp_sharded: bool = True

    @property
    def unpadded_page_bytes(self) -> int:
        """Bytes of one block of this layer without padding."""
        return self.num_kv_heads * (self.block_size // self.tokens_per_state) * self.content_bytes

    @property
    def page_bytes(self) -> int:
        """Bytes of one block of this layer."""
        return self.unpadded_page_bytes if self.padded_page_bytes is None else self.padded_page_bytes

    @property
    def stride_bytes(self) -> int:
        """Bytes from one block of this layer to the next when each layer has a region of its own."""
        return round_up(self.page_bytes, self.stride_alignment_bytes)

    def pages(self, length_tokens: int, serving: Serving) -> int:
        """Pages one request of `length_tokens` holds at most."""
        dcp = serving.dcp if self.is_dcp_sharded else 1
        return div_ceil(div_ceil(length_tokens, dcp), self.block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullSpec(AttentionSpec):
    """Attention over the whole sequence; a window set here is computed but saves no cache (hybrid manager off)."""

    sliding_window: int | None = None
    chunk_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaSpec(FullSpec):
    """One latent vector a state (MLA), an indexer's keys, or compressed states; a copy on every TP rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingSpec(AttentionSpec):
    """Sliding-window attention: blocks wholly below the window of settled tokens are freed."""

    sliding_window: int
    extra_retained_tokens: int = 0  # multi-module speculation reads further back

    def pages(self, length_tokens: int, serving: Serving) -> int:
        """ceil(min(window - 1 + extra + in flight, length) / block) + 1: a window need not start on a block."""
        held_tokens = self.sliding_window - 1 + self.extra_retained_tokens + serving.max_in_flight_tokens
        return div_ceil(min(held_tokens, length_tokens), self.block_size) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingMlaSpec(SlidingSpec):
    """Sliding-window attention over latent vectors, or a compressor's windowed states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedSpec(AttentionSpec):
    """Chunked local attention: one chunk and what is in flight."""

    chunk_size: int

    def pages(self, length_tokens: int, serving: Serving) -> int:
        """ceil(min(chunk + in flight, length) / block)."""
        return div_ceil(min(self.chunk_size + serving.max_in_flight_tokens, length_tokens), self.block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossSpec(AttentionSpec):
    """Cross attention: the encoder's states, whatever the decoder's length."""

    max_encoder_tokens: int

    def pages(self, length_tokens: int, serving: Serving) -> int:  # noqa: ARG002 - all specs answer the same question
        """ceil(encoder tokens / block)."""
        return div_ceil(self.max_encoder_tokens, self.block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSpec(AttentionSpec):
    """A ring of raw keys that a compressor still needs: one block a request."""

    def pages(self, length_tokens: int, serving: Serving) -> int:  # noqa: ARG002 - all specs answer the same question
        """One."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaSpec:
    """A recurrent state: `state_bytes` for one sequence, padded to the attention page it shares the pool with.

    `cache_mode` as vLLM names it: `none` (one state a sequence), `align` (the running state and the last checkpoint),
    `all` (a state every `block_size` tokens).
    """

    block_size: int
    state_bytes: int
    cache_mode: str = "none"
    padded_page_bytes: int | None = None
    num_speculative_blocks: int = 0
    num_checkpoint_blocks: int = 0
    kv_format: str = ""

    @property
    def page_bytes(self) -> int:
        """Bytes of one state of this layer, with padding."""
        return self.state_bytes if self.padded_page_bytes is None else self.padded_page_bytes

    @property
    def stride_alignment_bytes(self) -> int:
        """Bytes that the distance between blocks must be a multiple of."""
        return 1

    @property
    def stride_bytes(self) -> int:
        """Bytes from one block of this layer to the next."""
        return self.page_bytes

    def pages(self, length_tokens: int, serving: Serving) -> int:  # noqa: ARG002 - all specs answer the same question
        """1 + speculative; align: 2 + speculative + checkpoint; all: ceil(length / block) + speculative."""
        if self.cache_mode == "align":
            return 2 + self.num_speculative_blocks + self.num_checkpoint_blocks
        if self.cache_mode == "all":
            return div_ceil(length_tokens, self.block_size) + self.num_speculative_blocks
        return 1 + self.num_speculative_blocks


LayerSpec = AttentionSpec | MambaSpec

_KINDS: dict[type, str] = {
    FullSpec: "full",
    MlaSpec: "mla",
    SlidingSpec: "sliding",
    SlidingMlaSpec: "sliding_mla",
    ChunkedSpec: "chunked",
    CrossSpec: "cross",
    RingSpec: "ring",
    MambaSpec: "mamba",
    AttentionSpec: "attention",
}


def kind_of(spec: LayerSpec) -> str:
    """The word for a spec's kind: full, mla, sliding, sliding_mla, chunked, cross, ring or mamba."""
    return _KINDS[type(spec)]


def _attention_shape(spec: AttentionSpec) -> tuple[object, ...]:
    return (
        spec.block_size,
        spec.num_kv_heads,
        spec.content_bytes,
        spec.kv_format,
        spec.head_size,
        spec.tokens_per_state,
        spec.padded_page_bytes,
        spec.is_dcp_sharded,
    )


def can_merge(specs: list[LayerSpec]) -> bool:
    """Whether vLLM holds layers of these specs in one group under one spec.

    Full attention layers may differ in whether they also have a window (at most one size); all others must be equal.
    """
    first = specs[0]
    if all(spec == first for spec in specs[1:]):
        return True
    if type(first) is not FullSpec or not all(type(spec) is FullSpec for spec in specs):
        return False
    full = [spec for spec in specs if isinstance(spec, FullSpec)]
    windows = {spec.sliding_window for spec in full} - {None}
    chunks = {spec.chunk_size for spec in full} - {None}
    shapes = {_attention_shape(spec) for spec in full}
    return len(shapes) == 1 and len(windows) + len(chunks) <= 1


def _uniform_key(spec: LayerSpec) -> tuple[object, ...]:
    if isinstance(spec, MambaSpec):
        counts = (spec.num_speculative_blocks, spec.num_checkpoint_blocks, spec.page_bytes)
        return ("mamba", spec.block_size, *counts)
    common = (spec.block_size, spec.is_dcp_sharded)
    if isinstance(spec, FullSpec):
        return ("full", *common)
    if isinstance(spec, SlidingSpec):
        return (kind_of(spec), *common, spec.sliding_window)
    if isinstance(spec, ChunkedSpec):
        return ("chunked", *common, spec.chunk_size)
    return (kind_of(spec), *common)


def has_one_type(specs: list[LayerSpec]) -> bool:
    """Whether layers of these specs always need the same number of pages, so that one block table serves them all."""
    return len({_uniform_key(spec) for spec in specs}) == 1
