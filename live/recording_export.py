"""A recording as a table: CSV by the standard library, Parquet through pandas where it is asked for, and back into a recording.

A row is a tick, or the begin or end of a gap, or a mark; its columns are `time_ms`, `time_utc`, `event`, `event_text`,
`document` (the words, where they change) and one a series. Frames are not exported.
"""

from __future__ import annotations

import csv
import heapq
import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from live.recording import Recording
from live.recording_schema import LARGEST_DOCUMENT_BYTES, LARGEST_SERIES_COUNT, RecordingError
from live.sample_codec import decode
from live.store import About, Store

_FIXED = ("time_ms", "time_utc", "event", "event_text", "document")
_GAP, _GAP_END, _MARK = "gap:", "gap_end", "mark:"
_FORMULA_STARTS = "'=+-@\t\r"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    time_ms: int
    event: str = ""
    event_text: str = ""
    document: str = ""
    numbers: dict[str, float] = field(default_factory=dict)


def _tick_rows(recording: Recording) -> Iterator[_Row]:
    document = ""
    for tick in recording.ticks():
        changed = tick.document if tick.document != document else ""
        document = tick.document
        yield _Row(time_ms=tick.time_ms, numbers=tick.numbers, document=changed)


def _event_rows(recording: Recording) -> Iterator[_Row]:
    for gap in recording.gaps():
        yield _Row(time_ms=gap.start_ms, event=_GAP + gap.state, event_text=gap.text)
        yield _Row(time_ms=gap.end_ms, event=_GAP_END)


def _rows(recording: Recording) -> Iterator[_Row]:
    marks = (_Row(time_ms=mark.time_ms, event=_MARK + mark.kind, event_text=mark.text) for mark in recording.marks())
    sources: Iterable[Iterator[_Row]] = (_event_rows(recording), _tick_rows(recording), marks)
    return heapq.merge(*sources, key=lambda row: row.time_ms)


def _utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _plain(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in _FORMULA_STARTS and text else text


def write_csv(recording: Recording, output: TextIO) -> int:
    """The number of rows written."""
    names = recording.summary().series
    writer = csv.writer(output)
    writer.writerow([*_FIXED, *(_plain(name) for name in names)])
    num_rows = 0
    for row in _rows(recording):
        numbers = (repr(row.numbers[name]) if name in row.numbers else "" for name in names)
        writer.writerow([row.time_ms, _utc(row.time_ms), row.event, _plain(row.event_text), row.document, *numbers])
        num_rows += 1
    return num_rows


def write_parquet(recording: Recording, path: Path) -> int:
    """The number of rows written; needs pandas with pyarrow, which the app has."""
    import pandas  # noqa: ICN001, PLC0415  a second of imports, only for who asks for Parquet

    names = recording.summary().series
    rows = list(_rows(recording))
    columns: dict[str, object] = {
        "time_ms": [row.time_ms for row in rows],
        "time_utc": [_utc(row.time_ms) for row in rows],
        "event": [row.event for row in rows],
        "event_text": [row.event_text for row in rows],
        "document": [row.document for row in rows],
    }
    columns |= {name: [row.numbers.get(name, math.nan) for row in rows] for name in names}
    pandas.DataFrame(columns).to_parquet(path, index=False)
    return len(rows)


def read_csv(text: TextIO, path: Path, about: About) -> Recording:
    """The recording at the new file `path`, made of a CSV that `write_csv` wrote; nothing in it is trusted."""
    csv.field_size_limit(2 * LARGEST_DOCUMENT_BYTES)
    reader = csv.reader(text)
    try:
        head = next(reader, [])
        names = tuple(name.removeprefix("'") for name in head[len(_FIXED) :])
        if tuple(head[: len(_FIXED)]) != _FIXED or len(set(names)) != len(names) or len(names) > LARGEST_SERIES_COUNT:
            text_ = f"The CSV does not begin with the columns {', '.join(_FIXED)}; export it from a recording again."
            raise RecordingError("not_a_recording", text_)
        rows = (_parsed(cells, names, number) for number, cells in enumerate(reader, start=2))
        _store(rows, path, about)
    except (csv.Error, UnicodeDecodeError) as error:
        raise RecordingError("damaged", f"The CSV cannot be read ({error}); export it again.") from None
    return Recording.open(path)


def _parsed(cells: list[str], names: tuple[str, ...], number: int) -> _Row:
    try:
        time_ms, _, event, event_text, document, *values = cells
        pairs = zip(names, values, strict=True)
        numbers = {name: float(value) for name, value in pairs if value}
        row = _Row(
            time_ms=int(time_ms),
            event=event,
            event_text=event_text.removeprefix("'"),
            document=document,
            numbers=numbers,
        )
    except ValueError:
        raise RecordingError("damaged", f"Line {number} of the CSV cannot be read; export it again.") from None
    if row.document:
        decode(row.time_ms, {}, row.document)
    return row


def _store(rows: Iterator[_Row], path: Path, about: About) -> None:
    store, document = Store.create(path, about), ""
    try:
        for row in rows:
            document = row.document or document
            if row.event.startswith(_MARK):
                store.mark(row.time_ms, row.event.removeprefix(_MARK), row.event_text)
            elif row.event.startswith(_GAP):
                store.append_gap(row.time_ms, row.event.removeprefix(_GAP), row.event_text)
            elif row.event != _GAP_END:
                store.append(row.time_ms, row.numbers, document)
    except BaseException:
        store.close()
        path.unlink(missing_ok=True)
        raise
    store.close()


def csv_text(recording: Recording) -> str:
    """The whole recording as CSV text, such as a download needs."""
    output = io.StringIO(newline="")
    write_csv(recording, output)
    return output.getvalue()
