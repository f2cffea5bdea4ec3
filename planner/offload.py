"""Weights kept in host memory by `--cpu-offload-gb`: whole tensors in the order of the layers until the amount is reached.

The last one may overshoot. Read in models/utils.py (maybe_offload_to_cpu, 0.8 to 0.14) and model_executor/offloader/uva.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from planner.allocator import counted_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Offloaded:
    """What one card leaves to host memory: the tensors' bytes, and what the card's allocator would have counted."""

    tensor_bytes: int = 0
    counted_bytes: int = 0


NOTHING = Offloaded()


def offloaded(tensors: Iterable[int], asked_bytes: int) -> Offloaded:
    """The first of `tensors` (bytes of each, in vLLM's order) that together reach `asked_bytes`."""
    moved = counted = 0
    for num_bytes in tensors:
        if moved >= asked_bytes:
            break
        moved += num_bytes
        counted += counted_bytes(num_bytes)
    return Offloaded(tensor_bytes=moved, counted_bytes=counted)
