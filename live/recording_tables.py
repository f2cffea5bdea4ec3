"""A recording to and from a table's file, CSV or Parquet by the file's ending."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from live.recording import Recording
from live.recording_export import csv_text, read_csv, write_csv

TableKind = Literal["csv", "parquet"]


def write_table(recording: Recording, path: Path) -> int:
    """The number of rows written to the new file `path`."""
    if path.suffix.lower() == ".parquet":
        from live.recording_parquet import write_parquet  # noqa: PLC0415  brings pyarrow, which only Parquet needs

        return write_parquet(recording, path)
    with path.open("w", encoding="utf-8", newline="") as text:
        return write_csv(recording, text)


def read_table(source: Path, path: Path) -> Recording:
    """The recording at the new file `path`, made of the table `source`; nothing in it is trusted."""
    if source.suffix.lower() == ".parquet":
        from live.recording_parquet import read_parquet  # noqa: PLC0415  brings pyarrow, which only Parquet needs

        return read_parquet(source, path)
    with source.open(encoding="utf-8", newline="") as text:
        return read_csv(text, path)


def table_bytes(recording: Recording, kind: TableKind) -> bytes:
    """The whole recording as a table's file, such as a download needs."""
    if kind == "csv":
        return csv_text(recording).encode()
    with tempfile.TemporaryDirectory(prefix="kvscope-export-") as folder:
        path = Path(folder) / "recording.parquet"
        write_table(recording, path)
        return path.read_bytes()


def copy_bytes(recording: Recording) -> bytes:
    """The whole recording as one .kvscope file, frames and all."""
    with tempfile.TemporaryDirectory(prefix="kvscope-export-") as folder:
        path = Path(folder) / "recording.kvscope"
        recording.save_copy(path)
        return path.read_bytes()
