"""Long series as few points for drawing: the least and the greatest of each bucket of fixed width, so that no peak is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from live.chunks import Numbers, Times
from live.recording import Gap, Window

# Farther apart than so many intervals and a poll that took its longest, two ticks are not joined by a line: the recorder
# names a gap from there on (`live.store`).
_HOLE_INTERVALS = 2.5
_LONGEST_POLL_MS = 2500


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Points to draw: `numbers[i, p]` of series `names[i]` at `time_ms[p]`; NaN breaks the line. `gaps` are the named ones.

    `step_ms` is the distance between points where they are regular (drawn by x0 and dx), else None.
    """

    time_ms: Numbers
    names: tuple[str, ...]
    numbers: Numbers
    gaps: tuple[Gap, ...]
    step_ms: float | None

    def series(self, name: str) -> Numbers:
        """The points of one series; all NaN where there is none."""
        if name not in self.names:
            return np.full(len(self.time_ms), np.nan)
        points: Numbers = self.numbers[self.names.index(name)]
        return points


def drawn(window: Window, interval_ms: int, max_points: int = 2000) -> Drawn:
    """The window's ticks themselves where they are at most `max_points`, else the least and greatest of buckets."""
    if len(window.time_ms) <= max_points:
        return _with_breaks(window, interval_ms)
    first, last = int(window.time_ms[0]), int(window.time_ms[-1])
    # one bucket more than fits may be touched, for buckets begin at multiples of their width: a moving window stands still
    width_ms = max(2 * interval_ms, -(-(last - first + 1) // max(1, max_points // 2 - 1)))
    start_ms = first // width_ms * width_ms
    num_buckets = (last - start_ms) // width_ms + 1
    points = min_max(window.time_ms, window.numbers, start_ms, width_ms, num_buckets)
    time_ms = start_ms + width_ms * (np.arange(2 * num_buckets) / 2 + 0.25)
    return Drawn(time_ms=time_ms, names=window.names, numbers=points, gaps=window.gaps, step_ms=width_ms / 2)


def min_max(time_ms: Times, numbers: Numbers, start_ms: int, width_ms: int, num_buckets: int) -> Numbers:
    """Two points a bucket `[start + i x width, ... + width)`: its extremes, the lower first where it rises; NaN where it is empty.

    Numbers are [series, tick]; NaN ticks count as absent. Ticks outside the buckets are left out.
    """
    points = np.full((len(numbers), 2 * num_buckets), np.nan)
    inside = slice(*np.searchsorted(time_ms, (start_ms, start_ms + width_ms * num_buckets)))
    bucket = (time_ms[inside] - start_ms) // width_ms
    if not bucket.size:
        return points
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    ends = np.append(starts[1:], bucket.size) - 1
    part = numbers[:, inside]
    low, high = np.fmin.reduceat(part, starts, axis=1), np.fmax.reduceat(part, starts, axis=1)
    falls = part[:, ends] < part[:, starts]
    filled = bucket[starts]
    points[:, 2 * filled] = np.where(falls, high, low)
    points[:, 2 * filled + 1] = np.where(falls, low, high)
    return points


def _with_breaks(window: Window, interval_ms: int) -> Drawn:
    holes = np.flatnonzero(np.diff(window.time_ms) > _HOLE_INTERVALS * interval_ms + _LONGEST_POLL_MS) + 1
    in_gap = np.searchsorted(window.time_ms, _starts(window.gaps))
    places = np.union1d(holes, in_gap[(in_gap > 0) & (in_gap < len(window.time_ms))]).astype(np.int64)
    middles = (window.time_ms[places - 1] + window.time_ms[places]) / 2
    return Drawn(
        time_ms=np.insert(window.time_ms.astype(np.float64), places, middles),
        names=window.names,
        numbers=np.insert(window.numbers, places, np.nan, axis=1),
        gaps=window.gaps,
        step_ms=None,
    )


def _starts(gaps: Sequence[Gap]) -> Times:
    return np.array([gap.start_ms for gap in gaps], np.int64)
