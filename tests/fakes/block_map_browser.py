"""What the block map is sent, read back as the browser reads it."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

GONE = 1 << 31


@dataclass
class Received:
    """A message as `block_map.js` unpacks it."""

    header: dict[str, Any]
    light: dict[str, np.ndarray]
    part: dict[str, np.ndarray]

    def bytes_at(self, step: int) -> bytes:
        """The map at a step: the first frame's runs spread out, then the changes up to the step."""
        starts = self.part["run_starts"]
        lengths = np.diff(np.append(starts, self.header["n"]))
        drawn = np.repeat(self.part["run_bytes"], lengths).copy()
        for place in range(1, step - self.header["base"] + 1):
            low, high = self.part["offsets"][place : place + 2]
            drawn[self.part["blocks"][low:high]] = self.part["bytes"][low:high]
        return drawn.tobytes()

    def lit_at(self, step: int) -> set[int]:
        """The blocks that stand out at a step."""
        lit = set(self.light["lit"].tolist())
        for place in range(1, step - self.header["base"] + 1):
            low, high = self.light["lit_offsets"][place : place + 2]
            for change in self.light["lit_changes"][low:high].tolist():
                lit = lit - {change & ~GONE} if change & GONE else lit | {change}
        return lit


def sections(parts: list[list[Any]], data: bytes) -> dict[str, np.ndarray]:
    found, at = {}, 0
    for name, kind, size in parts:
        found[name] = np.frombuffer(data, "<u4" if kind == "u4" else np.uint8, size, at)
        at += found[name].nbytes + -found[name].nbytes % 4
    assert at == len(data)
    return found


def receive(data: bytes) -> Received:
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length])
    body = data[4 + length :]
    light, heavy = body[: header["light_bytes"]], body[header["light_bytes"] :]
    heavy = zlib.decompress(heavy) if header["packed"] and header["has_body"] else heavy
    part = sections(header["parts"], heavy) if header["has_body"] else {}
    return Received(header, sections(header["light_parts"], light), part)
