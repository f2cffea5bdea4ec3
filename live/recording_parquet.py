"""A recording as Parquet and back, through pyarrow, which comes with the app; imported only where Parquet is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types

from live.recording import Recording
from live.recording_export import check_columns
from live.recording_rows import FIXED_COLUMNS, Row, rows, store_rows, utc
from live.recording_schema import LARGEST_DOCUMENT_BYTES, LARGEST_SERIES_COUNT, RecordingError
from live.store import About
from planner.units import GIB

_ROWS_AT_ONCE = 3000
_MOST_ROWS = 20 * 10**6
_LARGEST_UNPACKED_BYTES = 8 * GIB  # as the file itself claims; more is no recording but a trap
_THRIFT_BYTES = 64 * 10**6
_TEXTS = ("event", "event_text", "document")


def write_parquet(recording: Recording, path: Path) -> int:
    """The number of rows written to `path`."""
    names = recording.summary().series
    schema = _schema(names)
    found = rows(recording, names)
    num_rows = 0
    with pq.ParquetWriter(path, schema) as writer:
        while part := list(islice(found, _ROWS_AT_ONCE)):
            writer.write_table(pa.Table.from_arrays(_columns(part, len(names)), schema=schema))
            num_rows += len(part)
    return num_rows


def _schema(names: Sequence[str]) -> Any:  # a pyarrow.Schema

    fixed = [(name, pa.int64() if name == "time_ms" else pa.string()) for name in FIXED_COLUMNS]
    return pa.schema([*fixed, *((name, pa.float64()) for name in names)])


def _columns(part: Sequence[Row], num_series: int) -> list[Any]:
    """The columns of some rows, as pyarrow takes them."""
    nothing = [math.nan] * num_series
    numbers = np.array([row.numbers or nothing for row in part], np.float64).reshape(len(part), num_series)
    return [
        np.array([row.time_ms for row in part], np.int64),
        [utc(row.time_ms) for row in part],
        [row.event for row in part],
        [row.event_text for row in part],
        [row.document for row in part],
        *numbers.T,
    ]


def read_parquet(source: Path, path: Path, about: About | None = None) -> Recording:
    """The recording at the new file `path`, made of the Parquet file `source` that `write_parquet` wrote.

    Nothing in it is trusted; `about` None: source and interval are those that the table tells.
    """
    try:
        with pq.ParquetFile(
            source,
            read_dictionary=list(_TEXTS),
            thrift_string_size_limit=_THRIFT_BYTES,
            thrift_container_size_limit=_THRIFT_BYTES,
        ) as file:
            names = _checked_names(file)
            return store_rows(_parsed(file, len(names)), names, path, about)
    except KeyError:  # it has no such text column
        text = f"The Parquet file lacks the columns {', '.join(_TEXTS)}; export it from a recording again."
        raise RecordingError("not_a_recording", text) from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        first_line = str(error).partition("\n")[0][:200]
        text = f"The Parquet file cannot be read ({first_line}); export it again."
        raise RecordingError("damaged", text) from None


def _checked_names(file: Any) -> tuple[str, ...]:  # a pyarrow.parquet.ParquetFile
    """The series' names; raises `RecordingError` for a table that no recording makes."""
    facts = file.metadata
    if facts.num_columns > LARGEST_SERIES_COUNT + len(FIXED_COLUMNS) or facts.num_rows > _MOST_ROWS:
        text = f"The Parquet file has {facts.num_rows:,} rows of {facts.num_columns:,} columns, more than is read here."
        raise RecordingError("too_large", text)
    unpacked_bytes = sum(facts.row_group(place).total_byte_size for place in range(facts.num_row_groups))
    if unpacked_bytes > _LARGEST_UNPACKED_BYTES:
        text = f"The Parquet file unpacks to {unpacked_bytes / GIB:,.1f} GiB, more than the {_LARGEST_UNPACKED_BYTES // GIB} GiB read."
        raise RecordingError("too_large", text)
    schema = file.schema_arrow
    names = tuple(schema.names[len(FIXED_COLUMNS) :])
    check_columns(tuple(schema.names[: len(FIXED_COLUMNS)]), names, "Parquet file")
    kinds = pa.types
    are_numbers = all(kinds.is_float64(schema.field(name).type) for name in names)
    if not (kinds.is_int64(schema.field("time_ms").type) and are_numbers and _are_texts(schema)):
        raise RecordingError("not_a_recording", "The Parquet file's columns have other types than a recording's.")
    return names


def _are_texts(schema: Any) -> bool:  # a pyarrow.Schema

    types = [schema.field(name).type for name in _TEXTS]
    plain = [each.value_type if pa.types.is_dictionary(each) else each for each in types]
    return all(pa.types.is_string(each) or pa.types.is_large_string(each) for each in plain)


def _parsed(file: Any, num_series: int) -> Iterator[Row]:  # a pyarrow.parquet.ParquetFile
    for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
        times = batch.column(0).to_pylist()
        texts = [_texts(batch.column(FIXED_COLUMNS.index(name))) for name in _TEXTS]
        offset = len(FIXED_COLUMNS)
        columns = [batch.column(offset + place).to_numpy(zero_copy_only=False) for place in range(num_series)]
        numbers = np.array(columns, np.float64).reshape(num_series, len(times)).T.tolist()
        for time_ms, event, event_text, document, values in zip(times, *texts, numbers, strict=True):
            if time_ms is None:
                raise RecordingError("damaged", "A row of the Parquet file has no time; export it again.")
            yield Row(
                time_ms=time_ms, event=event, event_text=event_text, document=document, numbers=() if event else values
            )


def _texts(column: Any) -> list[str]:  # a pyarrow.DictionaryArray of few texts, or a StringArray
    """The texts of a column; each distinct one is unpacked once."""
    if not hasattr(column, "dictionary"):
        column = column.dictionary_encode()
    sizes = [len(each.as_buffer()) if each.is_valid else 0 for each in column.dictionary]
    if max(sizes, default=0) > 2 * LARGEST_DOCUMENT_BYTES:
        raise RecordingError("too_much_text", "A text of the Parquet file is longer than a recording can hold.")
    distinct = [text or "" for text in column.dictionary.to_pylist()]
    return ["" if place is None else distinct[place] for place in column.indices.to_pylist()]
