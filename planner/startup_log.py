"""A vLLM start-up log, whole or pasted, as frozen facts: the terms that no metric exposes, per rank where the ranks differ.

Lines of all eras are known (V0's "GB" are GiB). A printed figure was rounded, so bytes are an interval. Where a log holds
several starts, the last one counts; `read_starts` gives all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.startup_command import CommandWatch
from planner.startup_facts import FailedStart, LogLine, RankMemory, ReleaseReading, StartOutcome, StartupLog
from planner.startup_lines import Repeats, records
from planner.startup_start import Start
from planner.startup_summary import Whole, finish
from planner.startup_wraps import unwrapped

__all__ = [
    "FailedStart",
    "LogLine",
    "RankMemory",
    "ReleaseReading",
    "StartOutcome",
    "StartupLog",
    "read_lines",
    "read_starts",
    "read_startup_log",
]

LARGEST_LOG_BYTES = 50 * 1000 * 1000
_MOST_STARTS = 200


def read_startup_log(text: str) -> StartupLog:
    """The facts of the last start that `text` holds; never raises, and what is not said is None."""
    return read_starts(text)[-1]


def read_starts(text: str) -> tuple[StartupLog, ...]:
    """The facts of each start that `text` holds, oldest first; one of nothing where it holds none."""
    is_cut = len(text) > LARGEST_LOG_BYTES
    return read_lines(unwrapped(text[:LARGEST_LOG_BYTES]), is_cut=is_cut)


def read_lines(lines: Iterable[str], *, is_cut: bool = False) -> tuple[StartupLog, ...]:
    """The facts of each start in the lines of a log; `is_cut` when they are not all that the log has."""
    watch = CommandWatch()
    starts = deque(_starts(watch.watch(lines)), maxlen=_MOST_STARTS)
    environment = next((start.environment_version for start in starts if start.environment_version), None)
    whole = Whole(num_starts=len(starts), environment=environment, is_cut=is_cut)
    return tuple(
        finish(start, number, whole, watch.above(start.first_number)) for number, start in enumerate(starts, start=1)
    )


def _starts(lines: Iterable[str]) -> Iterator[Start]:
    start, repeats = Start(), Repeats()
    for record in records(lines, repeats=repeats):
        following = start.take(record)
        if following is not None:
            yield replace(start, num_left_out=repeats.num_left_out)
            repeats.forget()
            start = following
    yield replace(start, num_left_out=repeats.num_left_out)
