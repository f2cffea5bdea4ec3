"""Reads the words of a recording: the one in force at a time, unpacked against the earlier one that it was stored against."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from live.chunks import decode_document

_FOREVER_MS = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """The words in force, and the whole ones (`base_ms`, `base`) that they are stored against: themselves, or earlier ones."""

    text: str
    base_ms: int
    base: str


def latest_document(connection: sqlite3.Connection, time_ms: int = _FOREVER_MS) -> StoredDocument | None:
    """The words that held at `time_ms`; None before the first."""
    statement = "SELECT time_ms, base_ms, content FROM document WHERE time_ms <= ? ORDER BY time_ms DESC LIMIT 1"
    row = connection.execute(statement, (time_ms,)).fetchone()
    if row is None:
        return None
    if row[1] is None:
        text = decode_document(bytes(row[2]), None)
        return StoredDocument(text=text, base_ms=int(row[0]), base=text)
    found = connection.execute("SELECT content FROM document WHERE time_ms = ?", (row[1],)).fetchone()
    if found is None:
        raise ValueError("the words that others are stored against are gone")
    base = decode_document(bytes(found[0]), None)
    return StoredDocument(text=decode_document(bytes(row[2]), base), base_ms=int(row[1]), base=base)
