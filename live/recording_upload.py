"""An uploaded recording: at most so many bytes, checked as a file from elsewhere, and gone from the disk when it is closed."""

from __future__ import annotations

import io
import re
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from live.recording import Recording
from live.recording_schema import LARGEST_UPLOAD_BYTES, RecordingError, check_size
from live.recording_tables import read_table
from planner.units import MIB

_PIECE_BYTES = MIB


def open_upload(content: BinaryIO, file_name: str, largest_bytes: int = LARGEST_UPLOAD_BYTES) -> Recording:
    """The recording in `content`, a recording's file, or a CSV or Parquet file made of one; raises `RecordingError` with one sentence.

    Its file has no name any more where the system allows that, so that nothing stays behind.
    """
    folder = Path(tempfile.mkdtemp(prefix="kvscope-upload-"))
    try:
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(file_name).name).lstrip(".")[-80:] or "upload"
        path = folder / name
        _write(content, path, file_name, largest_bytes)
        check_size(path, largest_bytes)
        if path.suffix.lower() not in {".csv", ".parquet"}:
            return Recording.open_untrusted(path, largest_bytes)
        return read_table(path, path.with_suffix(".kvscope"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(content: BinaryIO, path: Path, shown: str, largest_bytes: int) -> None:
    written = 0
    with path.open("wb") as file:
        while piece := content.read(_PIECE_BYTES):
            written += len(piece)
            if written > largest_bytes:
                text = f"{shown[:80]} is larger than the {largest_bytes / MIB:,.0f} MiB allowed; record a shorter time."
                raise RecordingError("too_large", text)
            file.write(piece)


def open_bytes(content: bytes, file_name: str) -> Recording:
    """As `open_upload`, of bytes at hand."""
    return open_upload(io.BytesIO(content), file_name)
