"""The file format of a recording: its tables, version and limits, and the check that a file from elsewhere keeps to them.

A recording is one SQLite file. `tick` holds the newest samples, one row each; every `CHUNK_TICKS` of them are folded into one
`span` with one compressed `chunk` a series. Numbers are little-endian 8-byte reals, NaN where nothing was exported; times are
integer milliseconds since 1970. `document` holds a sample's words wherever they changed, compressed
against the earlier ones of `base_ms`. `frame` holds payloads that are no
numbers: block tables of the probe, batches of KV events.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from planner.units import GIB, MIB

APPLICATION_ID = 0x4B565343  # "KVSC", stands in the file's header
SCHEMA_VERSION = 1
CHUNK_TICKS = 300
LARGEST_CHUNK_TICKS = 4096  # a chunk of an uploaded file is never unpacked beyond this
LARGEST_SERIES_COUNT = 16_384
LARGEST_WINDOW_NUMBERS = 64 * 10**6  # of one reading: 512 MB; a day at 1 Hz of 700 series
LARGEST_DOCUMENT_BYTES = 4 * MIB
LARGEST_FRAME_BYTES = 8 * MIB
LARGEST_UPLOAD_BYTES = GIB
CHECK_SECONDS = 10.0  # the longest an uploaded file is examined

_TABLES = (
    "CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE series (series_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    "CREATE TABLE tick (time_ms INTEGER PRIMARY KEY, numbers BLOB NOT NULL)",
    (
        "CREATE TABLE span (start_ms INTEGER PRIMARY KEY, end_ms INTEGER NOT NULL, num_ticks INTEGER NOT NULL, "
        "times BLOB NOT NULL)"
    ),
    (
        "CREATE TABLE chunk (series_id INTEGER NOT NULL, start_ms INTEGER NOT NULL, numbers BLOB NOT NULL, "
        "PRIMARY KEY (series_id, start_ms)) WITHOUT ROWID"
    ),
    "CREATE TABLE document (time_ms INTEGER PRIMARY KEY, base_ms INTEGER, content BLOB NOT NULL)",
    "CREATE TABLE gap (start_ms INTEGER PRIMARY KEY, end_ms INTEGER NOT NULL, state TEXT NOT NULL, text TEXT NOT NULL)",
    "CREATE TABLE mark (mark_id INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL)",
    (
        "CREATE TABLE frame (frame_id INTEGER PRIMARY KEY, kind TEXT NOT NULL, time_ms INTEGER NOT NULL, "
        "payload BLOB NOT NULL)"
    ),
    "CREATE INDEX frame_by_time ON frame (kind, time_ms)",
)

RecordingFault = Literal[
    "absent",
    "too_large",
    "not_a_recording",
    "newer_version",
    "damaged",
    "in_use",
    "exists",
    "too_many_series",
    "too_much_text",
    "wrong_time",
    "disk",
]


class RecordingError(Exception):
    """A recording cannot be read or written: `kind` names the fault, the text is one sentence with the remedy."""

    def __init__(self, kind: RecordingFault, text: str) -> None:
        super().__init__(text)
        self.kind: RecordingFault = kind
        self.text = text


def create_tables(connection: sqlite3.Connection) -> None:
    """Make an empty database a recording; it is one only when all of it is there."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def check_format(connection: sqlite3.Connection, name: str) -> None:
    """Raise `RecordingError` unless the database is a recording of a version that is known here."""
    try:
        application_id, version = _number(connection, "application_id"), _number(connection, "user_version")
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        text = f"{name} is no recording of KVScope (not a SQLite file, or a damaged one); choose another file."
        raise RecordingError("not_a_recording", text) from None
    if application_id != APPLICATION_ID:
        text = f"{name} is a SQLite file, but no recording of KVScope; choose another file."
        raise RecordingError("not_a_recording", text)
    if version > SCHEMA_VERSION:
        text = f"{name} has format {version}, newer than format {SCHEMA_VERSION} that is read here; update KVScope."
        raise RecordingError("newer_version", text)
    if version < 1 or {row[0] for row in rows} != set(_TABLES):
        text = f"{name} says that it is a recording, but its tables are not those of format {SCHEMA_VERSION}."
        raise RecordingError("damaged", text)


def harden(connection: sqlite3.Connection, deadline: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Let an untrusted database do nothing by itself, nor hold us beyond `deadline` (of `clock`)."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * LARGEST_FRAME_BYTES)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")
    connection.set_progress_handler(lambda: int(clock() > deadline), 1000)


def check_size(path: Path, largest_bytes: int = LARGEST_UPLOAD_BYTES) -> None:
    """Raise `RecordingError` unless `path` is a file of at most `largest_bytes`."""
    try:
        size_bytes = path.stat().st_size
    except OSError:
        raise RecordingError("absent", f"{path.name} does not exist or may not be read; check its path.") from None
    if not path.is_file():
        raise RecordingError("not_a_recording", f"{path.name} is a folder, not a recording; choose a file.")
    if not size_bytes:
        raise RecordingError("not_a_recording", f"{path.name} is empty (0 bytes); choose another file.")
    if size_bytes > largest_bytes:
        text = f"{path.name} has {size_bytes / MIB:,.0f} MiB, more than the {largest_bytes / MIB:,.0f} MiB allowed; cut it."
        raise RecordingError("too_large", text)


def check_integrity(connection: sqlite3.Connection, name: str) -> None:
    """Raise `RecordingError` unless SQLite finds the file whole."""
    try:
        answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            text = f"{name} takes more than {CHECK_SECONDS:.0f} s to check; record a shorter time."
            raise RecordingError("too_large", text) from None
        raise RecordingError("damaged", f"{name} is damaged ({error}); take an earlier copy.") from None
    except sqlite3.DatabaseError as error:
        raise RecordingError("damaged", f"{name} is damaged ({error}); take an earlier copy.") from None
    if answer != "ok":
        raise RecordingError(
            "damaged", f"{name} is damaged ({' '.join(str(answer).split())[:120]}); take an earlier copy."
        )
