"""What happens to blocks and requests, as values that can be told in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

EventKind = Literal["arrived", "admitted", "resumed", "shared", "preempted", "evicted", "finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockEvent:
    """One thing that happened in one step; `blocks` are physical block ids as inclusive ranges."""

    step: int
    kind: EventKind
    request_id: str | None
    num_blocks: int = 0
    blocks: tuple[tuple[int, int], ...] = ()
    other_request_id: str | None = None  # with whom the blocks are shared
    num_kept: int = 0  # of the freed blocks: still findable in the prefix cache
    num_tokens: int = 0

    @property
    def text(self) -> str:
        """The event in one sentence."""
        return _SENTENCES[self.kind](self)


def ranges(blocks: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The blocks as inclusive ranges, lowest first."""
    found: list[tuple[int, int]] = []
    for block in sorted(set(blocks)):
        if found and found[-1][1] == block - 1:
            found[-1] = (found[-1][0], block)
        else:
            found.append((block, block))
    return tuple(found)


def blocks_in_words(blocks: tuple[tuple[int, int], ...], *, max_ranges: int = 4) -> str:
    """`block 7` or `blocks 4–9, 12`, shortened after `max_ranges` ranges."""
    parts = [str(low) if low == high else f"{low}–{high}" for low, high in blocks[:max_ranges]]
    rest = f" and {len(blocks) - max_ranges} more ranges" if len(blocks) > max_ranges else ""
    is_single = len(blocks) == 1 and blocks[0][0] == blocks[0][1]
    return f"{'block' if is_single else 'blocks'} {', '.join(parts)}{rest}"


def _count(number: int, noun: str = "block") -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _admitted(event: BlockEvent) -> str:
    found = f", {_count(event.num_tokens, 'token')} found in the cache" if event.num_tokens else ""
    return f"{event.request_id} starts with {_count(event.num_blocks)}{found}"


def _resumed(event: BlockEvent) -> str:
    lost = f", {_count(event.num_tokens, 'token')} found in the cache" if event.num_tokens else ", all to recompute"
    return f"{event.request_id} resumes with {_count(event.num_blocks)}{lost}"


def _shared(event: BlockEvent) -> str:
    if event.other_request_id is None:
        return f"{event.request_id} takes cached {blocks_in_words(event.blocks)} back into use"
    return f"{event.request_id} shares {blocks_in_words(event.blocks)} with {event.other_request_id}"


def _preempted(event: BlockEvent) -> str:
    if not event.num_blocks:
        return f"{event.request_id} preempted"  # seen from outside, between two looks at the tables
    kept = f", {event.num_kept:,} still cached" if event.num_kept else ""
    return f"{event.request_id} preempted: {_count(event.num_blocks)} freed{kept}"


def _evicted(event: BlockEvent) -> str:
    return f"{_count(event.num_blocks, 'cached block')} evicted for reuse: {blocks_in_words(event.blocks)}"


def _finished(event: BlockEvent) -> str:
    kept = f", {event.num_kept:,} still cached" if event.num_kept else ""
    return f"{event.request_id} finished: {_count(event.num_blocks)} freed{kept}"


_SENTENCES = {
    "arrived": lambda event: f"{event.request_id} arrives with {_count(event.num_tokens, 'prompt token')}",
    "admitted": _admitted,
    "resumed": _resumed,
    "shared": _shared,
    "preempted": _preempted,
    "evicted": _evicted,
    "finished": _finished,
}
