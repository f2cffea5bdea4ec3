"""KV events as vLLM publishes them, turned into frozen values: both wire forms, tagged arrays (to 0.23) and maps (by 0.27).

A batch is a msgpack array [time, events, data-parallel rank]. Defaults are left out on the wire; fields this table does not
know are ignored, as are events of an unknown kind, which are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

BlockHash = int | bytes

_LARGEST_BATCH_BYTES = 64 * 2**20
# Positions in the tagged array, oldest fields first: each release added at the end (distributed/kv_events.py, 0.11 to 0.23).
_STORED_FIELDS = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
)
_REMOVED_FIELDS = ("block_hashes", "medium", "group_idx", "locality")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksStored:
    """Full blocks that can be hit from now on; sent again for reuse where a request asks for full reports."""

    block_hashes: tuple[BlockHash, ...]
    parent_block_hash: BlockHash | None
    num_tokens: int  # of all the blocks; their ids are counted, not kept: they are the users' text
    block_size: int  # tokens
    medium: str | None
    group: int | None
    lora_name: str | None = None
    spec_kind: str | None = None
    sliding_window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksRemoved:
    """Blocks that cannot be hit any more."""

    block_hashes: tuple[BlockHash, ...]
    medium: str | None
    group: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllCleared:
    """The prefix cache was reset."""


KvEvent = BlocksStored | BlocksRemoved | AllCleared


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEventBatch:
    """One step's events. `sequence` counts a publisher's batches from 0; `time_seconds` is the engine's clock."""

    sequence: int
    time_seconds: float
    events: tuple[KvEvent, ...]
    data_parallel_rank: int | None = None
    num_unknown: int = 0


class FrameError(ValueError):
    """A message that is no KV event batch; the text says what is wrong with it."""


def _hash(value: object) -> BlockHash:
    if isinstance(value, bool) or not isinstance(value, (int, bytes)):
        raise FrameError("a block hash is neither a number nor bytes")
    return value


def _hashes(value: object) -> tuple[BlockHash, ...]:
    if not isinstance(value, list):
        raise FrameError("an event has no list of block hashes")
    return tuple(_hash(one) for one in value)


def _text(value: object) -> str | None:
    return value[:300] if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _stored(fields: dict[str, Any]) -> BlocksStored:
    parent, tokens = fields.get("parent_block_hash"), fields.get("token_ids")
    return BlocksStored(
        block_hashes=_hashes(fields.get("block_hashes")),
        parent_block_hash=None if parent is None else _hash(parent),
        num_tokens=len(tokens) if isinstance(tokens, list) else 0,
        block_size=_count(fields.get("block_size")) or 0,
        medium=_text(fields.get("medium")),
        group=_count(fields.get("group_idx")),
        lora_name=_text(fields.get("lora_name")),
        spec_kind=_text(fields.get("kv_cache_spec_kind")),
        sliding_window=_count(fields.get("kv_cache_spec_sliding_window")),
    )


def _removed(fields: dict[str, Any]) -> BlocksRemoved:
    return BlocksRemoved(
        block_hashes=_hashes(fields.get("block_hashes")),
        medium=_text(fields.get("medium")),
        group=_count(fields.get("group_idx")),
    )


def _cleared(_fields: dict[str, Any]) -> AllCleared:
    return AllCleared()


_KINDS: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], KvEvent]]] = {
    "BlockStored": (_STORED_FIELDS, _stored),
    "BlockRemoved": (_REMOVED_FIELDS, _removed),
    "AllBlocksCleared": ((), _cleared),
}


def _event(value: object) -> KvEvent | None:
    """The event in either form; None for a kind that is not known."""
    if isinstance(value, dict):
        tag, fields = value.get("type"), value
        known = _KINDS.get(tag) if isinstance(tag, str) else None
        return None if known is None else known[1](fields)
    if isinstance(value, list) and value and isinstance(value[0], str):
        known = _KINDS.get(value[0])
        return None if known is None else known[1](dict(zip(known[0], value[1:], strict=False)))
    raise FrameError("an event is neither a map nor a tagged array")


def decode_batch(sequence: int, payload: bytes) -> KvEventBatch:
    """The batch of one message; raises `FrameError`."""
    if len(payload) > _LARGEST_BATCH_BYTES:
        raise FrameError(f"a batch of {len(payload)} bytes is larger than any step's")
    try:
        document = msgspec.msgpack.decode(payload)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise FrameError(f"the payload is no msgpack ({error})") from None
    if not isinstance(document, list) or len(document) < 2 or not isinstance(document[1], list):
        raise FrameError("the payload is no array of time and events")
    if not isinstance(document[0], (int, float)):
        raise FrameError("the batch has no time")
    events = [_event(one) for one in document[1]]
    return KvEventBatch(
        sequence=sequence,
        time_seconds=float(document[0]),
        events=tuple(one for one in events if one is not None),
        data_parallel_rank=_count(document[2]) if len(document) > 2 else None,
        num_unknown=events.count(None),
    )
