"""What KV events add up to at one moment, small enough to record and draw: counts, eviction ages, the shape of the prefix tree."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from live.cached_blocks import CachedBlocks, PrefixNode

SUMMARY_KIND = "kv_events"  # of a recording's frames
LARGEST_SUMMARY_BYTES = 1 << 20
_MOST_TREE_BLOCKS = 20_000  # of a place whose tree is walked
_MOST_RUNS = 12
_MOST_NODES = 2000


class CacheSummaryError(ValueError):
    """Bytes that are no summary; the text is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionAges:
    """How long the blocks evicted last had been cached, in seconds."""

    num_evicted: int
    median_seconds: float
    shortest_seconds: float
    longest_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixRun:
    """A run of cached blocks without a branch, at `depth_blocks` below its start."""

    num_blocks: int
    num_tokens: int
    depth_blocks: int
    num_branches: int  # runs that go on from its end


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixTree:
    """The shape of the cached prefixes; `runs` are those that the most cached blocks go on from, themselves included."""

    num_prefixes: int  # that start at a prompt's first token
    num_detached: int  # that no request can reach any more
    num_runs: int
    deepest_tokens: int
    is_whole: bool  # else the tree was too large to walk to its end
    runs: tuple[PrefixRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedPlace:
    """One KV group on one medium."""

    group: int
    medium: str
    spec_kind: str | None
    num_blocks: int  # different ones
    num_copies: int  # with equal ones counted one by one
    num_tokens: int
    ages: EvictionAges | None  # None: nothing was evicted yet
    tree: PrefixTree | None  # None: too many blocks to walk each time


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSummary:
    """All places of one publisher. Where `is_complete` is False events were missed: counts are at least so much."""

    is_complete: bool
    num_batches: int
    places: tuple[CachedPlace, ...]


_decoder = msgspec.msgpack.Decoder(CacheSummary)
_encoder = msgspec.msgpack.Encoder()


def encode_summary(summary: CacheSummary) -> bytes:
    """The summary's bytes in a recording."""
    return _encoder.encode(summary)


def decode_summary(payload: bytes) -> CacheSummary:
    """The summary that `payload` holds; raises `CacheSummaryError`."""
    try:
        if len(payload) > LARGEST_SUMMARY_BYTES:
            raise CacheSummaryError("A summary of KV events is too large.")
        return _decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        raise CacheSummaryError("These bytes are no summary of KV events.") from None


def summarize(cached: CachedBlocks) -> CacheSummary:
    """What `cached` holds now."""
    places = tuple(
        CachedPlace(
            group=count.group,
            medium=count.medium,
            spec_kind=count.spec_kind,
            num_blocks=count.num_blocks,
            num_copies=count.num_copies,
            num_tokens=count.num_tokens,
            ages=_ages(cached.eviction_ages_seconds(count.group, count.medium)),
            tree=_tree(cached, count.group, count.medium) if count.num_blocks <= _MOST_TREE_BLOCKS else None,
        )
        for count in cached.counts()
    )
    return CacheSummary(is_complete=cached.is_complete, num_batches=cached.num_batches, places=places)


def _ages(ages_seconds: Sequence[float]) -> EvictionAges | None:
    if not ages_seconds:
        return None
    return EvictionAges(
        num_evicted=len(ages_seconds),
        median_seconds=statistics.median(ages_seconds),
        shortest_seconds=min(ages_seconds),
        longest_seconds=max(ages_seconds),
    )


def _tree(cached: CachedBlocks, group: int, medium: str) -> PrefixTree:
    nodes = cached.prefix_tree(group, medium, most_nodes=_MOST_NODES)
    branches, below = [0] * len(nodes), [node.num_blocks for node in nodes]
    for place in range(len(nodes) - 1, -1, -1):  # children stand after their parents
        parent = nodes[place].parent
        if parent is not None:
            branches[parent] += 1
            below[parent] += below[place]
    roots = [node for node in nodes if node.parent is None]
    widest = sorted(range(len(nodes)), key=lambda place: -below[place])[:_MOST_RUNS]
    return PrefixTree(
        num_prefixes=sum(not node.is_detached for node in roots),
        num_detached=sum(node.is_detached for node in roots),
        num_runs=len(nodes),
        deepest_tokens=max(_depths_tokens(nodes), default=0),
        is_whole=len(nodes) < _MOST_NODES,
        runs=tuple(_run(nodes[place], branches[place]) for place in widest),
    )


def _run(node: PrefixNode, num_branches: int) -> PrefixRun:
    return PrefixRun(
        num_blocks=node.num_blocks,
        num_tokens=node.num_tokens,
        depth_blocks=node.depth_blocks,
        num_branches=num_branches,
    )


def _depths_tokens(nodes: Sequence[PrefixNode]) -> list[int]:
    """The tokens from each node's start of the tree to its own end."""
    depths: list[int] = []
    for node in nodes:
        depths.append(node.num_tokens + (0 if node.parent is None else depths[node.parent]))
    return depths
