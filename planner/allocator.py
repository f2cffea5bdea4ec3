"""How the CUDA caching allocator counts a tensor: what "Model loading took" sums is blocks, not tensors.

The rule is that of PyTorch's c10/cuda/CUDACachingAllocator (the same from 1.13 to 2.13, default settings): a block is a
multiple of 512 bytes; requests of 10 MiB and more get a segment of their own in steps of 2 MiB, and what is left over of a
segment is split off, so not counted, only when it is more than 1 MiB.
"""

from __future__ import annotations

from planner.units import MIB, round_up

BLOCK_BYTES = 512
OWN_SEGMENT_BYTES = 10 * MIB
SEGMENT_STEP_BYTES = 2 * MIB
SMALLEST_REST_BYTES = 1 * MIB


def counted_bytes(num_bytes: int) -> int:
    """The bytes that torch.cuda.memory_allocated grows by for one tensor placed in a fresh segment."""
    block_bytes = max(BLOCK_BYTES, round_up(num_bytes, BLOCK_BYTES))
    if block_bytes < OWN_SEGMENT_BYTES:
        return block_bytes
    segment_bytes = round_up(block_bytes, SEGMENT_STEP_BYTES)
    return block_bytes if segment_bytes - block_bytes > SMALLEST_REST_BYTES else segment_bytes
