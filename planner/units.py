"""Units and integer arithmetic. Inside the project a quantity is an integer of bytes or tokens."""

from __future__ import annotations

KIB = 2**10
MIB = 2**20
GIB = 2**30


def div_ceil(dividend: int, divisor: int) -> int:
    """The smallest integer that is not less than `dividend / divisor`."""
    return -(-dividend // divisor)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not less than `value`."""
    return -(-value // multiple) * multiple
