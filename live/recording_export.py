"""A recording as CSV, by the standard library, and a CSV as a recording. The rows are `live.recording_rows`'."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from live.recording import Recording
from live.recording_rows import FIXED_COLUMNS, Row, rows, store_rows, utc
from live.recording_schema import LARGEST_DOCUMENT_BYTES, LARGEST_SERIES_COUNT, RecordingError
from live.store import About

_FORMULA_STARTS = "'=+-@\t\r"


def _plain(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in _FORMULA_STARTS and text else text


def write_csv(recording: Recording, output: TextIO) -> int:
    """The number of rows written."""
    names = recording.summary().series
    writer = csv.writer(output)
    writer.writerow([*FIXED_COLUMNS, *(_plain(name) for name in names)])
    nothing = [""] * len(names)
    num_rows = 0
    for row in rows(recording, names):
        numbers = ["" if number != number else repr(number) for number in row.numbers] or nothing  # noqa: PLR0124  NaN
        writer.writerow([row.time_ms, utc(row.time_ms), row.event, _plain(row.event_text), row.document, *numbers])
        num_rows += 1
    return num_rows


def csv_text(recording: Recording) -> str:
    """The whole recording as CSV text, such as a download needs."""
    output = io.StringIO(newline="")
    write_csv(recording, output)
    return output.getvalue()


def read_csv(text: TextIO, path: Path, about: About | None = None) -> Recording:
    """The recording at the new file `path`, made of a CSV that `write_csv` wrote; nothing in it is trusted.

    `about` None: source and interval are those that the CSV tells.
    """
    csv.field_size_limit(2 * LARGEST_DOCUMENT_BYTES)
    reader = csv.reader(text)
    try:
        head = next(reader, [])
        names = tuple(name.removeprefix("'") for name in head[len(FIXED_COLUMNS) :])
        check_columns(tuple(head[: len(FIXED_COLUMNS)]), names, "CSV")
        return store_rows(_parsed(reader, len(names)), names, path, about)
    except (csv.Error, UnicodeDecodeError) as error:
        raise RecordingError("damaged", f"The CSV cannot be read ({error}); export it again.") from None


def check_columns(fixed: tuple[str, ...], names: tuple[str, ...], kind: str) -> None:
    """Raise `RecordingError` unless these are the columns of a table that was made of a recording."""
    if fixed != FIXED_COLUMNS or len(set(names)) != len(names) or len(names) > LARGEST_SERIES_COUNT:
        text = (
            f"The {kind} does not begin with the columns {', '.join(FIXED_COLUMNS)}; export it from a recording again."
        )
        raise RecordingError("not_a_recording", text)


def _parsed(reader: Iterator[list[str]], num_series: int) -> Iterator[Row]:
    for line, cells in enumerate(reader, start=2):
        try:
            time_ms, _, event, event_text, document, *values = cells
            numbers = [float(value) if value else math.nan for value in values]
            row = Row(
                time_ms=int(time_ms),
                event=event,
                event_text=event_text.removeprefix("'"),
                document=document,
                numbers=() if event else numbers,
            )
        except ValueError:
            raise RecordingError("damaged", f"Line {line} of the CSV cannot be read; export it again.") from None
        if len(values) != num_series:
            raise RecordingError("damaged", f"Line {line} of the CSV has {len(values)} numbers, not {num_series}.")
        yield row
