"""What the probe inside a running vLLM publishes: the block tables at one step, as frozen frames on the wire (MessagePack).

Shared by the probe, which encodes in the engine's process, and by everything that reads or keeps frames; needs no vLLM.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from planner.units import MIB

PROBE_FORMAT = 1
LARGEST_FRAME_BYTES = 4 * MIB
DEFAULT_PROBE_ENDPOINT = "tcp://127.0.0.1:5567"  # data-parallel rank r uses the port r higher
ENDPOINT_VARIABLE = "KVSCOPE_PROBE_ENDPOINT"
RATE_VARIABLE = "KVSCOPE_PROBE_HZ"
LONGEST_HISTORY = 1024  # steps told of in one frame
MOST_PREEMPTED_IDS = 256  # named in one frame
HASH_MASK = 2**64 - 1  # KV events name a block by these bits of its hash

Moment = Literal["scheduled", "idle"]


class ProbeFrameError(ValueError):
    """Bytes that are no frame of ours; the text is one sentence."""


class RequestBlocks(
    msgspec.Struct, frozen=True, kw_only=True, gc=False
):  # made 256 times a sample: a dataclass costs 5 us
    """One request that holds blocks. `tables` has, per KV group, its physical blocks in logical order, packed; 0: given up."""

    request_id: str  # the engine's own
    is_running: bool  # else it waits for KV that is being loaded
    num_prompt_tokens: int
    num_tokens: int  # with what was sampled so far
    num_computed_tokens: int
    num_preemptions: int
    tables: tuple[bytes, ...]

    def blocks(self, group: int = 0) -> tuple[int, ...]:
        """The physical blocks of one KV group in logical order."""
        return unpack_blocks(self.tables[group])


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedBlocks:
    """Every block that a prefix lookup would find: parallel columns, packed; a block may stand under several hashes."""

    hashes: bytes  # 64 bits each, as KV events give them
    blocks: bytes
    groups: bytes

    def entries(self) -> frozenset[tuple[int, int]]:
        """The (group, hash) pairs that are cached: what KV events add up to."""
        return frozenset(zip(unpack_blocks(self.groups), unpack_hashes(self.hashes), strict=True))

    def block_ids(self) -> frozenset[int]:
        """The physical blocks that are cached, in use or not."""
        return frozenset(unpack_blocks(self.blocks))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFrame:
    """The pool and its tables right after `step` was scheduled, or when the engine had fallen idle after it.

    Counts include the null block where vLLM's do: `num_gpu_blocks` does, used blocks do not.
    """

    format: int = PROBE_FORMAT
    vllm_version: str
    data_parallel_rank: int
    sequence: int  # frames made so far; a jump means that frames were dropped
    step: int  # scheduler steps so far
    moment: Moment
    time_unix_ns: int
    num_gpu_blocks: int
    block_size: int  # tokens
    num_groups: int
    num_free_blocks: int
    settled_free_blocks: int  # after the last step's outputs: what /metrics then shows
    settled_history: bytes = b""  # the same for each step since the last frame, oldest first, the newest 1,024; packed
    least_free_blocks: int | None = None  # after any step since the last frame, or before a preemption in it
    num_running: int
    num_waiting: int
    num_preemptions: int  # since the engine started
    preempted_ids: tuple[str, ...]  # since the last frame, the newest
    requests: tuple[RequestBlocks, ...]
    num_requests_left_out: int = 0  # beyond the frame's bound
    shared_blocks: bytes = b""  # blocks in more than one table, packed
    shared_counts: bytes = b""  # and how many hold each
    num_cached_hashes: int
    cached: CachedBlocks | None = None  # None: too many to list, or not due
    sample_seconds: float  # what the sample before this one cost the scheduler
    num_dropped: int = 0  # frames replaced before they could be sent

    @property
    def num_used_blocks(self) -> int:
        """Blocks that some request holds."""
        return self.num_gpu_blocks - 1 - self.num_free_blocks

    @property
    def peak_used_blocks(self) -> int:
        """The most blocks that were in use at once since the frame before; of an older probe, those of the frame."""
        least = self.num_free_blocks if self.least_free_blocks is None else self.least_free_blocks
        return self.num_gpu_blocks - 1 - min(least, self.num_free_blocks)

    @property
    def usage_fraction(self) -> float:
        """Used blocks over the usable pool, as vLLM counts it."""
        usable = self.num_gpu_blocks - 1
        return self.num_used_blocks / usable if usable else 0.0

    def reference_counts(self) -> dict[int, int]:
        """How many requests hold each block that is in a table."""
        counts = {
            block: 1 for request in self.requests for table in request.tables for block in unpack_blocks(table) if block
        }
        counts.update(zip(unpack_blocks(self.shared_blocks), unpack_blocks(self.shared_counts), strict=True))
        return counts


def joined_frames(older: ProbeFrame, newer: ProbeFrame) -> ProbeFrame:
    """`newer`, which also tells what `older`, never sent, said of its own stretch: steps, preemptions and the peak."""
    history = older.settled_history + newer.settled_history
    return replace(
        newer,
        settled_history=history[-4 * LONGEST_HISTORY :],
        preempted_ids=(older.preempted_ids + newer.preempted_ids)[-MOST_PREEMPTED_IDS:],
        least_free_blocks=newer.num_gpu_blocks - 1 - max(older.peak_used_blocks, newer.peak_used_blocks),
    )


_decoder = msgspec.msgpack.Decoder(ProbeFrame)
_encoder = msgspec.msgpack.Encoder()


def encode_frame(frame: ProbeFrame) -> bytes:
    """The frame's bytes on the wire."""
    return _encoder.encode(frame)


def decode_frame(payload: bytes) -> ProbeFrame:
    """The frame that `payload` holds; raises `ProbeFrameError`."""
    if len(payload) > LARGEST_FRAME_BYTES:
        raise ProbeFrameError(f"A probe frame of {len(payload):,} bytes is more than {LARGEST_FRAME_BYTES:,}.")
    try:
        frame = _decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        raise ProbeFrameError("These bytes are no frame of KVScope's probe; check the endpoint's port.") from None
    if frame.format != PROBE_FORMAT:
        text = (
            f"The probe sends format {frame.format}; this KVScope reads {PROBE_FORMAT}. Load the probe of this version."
        )
        raise ProbeFrameError(text)
    _check(frame)
    return frame


def _check(frame: ProbeFrame) -> None:
    tables = [table for request in frame.requests for table in request.tables]
    words = [*tables, frame.shared_blocks, frame.shared_counts, frame.settled_history]
    pairs = [(len(frame.shared_blocks), len(frame.shared_counts))]
    if frame.cached is not None:
        words += [frame.cached.blocks, frame.cached.groups]
        pairs += [(len(frame.cached.blocks), len(frame.cached.groups))]
        pairs += [(2 * len(frame.cached.blocks), len(frame.cached.hashes))]
    is_whole = all(len(word) % 4 == 0 for word in words) and all(left == right for left, right in pairs)
    if not is_whole or any(len(request.tables) != frame.num_groups for request in frame.requests):
        raise ProbeFrameError("The probe's frame is cut: its columns do not match.")


def pack_blocks(blocks: Iterable[int]) -> bytes:
    """`blocks` as little-endian 32-bit numbers."""
    return _little("I", blocks)


def pack_hashes(hashes: Iterable[int]) -> bytes:
    """`hashes` as little-endian 64-bit numbers."""
    return _little("Q", hashes)


def unpack_blocks(packed: bytes) -> tuple[int, ...]:
    """The numbers that `pack_blocks` packed."""
    return _numbers("I", packed)


def unpack_hashes(packed: bytes) -> tuple[int, ...]:
    """The numbers that `pack_hashes` packed."""
    return _numbers("Q", packed)


def _little(code: str, numbers: Iterable[int]) -> bytes:
    column = array(code, numbers)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _numbers(code: str, packed: bytes) -> tuple[int, ...]:
    column = array(code)
    column.frombytes(packed)
    if sys.byteorder == "big":
        column.byteswap()
    return tuple(column)
