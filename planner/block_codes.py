"""A block's state at one step as one number, and a whole pool's states as one byte a block for drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Codes = NDArray[np.uint32]

# the low three bits of a code and of a drawn byte
FREE, CACHED_FREE, ACTIVE, SHARED, NULL = range(5)
STATE_NAMES = ("free", "cached-free", "active", "shared", "null")
NUM_COLOURS = 31  # the high five bits of a drawn byte: 0 for nobody, else 1 to 31
_GROUP_SHIFT, _OWNER_SHIFT = 3, 8
MAX_GROUPS = 1 << (_OWNER_SHIFT - _GROUP_SHIFT)

ColourBy = Literal["request", "group", "state"]


def encode(state: int, group: int, owner: int | None) -> int:
    """The code of a block: its state, the KV group it serves and who holds it (or held it last)."""
    return state | group << _GROUP_SHIFT | (0 if owner is None else owner + 1) << _OWNER_SHIFT


def decode(code: int) -> tuple[int, int, int | None]:
    """State, group and owner of a code."""
    owner = code >> _OWNER_SHIFT
    return code & 7, code >> _GROUP_SHIFT & (MAX_GROUPS - 1), owner - 1 if owner else None


def to_bytes(codes: Codes, colour_by: ColourBy) -> bytes:
    """One byte a block: the state in the low three bits, a colour from 0 to 31 above them."""
    import numpy as np  # noqa: PLC0415 - the command line must start without it

    states = codes & 7
    if colour_by == "state":
        return states.astype(np.uint8).tobytes()
    if colour_by == "group":
        colours = (codes >> _GROUP_SHIFT & (MAX_GROUPS - 1)) % NUM_COLOURS + 1
    else:
        owners = codes >> _OWNER_SHIFT
        colours = np.where(owners > 0, (owners - 1) % NUM_COLOURS + 1, 0)
    in_use = (states == ACTIVE) | (states == SHARED) | (states == CACHED_FREE)
    result: bytes = (states | np.where(in_use, colours, 0) << 3).astype(np.uint8).tobytes()
    return result
