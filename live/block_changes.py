"""What happened in a pool between two of the probe's frames, as the simulator's own events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from live.probe_frames import ProbeFrame, RequestBlocks
from planner.block_codes import ACTIVE, CACHED_FREE, SHARED
from planner.block_events import BlockEvent, ranges

U32 = NDArray[np.uint32]
_MOST_EVENTS = 400


@dataclass(frozen=True, slots=True)
class Before:
    """The frame before, and the codes of its blocks."""

    frame: ProbeFrame
    codes: U32


def events_between(
    before: Before, frame: ProbeFrame, codes: U32, name_of: Callable[[str], str]
) -> tuple[BlockEvent, ...]:
    """What the two frames show: who was preempted, finished, came, came back or shares, and what was evicted."""
    found = _Changes(before, frame, codes, name_of)
    events = [*found.preempted(), *found.finished(), *found.arrived(), *found.evicted()]
    return tuple(events[:_MOST_EVENTS])


class _Changes:
    """The two frames side by side."""

    def __init__(self, before: Before, frame: ProbeFrame, codes: U32, name_of: Callable[[str], str]) -> None:
        self._before, self._frame, self._codes, self._name_of = before, frame, codes, name_of
        self._old = {request.request_id: request for request in before.frame.requests}
        self._new = {request.request_id: request for request in frame.requests}
        self._hits = np.zeros(len(codes), bool)  # cached blocks that a request took back

    def _freed(
        self, kind: Literal["preempted", "finished"], request_id: str, request: RequestBlocks | None
    ) -> BlockEvent:
        """The request's end: how many blocks it held, and how many of them are still cached."""
        held = None if request is None else self._codes[_held(request, len(self._codes))] & 7
        return BlockEvent(
            step=self._frame.step,
            kind=kind,
            request_id=self._name_of(request_id),
            num_blocks=0 if held is None else len(held),
            num_kept=0 if held is None else int(np.count_nonzero(held == CACHED_FREE)),
        )

    def preempted(self) -> Iterator[BlockEvent]:
        """Those that the engine says it preempted since the frame before."""
        for request_id in dict.fromkeys(self._frame.preempted_ids):
            yield self._freed("preempted", request_id, self._old.get(request_id))

    def finished(self) -> Iterator[BlockEvent]:
        """Those that held blocks and are gone without having been preempted; nobody where the engine preempted some unnamed."""
        num_preempted = self._frame.num_preemptions - self._before.frame.num_preemptions
        if num_preempted > len(self._frame.preempted_ids):
            return
        for request_id, request in self._old.items():
            if request_id not in self._new and request_id not in self._frame.preempted_ids:
                yield self._freed("finished", request_id, request)

    def arrived(self) -> Iterator[BlockEvent]:
        """Those that hold blocks now and held none, with what they found in the cache."""
        for request_id, request in self._new.items():
            known = self._old.get(request_id)
            if known is None or known.num_preemptions < request.num_preemptions:
                yield from self._one_arrived(request)

    def _one_arrived(self, request: RequestBlocks) -> Iterator[BlockEvent]:
        blocks = _held(request, len(self._codes))
        found = blocks[: self._num_found(blocks)]
        name = self._name_of(request.request_id)
        yield BlockEvent(
            step=self._frame.step,
            kind="resumed" if request.num_preemptions else "admitted",
            request_id=name,
            num_blocks=len(blocks),
            num_tokens=len(found) * self._frame.block_size,
        )
        taken = found[self._before.codes[found] & 7 == CACHED_FREE]
        self._hits[taken] = True
        shared = np.setdiff1d(found, taken)
        if len(shared):
            other = self._holder_of(int(shared[0]), request.request_id)
            yield BlockEvent(
                step=self._frame.step,
                kind="shared",
                request_id=name,
                num_blocks=len(shared),
                blocks=ranges(shared.tolist()),
                other_request_id=other,
            )

    def _num_found(self, blocks: U32) -> int:
        """How many blocks at the start of a new table were there before: cached, or another's."""
        states = self._before.codes[blocks] & 7
        is_found = (states == CACHED_FREE) | ((self._codes[blocks] & 7 == SHARED) & (states >= ACTIVE))
        misses = np.flatnonzero(~is_found)
        return int(misses[0]) if len(misses) else len(blocks)

    def _holder_of(self, block: int, request_id: str) -> str | None:
        for name, request in self._old.items():
            if name != request_id and name in self._new and block in _held(request, len(self._codes)):
                return self._name_of(name)
        return None

    def evicted(self) -> Iterator[BlockEvent]:
        """Cached blocks that hold something else now; call it after `arrived`, which knows the hits."""
        was_cached = self._before.codes & 7 == CACHED_FREE
        states = self._codes & 7
        blocks = np.flatnonzero(was_cached & ((states == ACTIVE) | (states == SHARED)) & ~self._hits)
        if len(blocks):
            yield BlockEvent(
                step=self._frame.step,
                kind="evicted",
                request_id=None,
                num_blocks=len(blocks),
                blocks=ranges(blocks.tolist()),
            )


def _held(request: RequestBlocks, num_blocks: int) -> U32:
    packed = b"".join(request.tables)
    blocks = np.frombuffer(packed, "<u4")
    return blocks[(blocks > 0) & (blocks < num_blocks)].astype(np.uint32)
