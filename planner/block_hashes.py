"""The identity of a block's content: equal numbers mean equal tokens from the start of the sequence on.

vLLM chains SHA-256 digests; here each different (previous block, content) pair gets the next free number instead.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """`num_tokens` tokens of one named content; two requests with the same key start with the same tokens."""

    key: Hashable
    num_tokens: int


class HashChain:
    """Numbers for block contents, shared by every sequence of one simulation."""

    __slots__ = ("_numbers", "_unshared")

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Hashable], int] = {}
        self._unshared = 0

    def number(self, previous: int, content: Hashable) -> int:
        """The number of a block with `content` that follows block number `previous` (0: the first block)."""
        key = (previous, content)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = 2 * len(self._numbers) + 2  # even: 0 is left for "no hash"
        return found

    def unshared(self) -> int:
        """A number that no other block will ever have, for content that nobody else can hold."""
        self._unshared += 1
        return 2 * self._unshared - 1  # odd


class TokenContent:
    """The content of a sequence whose tokens are known; past the last known one they are its own alone."""

    __slots__ = ("_tokens",)

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tuple(tokens)

    def between(self, start: int, end: int) -> Hashable | None:
        """What stands in tokens `[start, end)`; None when part of it is nobody else's."""
        return None if end > len(self._tokens) else self._tokens[start:end]


class PieceContent:
    """The content of a sequence known by its pieces; past the last piece the tokens are its own alone."""

    __slots__ = ("_bounds", "_keys", "_last", "num_shared_tokens")

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._keys = [piece.key for piece in pieces]
        self._bounds = [0]
        for piece in pieces:
            self._bounds.append(self._bounds[-1] + piece.num_tokens)
        self._last = 0
        self.num_shared_tokens = self._bounds[-1]

    def between(self, start: int, end: int) -> Hashable | None:
        """What stands in tokens `[start, end)`; None when part of it is nobody else's."""
        if end > self.num_shared_tokens:
            return None
        bounds = self._bounds
        index = self._last if bounds[self._last] <= start else 0
        while bounds[index + 1] <= start:
            index += 1
        self._last = index
        parts = []
        while index < len(self._keys) and bounds[index] < end:
            low, high = max(start, bounds[index]), min(end, bounds[index + 1])
            parts.append((self._keys[index], low - bounds[index], high - bounds[index]))
            index += 1
        return tuple(parts)
