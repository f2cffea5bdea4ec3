"""A recording as the rows of a table, and rows as a recording: what CSV and Parquet share.

A row is a tick, or the begin or end of a gap, or a mark; its columns are `time_ms`, `time_utc`, `event`, `event_text`,
`document` (the words, where they change) and one a series. Frames are not exported.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np

from live.recording import Gap, Recording
from live.recording_schema import CHUNK_TICKS, RecordingError
from live.sample_codec import decode
from live.store import About, Store

FIXED_COLUMNS = ("time_ms", "time_utc", "event", "event_text", "document")
_GAP, _GAP_END, _MARK = "gap:", "gap_end", "mark:"
_ROWS_AT_ONCE = 600
_PEEKED_ROWS = 300
_LATEST_MS = 2**50
LONGEST_IMPORT_SECONDS = 120.0  # a small file can unpack to rows for hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row; `numbers` stand in the order of the series, NaN where there is none, and are empty for an event."""

    time_ms: int
    event: str = ""
    event_text: str = ""
    document: str = ""
    numbers: Sequence[float] = ()


def utc(time_ms: int) -> str:
    """The moment as a table shows it."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def rows(recording: Recording, names: Sequence[str]) -> Iterator[Row]:
    """All rows in time's order; at one moment a gap stands before its tick, and marks after it."""
    marks = (Row(time_ms=mark.time_ms, event=_MARK + mark.kind, event_text=mark.text) for mark in recording.marks())
    sources: Iterable[Iterator[Row]] = (_gap_rows(recording), _tick_rows(recording, names), marks)
    return heapq.merge(*sources, key=lambda row: row.time_ms)


def _tick_rows(recording: Recording, names: Sequence[str]) -> Iterator[Row]:
    times = recording.times()
    changes = recording.document_times()
    said, place = "", -1
    for first in range(0, len(times), _ROWS_AT_ONCE):
        part = times[first : first + _ROWS_AT_ONCE]
        window = recording.window(names, int(part[0]), int(part[-1]) + 1)
        for time_ms, numbers in zip(window.time_ms.tolist(), window.numbers.T.tolist(), strict=True):
            document, now = "", bisect.bisect_right(changes, time_ms) - 1
            if now != place:
                place, whole = now, recording.document_at(time_ms)
                document, said = ("" if whole == said else whole), whole
            yield Row(time_ms=time_ms, numbers=numbers, document=document)


def _gap_rows(recording: Recording) -> Iterator[Row]:
    for gap in recording.gaps():
        yield Row(time_ms=gap.start_ms, event=_GAP + gap.state, event_text=gap.text)
        yield Row(time_ms=gap.end_ms, event=_GAP_END)


# -- and back -----------------------------------------------------------------------------------------------------------


def store_rows(
    found: Iterator[Row],
    names: Sequence[str],
    path: Path,
    about: About | None,
    clock: Callable[[], float] = time.monotonic,
) -> Recording:
    """The recording at the new file `path`, made of rows that came from elsewhere; nothing in them is trusted.

    `about` None: source and interval are those that the rows tell.
    """
    first = list(itertools.islice(found, _PEEKED_ROWS))
    store = Store.create(path, about or _told(first), infers_gaps=False)
    try:
        _Importer(store, names).take(_in_time(itertools.chain(first, found), clock))
    except BaseException:
        store.close()
        path.unlink(missing_ok=True)
        raise
    store.close()
    return Recording.open(path)


def _in_time(found: Iterable[Row], clock: Callable[[], float]) -> Iterator[Row]:
    """The rows, as long as they come within the time that an import may take."""
    end = clock() + LONGEST_IMPORT_SECONDS
    for row in found:
        if clock() > end:
            text = (
                f"The table takes more than {LONGEST_IMPORT_SECONDS:.0f} s to read; export a shorter time, or open the "
                ".kvscope file itself."
            )
            raise RecordingError("too_large", text)
        yield row


def _told(first: Sequence[Row]) -> About:
    """What the first rows tell of their recording: whose words they hold, and how far apart its ticks are."""
    ticks = [row for row in first if not row.event]
    steps = [later.time_ms - earlier.time_ms for earlier, later in itertools.pairwise(ticks)]
    interval_ms = min(max(100, round(median(steps) / 100) * 100), 3_600_000) if steps else 1000
    document = next((row.document for row in ticks if row.document), "")
    source = decode(ticks[0].time_ms, {}, document).source if document else "a table"
    return About(source=source[:2000], interval_ms=interval_ms)


class _Importer:
    """Puts rows into a store, ticks many at a time, gaps with the begin and end they had."""

    def __init__(self, store: Store, names: Sequence[str]) -> None:
        self._store = store
        self._names = tuple(names)
        self._document = ""
        self._open: Gap | None = None
        self._ticks: list[Row] = []  # those with the words of `_document` that are not in the store yet

    def take(self, found: Iterable[Row]) -> None:
        for row in found:
            if not 0 < row.time_ms < _LATEST_MS:
                raise RecordingError("damaged", f"A row of the table stands at {row.time_ms} ms, which is no time.")
            self._take(row)
        self._flush()
        self._close(None)

    def _take(self, row: Row) -> None:
        if row.event.startswith(_MARK):
            self._store.mark(row.time_ms, row.event.removeprefix(_MARK), row.event_text)
        elif row.event.startswith(_GAP):
            self._close(row.time_ms)
            state = row.event.removeprefix(_GAP)
            self._open = Gap(start_ms=row.time_ms, end_ms=row.time_ms, state=state, text=row.event_text)
        elif row.event == _GAP_END:
            self._close(row.time_ms)
        elif row.event:
            text = f"A row of the table has the event {row.event[:40]!r}, which is none; export it again."
            raise RecordingError("damaged", text)
        else:
            self._tick(row)

    def _tick(self, row: Row) -> None:
        if row.document and row.document != self._document:
            decode(row.time_ms, {}, row.document)
            self._flush()
            self._document = row.document
        self._ticks.append(row)
        if len(self._ticks) >= CHUNK_TICKS:
            self._flush()

    def _flush(self) -> None:
        ticks, self._ticks = self._ticks, []
        if ticks:
            times = np.array([row.time_ms for row in ticks], np.int64)
            numbers = np.array([row.numbers for row in ticks], np.float64).reshape(len(ticks), len(self._names))
            self._store.append_span(times, self._names, np.ascontiguousarray(numbers.T), self._document)

    def _close(self, end_ms: int | None) -> None:
        gap, self._open = self._open, None
        if gap is not None:
            end_ms = max(gap.start_ms, self._store.last_ms or 0) if end_ms is None else end_ms
            self._store.keep_gap(gap.start_ms, end_ms, gap.state, gap.text)
