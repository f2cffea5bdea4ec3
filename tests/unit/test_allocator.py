from __future__ import annotations

import pytest

from planner.allocator import counted_bytes
from planner.units import MIB


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [
        (0, 512),  # even an empty tensor holds a block
        (1, 512),
        (513, 1024),
        (10 * MIB - 512, 10 * MIB - 512),  # under 10 MiB: blocks of a shared segment
        (10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB),  # a segment of 12 MiB, whose last 1 MiB is not over 1 MiB and stays
        (11 * MIB - 512, 11 * MIB - 512),  # 1 MiB and 512 bytes are split off
        (33 * MIB + 1, 34 * MIB),
    ],
)
def test_a_tensor_counts_as_the_cuda_allocator_counts_it(num_bytes: int, expected: int) -> None:
    assert counted_bytes(num_bytes) == expected
