"""How the block map is sent: a length, a JSON header and arrays, with equal neighbours as runs; `block_wire.js` reads it.

Whoever has blocks to show sends them so: a simulation's stretch of steps (`step_player`), or one moment (`watch_blocks`).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pages.parts.block_words import block_words
from planner.block_codes import ColourBy, to_bytes

U32 = NDArray[np.uint32]
Part = U32 | bytes
LIGHT_NAMES = ("shared", "lit", "lit_offsets", "lit_changes")
_PACK_ABOVE_BYTES = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolColumns:
    """A pool at one step, one entry a block: its code, its logical index there, the step of its last change, its content's number."""

    codes: U32
    indices: U32
    changed: U32
    contents: U32  # 0: none known


def described(name: str, part: Part) -> tuple[str, str, int]:
    """How the header names an array."""
    return (name, "u1" if isinstance(part, bytes) else "u4", len(part))


def padded(part: Part) -> bytes:
    """The array's bytes, up to a whole number of words."""
    data = part if isinstance(part, bytes) else part.astype("<u4", copy=False).tobytes()
    return data + b"\0" * (-len(data) % 4)


def pool_runs(pool: PoolColumns, colour_by: ColourBy) -> dict[str, Part]:
    """The pool as runs in which index and content number only count on."""
    places = np.arange(len(pool.codes), dtype=np.uint32)
    counted = np.where(pool.contents > 0, pool.contents - 2 * places, 0)
    is_start = np.ones(len(pool.codes), bool)
    is_start[1:] = (
        (np.diff(pool.codes) != 0)
        | (np.diff(pool.indices - places) != 0)
        | (np.diff(pool.changed) != 0)
        | (np.diff(counted) != 0)
        | (np.diff(pool.contents > 0))
    )
    starts = np.flatnonzero(is_start).astype(np.uint32)
    return {
        "run_starts": starts,
        "run_bytes": to_bytes(pool.codes[starts], colour_by),
        "run_codes": pool.codes[starts],
        "run_indices": pool.indices[starts],
        "run_changed": pool.changed[starts],
        "run_contents": pool.contents[starts],
    }


def packed_body(parts: Mapping[str, Part]) -> tuple[dict[str, object], bytes]:
    """What the header says of the arrays, and their bytes, compressed where they are many."""
    body = b"".join(padded(part) for part in parts.values())
    is_packed = len(body) > _PACK_ABOVE_BYTES
    header: dict[str, object] = {
        "packed": is_packed,
        "parts": [described(name, part) for name, part in parts.items()],
    }
    return header, zlib.compress(body, 1) if is_packed else body


def message(header: Mapping[str, object], light: tuple[U32, U32, U32, U32], body: bytes | None) -> bytes:
    """The whole message; without a body the browser keeps the one it has. `light` is what a reader's choice changes."""
    light_body = b"".join(padded(part) for part in light)
    whole = {
        **header,
        "words": block_words(),
        "has_body": body is not None,
        "light_bytes": len(light_body),
        "light_parts": [described(name, part) for name, part in zip(LIGHT_NAMES, light, strict=True)],
    }
    text = json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 4)
    return struct.pack("<I", len(text)) + text + light_body + (body or b"")
