"""Writes one recording: a tick a transaction, so that what is committed outlives a kill; retention and size are kept here.

Reading is `live.recording`'s, turning a sample into numbers and words `live.sample_codec`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from live.chunks import Numbers, Times, decode_rows, encode_chunk, encode_document, encode_row, encode_times
from live.documents import latest_document
from live.recording_schema import (
    CHUNK_TICKS,
    LARGEST_DOCUMENT_BYTES,
    LARGEST_FRAME_BYTES,
    LARGEST_SERIES_COUNT,
    RecordingError,
    check_format,
    check_size,
    create_tables,
)
from live.writer_lock import WriterLock
from planner.units import MIB

_TICKS_BETWEEN_PRUNING = 60
# More than so many intervals, and a poll that took its longest, without a tick or a named gap: nobody was sampling.
_HOLE_INTERVALS = 2.5
_LONGEST_POLL_MS = 2500
_PAGES_FREED_AT_ONCE = 2000
_FRAMES_KEPT_MS = 3_600_000  # block tables of the last hour are kept where the whole is too large
STOPPED_STATE = "recorder_stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much a recording keeps; the oldest goes first."""

    seconds: float = 7 * 86_400.0
    largest_bytes: int = 512 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a recording is of."""

    source: str  # the engine's address without user, password or query
    interval_ms: int = 1000
    title: str = ""


class Store:
    """The one writer of a recording; used by one thread at a time."""

    infers_gaps = True  # whether a long time without a tick is a gap; what is imported names its gaps

    def __init__(self, connection: sqlite3.Connection, lock: WriterLock, path: Path, retention: Retention) -> None:
        self._connection = connection
        self._lock = lock
        self.path = path
        self.retention = retention
        self._is_closed = False
        self._load()

    @classmethod
    def create(cls, path: Path, about: About, retention: Retention | None = None, *, infers_gaps: bool = True) -> Store:
        """A new recording at `path`, which must not exist."""
        if path.exists():
            raise RecordingError("exists", f"{path.name} exists; choose another name, or go on with it by --append.")
        with _disk_faults(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = WriterLock(path)
        store = cls._opened(path, lock, retention or Retention(), about)
        store.infers_gaps = infers_gaps
        return store

    @classmethod
    def resume(cls, path: Path, retention: Retention | None = None) -> Store:
        """The recording at `path`, to go on with it; the time since its last tick becomes a gap at the next one."""
        check_size(path, largest_bytes=2**62)
        lock = WriterLock(path)
        return cls._opened(path, lock, retention or Retention(), None)

    @classmethod
    def _opened(cls, path: Path, lock: WriterLock, retention: Retention, about: About | None) -> Store:
        connection: sqlite3.Connection | None = None
        try:
            with _disk_faults(path):
                connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
                if about is not None:
                    create_tables(connection)
                    _write_about(connection, about)
                check_format(connection, path.name)
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(f"PRAGMA journal_size_limit = {8 * MIB}")
                return cls(connection, lock, path, retention)
        except BaseException:
            if connection is not None:
                connection.close()
            lock.release()
            raise

    def _load(self) -> None:
        ask = self._connection.execute
        self._series = {name: series_id for series_id, name in ask("SELECT series_id, name FROM series")}
        latest = latest_document(self._connection)
        self._document = None if latest is None else latest.text
        self._base = None if latest is None else (latest.base_ms, latest.base)
        self._tail_ticks = int(ask("SELECT count(*) FROM tick").fetchone()[0])
        self._interval_ms = int(dict(ask("SELECT key, value FROM about"))["interval_ms"])
        last = ask(
            "SELECT max((SELECT ifnull(max(time_ms), 0) FROM tick), (SELECT ifnull(max(end_ms), 0) FROM span), "
            "(SELECT ifnull(max(end_ms), 0) FROM gap))"
        ).fetchone()[0]
        self.last_ms: int | None = int(last) or None
        self._open_gap: tuple[int, str] | None = None
        self._longest_hole_ms = _HOLE_INTERVALS * self._interval_ms  # at once after a start: no poll was under way
        self._ticks_since_pruning = 0

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _disk_faults(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                with suppress(sqlite3.Error):
                    self._load()
                raise

    def append(self, time_ms: int, numbers: Mapping[str, float], document: str) -> None:
        """Commit one tick: its numbers by series name (NaN or absent: not exported) and its words."""
        self._check(time_ms, numbers, document)
        with self._transaction() as connection:
            self._close_gap(time_ms)
            self._add_series(numbers)
            row = np.full(len(self._series), np.nan)
            for name, number in numbers.items():
                row[self._series[name]] = number
            if document != self._document:
                self._add_document(time_ms, document)
            connection.execute("INSERT INTO tick VALUES (?, ?)", (time_ms, encode_row(row)))
            self.last_ms = time_ms
            self._longest_hole_ms = _HOLE_INTERVALS * self._interval_ms + _LONGEST_POLL_MS
            self._tail_ticks += 1
            self._keep_house(time_ms)

    def append_span(self, time_ms: Times, names: Sequence[str], numbers: Numbers, document: str) -> None:
        """Commit many ticks with the same words at once, folded: what `append` of each would give. `numbers` is [name, tick]."""
        known = {name: row for name, row in zip(names, numbers, strict=True) if not np.isnan(row).all()}
        self._check(int(time_ms[0]), dict.fromkeys(known, 0.0), document)
        for late in np.flatnonzero(np.diff(time_ms) <= 0)[:1]:
            self.last_ms = int(time_ms[late])
            self._check_time(int(time_ms[late + 1]))
        with self._transaction() as connection:
            self._close_gap(int(time_ms[0]))
            self._add_series(known)
            if document != self._document:
                self._add_document(int(time_ms[0]), document)
            self._fold()
            start_ms, self.last_ms = int(time_ms[0]), int(time_ms[-1])
            span = (start_ms, self.last_ms, len(time_ms), encode_times(time_ms))
            connection.execute("INSERT INTO span VALUES (?, ?, ?, ?)", span)
            chunks = ((self._series[name], start_ms, encode_chunk(row)) for name, row in known.items())
            connection.executemany("INSERT INTO chunk VALUES (?, ?, ?)", chunks)
            self._ticks_since_pruning += len(time_ms)
            self._keep_house(self.last_ms)

    def _check(self, time_ms: int, numbers: Mapping[str, float], document: str) -> None:
        self._check_time(time_ms)
        if len(document.encode()) > LARGEST_DOCUMENT_BYTES:
            text = (
                f"The engine describes itself in more than {LARGEST_DOCUMENT_BYTES // MIB} MiB; this tick was not kept."
            )
            raise RecordingError("too_much_text", text)
        if len(self._series.keys() | numbers.keys()) > LARGEST_SERIES_COUNT:
            text = f"The recording would hold more than {LARGEST_SERIES_COUNT} series; begin a new one."
            raise RecordingError("too_many_series", text)

    def _check_time(self, time_ms: int) -> None:
        if time_ms <= (self.last_ms or 0):
            text = f"A tick at {time_ms} ms is not later than the last one at {self.last_ms or 0} ms."
            raise RecordingError("wrong_time", text)

    def _add_series(self, numbers: Mapping[str, float]) -> None:
        for name in numbers:
            if name not in self._series:
                self._connection.execute("INSERT INTO series VALUES (?, ?)", (len(self._series), name))
                self._series[name] = len(self._series)

    def _add_document(self, time_ms: int, document: str) -> None:
        whole = encode_document(document, None)
        base_ms, base = self._base or (time_ms, "")
        content = encode_document(document, base)
        if not base or 2 * len(content) > len(whole):
            base_ms, base, content = time_ms, document, whole
        self._connection.execute(
            "INSERT INTO document VALUES (?, ?, ?)", (time_ms, None if base_ms == time_ms else base_ms, content)
        )
        self._document, self._base = document, (base_ms, base)

    def append_gap(self, time_ms: int, state: str, text: str, *, since_ms: int | None = None) -> None:
        """Commit that nothing could be sampled at `time_ms`; a gap lasts to the next tick or to another state.

        It begins at `since_ms`, when that was asked for, where no tick came in between.
        """
        self._check_time(time_ms)
        start_ms = time_ms if since_ms is None else min(time_ms, max(since_ms, (self.last_ms or 0) + 1))
        with self._transaction() as connection:
            if self._open_gap is not None and self._open_gap[1] == state:
                connection.execute("UPDATE gap SET end_ms = ? WHERE start_ms = ?", (time_ms, self._open_gap[0]))
            else:
                self._close_gap(start_ms)
                connection.execute("INSERT INTO gap VALUES (?, ?, ?, ?)", (start_ms, time_ms, state, text))
                self._open_gap = (start_ms, state)
            self.last_ms = time_ms

    def _close_gap(self, time_ms: int) -> None:
        if self._open_gap is not None:
            self._connection.execute("UPDATE gap SET end_ms = ? WHERE start_ms = ?", (time_ms, self._open_gap[0]))
            self._open_gap = None
        elif self.infers_gaps and self.last_ms is not None and time_ms - self.last_ms > self._longest_hole_ms:
            start_ms = self.last_ms + min(self._interval_ms, (time_ms - self.last_ms) // 2)
            text = "Nobody was sampling: the recorder was stopped, or the machine slept."
            self._connection.execute(
                "INSERT OR REPLACE INTO gap VALUES (?, ?, ?, ?)", (start_ms, time_ms, STOPPED_STATE, text)
            )

    def keep_gap(self, start_ms: int, end_ms: int, state: str, text: str) -> None:
        """Commit a whole gap as it was elsewhere."""
        if end_ms < start_ms:
            raise RecordingError("wrong_time", f"A gap that begins at {start_ms} ms cannot end at {end_ms} ms.")
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO gap VALUES (?, ?, ?, ?)", (start_ms, end_ms, state, text))

    def fold(self) -> None:
        """Compress the newest ticks now, as happens by itself every `CHUNK_TICKS`."""
        with self._transaction():
            self._fold()

    def mark(self, time_ms: int, kind: str, text: str) -> None:
        """Commit an event: a restart, another model, an alert, a person's note."""
        with self._transaction() as connection:
            connection.execute("INSERT INTO mark (time_ms, kind, text) VALUES (?, ?, ?)", (time_ms, kind, text[:2000]))

    def append_frame(self, time_ms: int, kind: str, payload: bytes) -> None:
        """Commit a payload that is no number (a block table, a batch of events)."""
        if len(payload) > LARGEST_FRAME_BYTES:
            text = f"A frame of {len(payload) / MIB:.1f} MiB is more than the {LARGEST_FRAME_BYTES // MIB} MiB allowed."
            raise RecordingError("too_much_text", text)
        with self._transaction() as connection:
            connection.execute("INSERT INTO frame (kind, time_ms, payload) VALUES (?, ?, ?)", (kind, time_ms, payload))

    def _keep_house(self, time_ms: int) -> None:
        if self._tail_ticks >= CHUNK_TICKS:
            self._fold()
        self._ticks_since_pruning += 1
        if self._ticks_since_pruning >= _TICKS_BETWEEN_PRUNING:
            self._prune(time_ms)

    def _fold(self) -> None:
        rows = self._connection.execute("SELECT time_ms, numbers FROM tick ORDER BY time_ms").fetchall()
        if not rows:
            return
        times = np.array([row[0] for row in rows], np.int64)
        numbers = decode_rows([row[1] for row in rows], len(self._series))
        start_ms = int(times[0])
        self._connection.execute(
            "INSERT INTO span VALUES (?, ?, ?, ?)", (start_ms, int(times[-1]), len(times), encode_times(times))
        )
        chunks = ((series_id, start_ms, encode_chunk(series)) for series_id, series in enumerate(numbers))
        self._connection.executemany("INSERT INTO chunk VALUES (?, ?, ?)", (chunk for chunk in chunks if chunk[2]))
        self._connection.execute("DELETE FROM tick")
        self._tail_ticks = 0

    def _prune(self, now_ms: int) -> None:
        self._ticks_since_pruning = 0
        ask = self._connection.execute
        cut_ms = now_ms - int(self.retention.seconds * 1000)
        self._forget(cut_ms)
        if self._used_bytes() > self.retention.largest_bytes:  # frames are large: they go before numbers do
            ask("DELETE FROM frame WHERE time_ms < ?", (now_ms - _FRAMES_KEPT_MS,))
        while self._used_bytes() > self.retention.largest_bytes:
            oldest = ask("SELECT start_ms, end_ms FROM span ORDER BY start_ms LIMIT 1").fetchone()
            if oldest is None:
                ask("DELETE FROM frame WHERE time_ms < ?", (now_ms - self._interval_ms,))
                break
            self._forget(oldest[1] + 1)
        ask(f"PRAGMA incremental_vacuum({_PAGES_FREED_AT_ONCE})").fetchall()

    def _used_bytes(self) -> int:
        count, free, size = (
            int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (count - free) * size

    def _forget(self, cut_ms: int) -> None:
        """Drop what lies wholly before `cut_ms`; the words that still hold at `cut_ms` stay."""
        ask = self._connection.execute
        for (start_ms,) in ask("SELECT start_ms FROM span WHERE end_ms < ?", (cut_ms,)).fetchall():
            keys = ((series_id, start_ms) for series_id in self._series.values())
            self._connection.executemany("DELETE FROM chunk WHERE series_id = ? AND start_ms = ?", keys)
            ask("DELETE FROM span WHERE start_ms = ?", (start_ms,))
        self._tail_ticks -= ask("DELETE FROM tick WHERE time_ms < ?", (cut_ms,)).rowcount
        ask("DELETE FROM gap WHERE end_ms < ?", (cut_ms,))
        for table in ("mark", "frame"):
            ask(f"DELETE FROM {table} WHERE time_ms < ?", (cut_ms,))  # noqa: S608  two fixed names
        kept = "SELECT ifnull(base_ms, time_ms) FROM document WHERE time_ms <= ? ORDER BY time_ms DESC LIMIT 1"
        ask(f"DELETE FROM document WHERE time_ms < ({kept})", (cut_ms,))  # noqa: S608  a fixed text

    def end(self, time_ms: int) -> None:
        """Say that the recording is over: the monitor will not go on with it."""
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO about VALUES ('ended_ms', ?)", (str(time_ms),))

    def keep_about(self, key: str, value: str) -> None:
        """Keep a setting with the recording, in place of what stood there."""
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))

    def close(self) -> None:
        """Fold the write-ahead log into the file, so that the one file is the whole recording."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()
        self._lock.release()


def _write_about(connection: sqlite3.Connection, about: About) -> None:
    rows = [("source", about.source), ("interval_ms", str(about.interval_ms)), ("title", about.title)]
    connection.executemany("INSERT INTO about VALUES (?, ?)", rows)


@contextmanager
def _disk_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise RecordingError(
            "disk", f"{path.name} cannot be written ({error}); check the folder and its free space."
        ) from None
