"""The probe's frames as moments of a pool: the codes, tables and events that the simulator's block map has, of a real engine.

A frame shows one step in several, so what happened is told for all steps since the frame before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from live.block_changes import Before, events_between
from live.probe_frames import ProbeFrame, RequestBlocks
from planner.block_codes import ACTIVE, CACHED_FREE, FREE, MAX_GROUPS, NULL, SHARED
from planner.block_events import BlockEvent

U32 = NDArray[np.uint32]
UNKNOWN_STEP = 2**32 - 1  # of a block that has not changed since the first frame seen
_MOST_NAMES = 1 << 20  # requests told apart; then the numbering starts anew
_MOST_CONTENTS = 16_384  # blocks of a pool whose contents are numbered
_FRONT = re.compile(r"^(?:chatcmpl|cmpl|resp|embd|score|rerank|pool|transcr)-(?=.)")
_BACK = re.compile(r"(?:-\d+)?-[0-9a-f]{8}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRequest:
    """A request that holds blocks; `ordinal` is its number in the codes."""

    ordinal: int
    name: str
    is_running: bool
    num_blocks: int
    num_computed_tokens: int
    num_known_tokens: int  # its prompt and what it has generated so far


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMoment:
    """A pool right after one step; one entry a block in the columns, as the block map draws them."""

    step: int
    time_unix_ns: int
    is_idle: bool
    block_size_tokens: int
    num_groups: int
    codes: U32
    indices: U32
    changed: U32
    contents: U32
    shared_pairs: U32  # (block, ordinal) of every block that several requests hold, flat
    names: dict[int, str]  # by ordinal, of every holder in the codes
    requests: tuple[HeldRequest, ...]
    num_requests_left_out: int
    num_running: int
    num_waiting: int
    num_used_blocks: int  # as the engine counts them
    events: tuple[BlockEvent, ...]
    listed_at_step: int | None  # when the probe last listed what is cached; None: it has not

    @property
    def num_cached_free_blocks(self) -> int:
        """Blocks that nobody holds and that a hit can take back."""
        return int(np.count_nonzero(self.codes & 7 == CACHED_FREE))

    @property
    def num_unplaced_blocks(self) -> int:
        """Blocks in use that stand in no table which the probe sends."""
        states = self.codes & 7
        return max(0, self.num_used_blocks - int(np.count_nonzero((states == ACTIVE) | (states == SHARED))))

    def blocks_of(self, ordinal: int) -> U32:
        """The blocks that one request holds, lowest first."""
        states = self.codes & 7
        own = np.flatnonzero(((states == ACTIVE) | (states == SHARED)) & (self.codes >> 8 == ordinal + 1))
        shared = self.shared_pairs[0::2][self.shared_pairs[1::2] == ordinal]
        return np.union1d(own, shared).astype(np.uint32)


def short_name(request_id: str) -> str:
    """The engine's name of a request without what its server puts around the caller's: "cmpl-a-0-1f0c22aa" is "a"."""
    core = _BACK.sub("", _FRONT.sub("", request_id))
    return core or request_id


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """All tables of a frame end to end, without the null block."""

    blocks: U32
    ordinals: U32
    groups: U32
    indices: U32


class BlockHistory:
    """Follows one engine's frames, so that requests keep their numbers and blocks their last holder. For one thread at a time."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._ordinals: dict[str, int] = {}
        self._names: list[str] = []
        self._frame: ProbeFrame | None = None
        self._moment: BlockMoment | None = None
        self._listed: U32 | None = None
        self._listed_at: int | None = None
        self._contents: U32 | None = None

    @property
    def moment(self) -> BlockMoment | None:
        """The last moment taken."""
        return self._moment

    def take(self, frame: ProbeFrame) -> BlockMoment:
        """The moment of `frame`; one that is older than the last, or of another pool, starts the history anew."""
        last = self._frame
        if last is not None and frame == last and self._moment is not None:
            return self._moment
        is_new = last is None or frame.num_gpu_blocks != last.num_gpu_blocks or frame.step < last.step
        if is_new or frame.sequence < last.sequence or len(self._names) > _MOST_NAMES:  # type: ignore[union-attr]  # is_new comes first
            self._forget()
        self._take_listing(frame)
        tables = self._tables(frame)
        codes, indices = self._columns(frame, tables)
        self._moment = self._made(frame, tables, codes, indices)
        self._frame = frame
        return self._moment

    def _take_listing(self, frame: ProbeFrame) -> None:
        if frame.cached is None:
            return
        self._listed = _numbers(frame.cached.blocks)
        self._listed_at = frame.step
        self._contents = np.zeros(frame.num_gpu_blocks, np.uint32)
        if frame.num_gpu_blocks <= _MOST_CONTENTS:
            hashes = np.frombuffer(frame.cached.hashes, "<u8")
            self._contents[self._listed] = (hashes % 999_983 + 1).astype(np.uint32)  # six digits tell contents apart

    def _ordinal(self, request_id: str) -> int:
        found = self._ordinals.setdefault(request_id, len(self._names))
        if found == len(self._names):
            self._names.append(short_name(request_id))
        return found

    def _tables(self, frame: ProbeFrame) -> _Tables:
        columns = [
            (_numbers(table), self._ordinal(request.request_id), group)
            for request in frame.requests
            for group, table in enumerate(request.tables)
        ]
        lengths = [len(blocks) for blocks, _, _ in columns]
        blocks = np.concatenate([blocks for blocks, _, _ in columns] or [np.zeros(0, np.uint32)])
        starts = np.repeat(np.cumsum([0, *lengths[:-1]]) if lengths else [], lengths).astype(np.uint32)
        kept = (blocks > 0) & (blocks < frame.num_gpu_blocks)
        return _Tables(
            blocks=blocks[kept],
            ordinals=np.repeat([each for _, each, _ in columns], lengths).astype(np.uint32)[kept],
            groups=np.repeat([min(each, MAX_GROUPS - 1) for _, _, each in columns], lengths).astype(np.uint32)[kept],
            indices=(np.arange(len(blocks), dtype=np.uint32) - starts)[kept],
        )

    def _columns(self, frame: ProbeFrame, tables: _Tables) -> tuple[U32, U32]:
        """Each block's code and logical index; of two tables that hold a block the first names it."""
        codes = np.full(frame.num_gpu_blocks, FREE, np.uint32)
        indices = np.zeros(frame.num_gpu_blocks, np.uint32)
        if self._listed is not None:
            listed = self._listed[self._listed < frame.num_gpu_blocks]
            last = np.zeros_like(codes) if self._moment is None else self._moment.codes
            codes[listed] = last[listed] & ~np.uint32(7) | CACHED_FREE
            if self._moment is not None:
                indices[listed] = self._moment.indices[listed]
        backwards = slice(None, None, -1)
        held = ACTIVE | tables.groups << 3 | tables.ordinals + 1 << 8
        codes[tables.blocks[backwards]] = held[backwards]
        indices[tables.blocks[backwards]] = tables.indices[backwards]
        shared = _numbers(frame.shared_blocks)
        shared = shared[shared < frame.num_gpu_blocks]
        shared = shared[codes[shared] & 7 == ACTIVE]
        codes[shared] += SHARED - ACTIVE
        codes[:1] = NULL
        return codes, indices

    def _made(self, frame: ProbeFrame, tables: _Tables, codes: U32, indices: U32) -> BlockMoment:
        contents = np.zeros_like(codes) if self._contents is None else self._contents
        owners = np.unique(codes >> 8)
        before = None if self._frame is None or self._moment is None else Before(self._frame, self._moment.codes)
        return BlockMoment(
            step=frame.step,
            time_unix_ns=frame.time_unix_ns,
            is_idle=frame.moment == "idle",
            block_size_tokens=frame.block_size,
            num_groups=frame.num_groups,
            codes=codes,
            indices=indices,
            changed=self._changed(frame, codes, indices),
            contents=contents,
            shared_pairs=_shared_pairs(codes, tables),
            names={int(owner) - 1: self._names[int(owner) - 1] for owner in owners if owner},
            requests=tuple(self._held(request) for request in frame.requests),
            num_requests_left_out=frame.num_requests_left_out,
            num_running=frame.num_running,
            num_waiting=frame.num_waiting,
            num_used_blocks=frame.num_used_blocks,
            events=() if before is None else events_between(before, frame, codes, short_name),
            listed_at_step=self._listed_at,
        )

    def _changed(self, frame: ProbeFrame, codes: U32, indices: U32) -> U32:
        last = self._moment
        if last is None:
            return np.full(len(codes), UNKNOWN_STEP, np.uint32)
        is_same = (codes == last.codes) & (indices == last.indices)
        return np.where(is_same, last.changed, np.uint32(min(frame.step, UNKNOWN_STEP - 1))).astype(np.uint32)

    def _held(self, request: RequestBlocks) -> HeldRequest:
        return HeldRequest(
            ordinal=self._ordinal(request.request_id),
            name=short_name(request.request_id),
            is_running=request.is_running,
            num_blocks=sum(int(np.count_nonzero(_numbers(table))) for table in request.tables),
            num_computed_tokens=request.num_computed_tokens,
            num_known_tokens=max(request.num_tokens, request.num_prompt_tokens, 1),
        )


def _shared_pairs(codes: U32, tables: _Tables) -> U32:
    is_shared = codes[tables.blocks] & 7 == SHARED
    return np.stack([tables.blocks[is_shared], tables.ordinals[is_shared]], axis=1).ravel().astype(np.uint32)


def _numbers(packed: bytes) -> U32:
    return np.frombuffer(packed, "<u4").astype(np.uint32, copy=False)
