"""What a counter has added lately, sample by sample: through restarts, and through times in which it was not exported."""

from __future__ import annotations

import math
from collections import deque

_LONGEST_MS = 120_000
_MOST_POINTS = 2_000


class Growth:
    """A counter's increases of the last two minutes. A fall is a restart, after which it counts from 0."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, float]] = deque(maxlen=_MOST_POINTS)  # time and increase since it was first seen
        self._value: float | None = None  # None: not exported when it was looked at last
        self._looked_ms: int | None = None
        self._has_been_exported = False

    def take(self, time_ms: int, value: float | None) -> None:
        """Note the counter's value at `time_ms`, later than any before; None where it is not exported."""
        if value is not None and not math.isfinite(value):
            return
        if self._looked_ms is not None and time_ms - self._looked_ms > _LONGEST_MS:
            self._points.clear()  # when it grew is not known
        if value is not None:
            self._add(time_ms, value)
        else:
            self._points.clear()
        self._value, self._looked_ms = value, time_ms
        self._has_been_exported |= value is not None

    def _add(self, time_ms: int, value: float) -> None:
        if self._points:
            before = self._value or 0.0
            grown = value - before if value >= before else value
            self._points.append((time_ms, self._points[-1][1] + grown))
        elif (
            not self._has_been_exported and self._looked_ms is not None
        ):  # it appeared while we looked: it has begun at 0
            self._points.extend([(self._looked_ms, 0.0), (time_ms, value)])
        else:
            self._points.append((time_ms, 0.0))
        while len(self._points) > 2 and self._points[1][0] <= time_ms - _LONGEST_MS:
            self._points.popleft()

    def added(self, since_ms: int) -> float | None:
        """What it added after `since_ms`, or since it was first seen; None before a second look."""
        if len(self._points) < 2 or self._value is None:
            return None
        base = self._points[0][1]
        for time_ms, grown in self._points:
            if time_ms > since_ms:
                break
            base = grown
        return self._points[-1][1] - base
