"""Reads recordings: one that is being written, a finished one, or one that was uploaded and is trusted in nothing."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from live.chunks import Numbers, Times, decode_chunk, decode_rows, decode_times
from live.documents import latest_document
from live.recording_schema import (
    CHECK_SECONDS,
    LARGEST_SERIES_COUNT,
    LARGEST_UPLOAD_BYTES,
    LARGEST_WINDOW_NUMBERS,
    RecordingError,
    check_format,
    check_integrity,
    check_size,
    harden,
)

_FOREVER_MS = 2**62
_TICKS_AT_ONCE = 600  # that `ticks` holds in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """`[start_ms, end_ms)` without samples: the named state that was, and its sentence."""

    start_ms: int
    end_ms: int
    state: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An event on the time axis: a restart, another model, an alert, a person's note."""

    time_ms: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a recording is of, and how much. Times are None while it holds no tick."""

    source: str
    title: str
    interval_ms: int
    start_ms: int | None
    end_ms: int | None
    ended_ms: int | None  # when a person ended it; None: it may go on
    num_ticks: int
    series: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Numbers over time: `numbers[i, t]` is series `names[i]` at `time_ms[t]`, NaN where it was not exported."""

    time_ms: Times
    names: tuple[str, ...]
    numbers: Numbers
    gaps: tuple[Gap, ...]

    def series(self, name: str) -> Numbers:
        """The numbers of one series; all NaN where the recording has no such series."""
        if name not in self.names:
            return np.full(len(self.time_ms), np.nan)
        series: Numbers = self.numbers[self.names.index(name)]
        return series


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTick:
    """One tick as it was appended."""

    time_ms: int
    numbers: dict[str, float]
    document: str


class Recording:
    """An open recording, for reading alone; any thread may ask."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._lock = threading.RLock()
        self.path = path

    @classmethod
    def open(cls, path: Path) -> Recording:
        """The recording at `path`, which a recorder may be writing now."""
        check_size(path, _FOREVER_MS)
        is_written = path.with_name(path.name + "-wal").exists()
        recording = cls(_connect(path, "mode=ro" if is_written else "mode=ro&immutable=1"), path)
        try:
            check_format(recording._connection, path.name)
        except RecordingError:
            recording.close()
            raise
        return recording

    @classmethod
    def open_untrusted(cls, path: Path, largest_bytes: int = LARGEST_UPLOAD_BYTES) -> Recording:
        """The recording at `path`, which came from elsewhere: checked for size, format and integrity, and never written."""
        check_size(path, largest_bytes)
        recording = cls(_connect(path, "mode=ro&immutable=1"), path)
        try:
            harden(recording._connection, time.monotonic() + CHECK_SECONDS)
            check_format(recording._connection, path.name)
            check_integrity(recording._connection, path.name)
            recording.summary()
        except RecordingError:
            recording.close()
            raise
        recording._connection.set_progress_handler(None, 0)
        return recording

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """All that is read within is of one state of the file; what cannot be right is one kind of error."""
        with self._lock:
            try:
                is_outermost = not self._connection.in_transaction
                if is_outermost:
                    self._connection.execute("BEGIN")
                try:
                    yield self._connection
                finally:
                    if is_outermost:
                        with suppress(sqlite3.Error):
                            self._connection.execute("COMMIT")
            except (sqlite3.Error, ValueError, TypeError, KeyError, OverflowError) as error:
                text = f"{self.path.name} cannot be read ({error}); it is damaged, or was closed or removed."
                raise RecordingError("damaged", text) from None

    def summary(self) -> Summary:
        """What the recording is of."""
        with self._reading() as connection:
            about = {
                str(key): str(value) for key, value in connection.execute("SELECT key, value FROM about LIMIT 100")
            }
            first, last, num_ticks = connection.execute(
                "SELECT min(first), max(last), sum(ticks) FROM ("
                "SELECT min(start_ms) AS first, max(end_ms) AS last, ifnull(sum(num_ticks), 0) AS ticks FROM span "
                "UNION ALL SELECT min(time_ms), max(time_ms), count(*) FROM tick)"
            ).fetchone()
            ended = about.get("ended_ms")
            return Summary(
                source=about["source"][:2000],
                title=about["title"][:2000],
                interval_ms=max(1, int(about["interval_ms"])),
                start_ms=None if first is None else int(first),
                end_ms=None if last is None else int(last),
                ended_ms=None if ended is None else int(ended),
                num_ticks=int(num_ticks),
                series=tuple(_series(connection)),
            )

    def series_names(self) -> tuple[str, ...]:
        """The names of all series, as `summary` tells them, without the rest of it."""
        with self._reading() as connection:
            return tuple(_series(connection))

    def about(self, key: str) -> str | None:
        """A setting that is kept with the recording; None where there is none."""
        with self._reading() as connection:
            row = connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
            return None if row is None else str(row[0])

    def window(
        self, names: Sequence[str] | None = None, start_ms: int | None = None, end_ms: int | None = None
    ) -> Window:
        """The numbers of the series `names` (None: all) at the ticks of `[start_ms, end_ms)` (None: open)."""
        first, end = start_ms or 0, _FOREVER_MS if end_ms is None else end_ms
        with self._reading() as connection:
            ids = _series(connection)
            chosen = tuple(ids) if names is None else tuple(names)
            times, numbers = _Columns(connection, [ids.get(name, -1) for name in chosen], len(ids)).read(first, end)
            gaps = _gaps(connection, first, end)
        kept = slice(*np.searchsorted(times, (first, end)))
        return Window(time_ms=times[kept], names=chosen, numbers=numbers[:, kept], gaps=gaps)

    def times(self) -> Times:
        """The times of all ticks."""
        return self.window(names=()).time_ms

    def ticks(self, start_ms: int | None = None, end_ms: int | None = None) -> Iterator[StoredTick]:
        """The ticks of `[start_ms, end_ms)` as they were appended, one after the other."""
        times = self.window((), start_ms, end_ms).time_ms
        for first in range(0, len(times), _TICKS_AT_ONCE):
            part = times[first : first + _TICKS_AT_ONCE]
            window = self.window(None, int(part[0]), int(part[-1]) + 1)
            for index, time_ms in enumerate(window.time_ms):
                yield _tick(window, index, self.document_at(int(time_ms)))

    def tick_at(self, time_ms: int) -> StoredTick | None:
        """The last tick at or before `time_ms`; None where there is none."""
        statement = (
            "SELECT max(ifnull((SELECT max(time_ms) FROM tick WHERE time_ms <= ?1), 0), "
            "ifnull((SELECT max(start_ms) FROM span WHERE start_ms <= ?1), 0))"
        )
        with self._reading() as connection:
            found = int(connection.execute(statement, (time_ms,)).fetchone()[0])
            window = self.window(None, found, time_ms + 1)
            return _tick(window, -1, self.document_at(time_ms)) if len(window.time_ms) else None

    def document_at(self, time_ms: int) -> str:
        """The words that held at `time_ms`, as JSON text."""
        with self._reading() as connection:
            found = latest_document(connection, time_ms)
            return "" if found is None else found.text

    def document_times(self) -> list[int]:
        """The times at which the words changed, in their order."""
        with self._reading() as connection:
            return [int(row[0]) for row in connection.execute("SELECT time_ms FROM document ORDER BY time_ms")]

    def gaps(self, start_ms: int = 0, end_ms: int = _FOREVER_MS) -> tuple[Gap, ...]:
        """The gaps that touch `[start_ms, end_ms)`."""
        with self._reading() as connection:
            return _gaps(connection, start_ms, end_ms)

    def marks(self, start_ms: int = 0, end_ms: int = _FOREVER_MS) -> tuple[Mark, ...]:
        """The marks of `[start_ms, end_ms)` in time's order, the last 10,000 at most."""
        statement = "SELECT time_ms, kind, text FROM mark WHERE time_ms >= ? AND time_ms < ? ORDER BY time_ms DESC, mark_id DESC LIMIT 10000"
        with self._reading() as connection:
            rows = connection.execute(statement, (start_ms, end_ms)).fetchall()
            return tuple(Mark(time_ms=int(row[0]), kind=str(row[1]), text=str(row[2])) for row in reversed(rows))

    def frames(self, kind: str, start_ms: int = 0, end_ms: int = _FOREVER_MS) -> Iterator[tuple[int, bytes]]:
        """The payloads of `kind` in `[start_ms, end_ms)` with their times, one after the other."""
        statement = (
            "SELECT frame_id, time_ms, payload FROM frame WHERE kind = ? AND (time_ms, frame_id) > (?, ?) AND time_ms < ? "
            "ORDER BY time_ms, frame_id LIMIT 1"
        )
        key = (start_ms, -1)
        while True:
            with self._reading() as connection:
                row = connection.execute(statement, (kind, *key, end_ms)).fetchone()
            if row is None:
                return
            key = (row[1], row[0])
            yield int(row[1]), bytes(row[2])

    def frame_at(self, kind: str, time_ms: int) -> tuple[int, bytes] | None:
        """The last payload of `kind` at or before `time_ms`, with its time; None where there is none."""
        statement = "SELECT time_ms, payload FROM frame WHERE kind = ? AND time_ms <= ? ORDER BY time_ms DESC, frame_id DESC LIMIT 1"
        with self._reading() as connection:
            row = connection.execute(statement, (kind, time_ms)).fetchone()
            return None if row is None else (int(row[0]), bytes(row[1]))

    def save_copy(self, path: Path) -> None:
        """Write the whole recording, as it is now, to one new file."""
        if path.exists():
            raise RecordingError("exists", f"{path.name} exists; choose another name.")
        with self._lock, closing(sqlite3.connect(path)) as copy:
            self._connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"file:{quote(str(path.resolve()))}?{mode}"
    try:
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)
    except sqlite3.Error as error:
        raise RecordingError("absent", f"{path.name} cannot be opened ({error}); check its path and rights.") from None
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    return connection


def _series(connection: sqlite3.Connection) -> dict[str, int]:
    rows = connection.execute(
        "SELECT name, series_id FROM series ORDER BY series_id LIMIT ?", (LARGEST_SERIES_COUNT + 1,)
    )
    ids = {str(name): int(series_id) for name, series_id in rows}
    if list(ids.values()) != list(range(len(ids))) or len(ids) > LARGEST_SERIES_COUNT:
        raise ValueError("its table of series is not numbered from 0, or too long")
    return ids


def _gaps(connection: sqlite3.Connection, start_ms: int, end_ms: int) -> tuple[Gap, ...]:
    statement = "SELECT start_ms, end_ms, state, text FROM gap WHERE end_ms >= ? AND start_ms < ? ORDER BY start_ms DESC LIMIT 10000"
    rows = connection.execute(statement, (start_ms, end_ms)).fetchall()
    return tuple(
        Gap(start_ms=int(row[0]), end_ms=int(row[1]), state=str(row[2]), text=str(row[3])) for row in reversed(rows)
    )


def _tick(window: Window, index: int, document: str) -> StoredTick:
    column = window.numbers[:, index]
    numbers = {name: float(value) for name, value in zip(window.names, column, strict=True) if not np.isnan(value)}
    return StoredTick(time_ms=int(window.time_ms[index]), numbers=numbers, document=document)


class _Columns:
    """Reads some series over some time; `ids` are their numbers, -1 for one that is not there."""

    def __init__(self, connection: sqlite3.Connection, ids: list[int], num_series: int) -> None:
        self._connection = connection
        self._ids = ids
        self._num_series = num_series

    def read(self, start_ms: int, end_ms: int) -> tuple[Times, Numbers]:
        """The times and the numbers [series, tick] of whole spans and of the newest ticks."""
        ask = self._connection.execute
        spans = ask(
            "SELECT start_ms, num_ticks, times FROM span WHERE end_ms >= ? AND start_ms < ? ORDER BY start_ms",
            (start_ms, end_ms),
        ).fetchmany(LARGEST_WINDOW_NUMBERS // 300)
        tail = ask(
            "SELECT time_ms, numbers FROM tick WHERE time_ms >= ? AND time_ms < ? ORDER BY time_ms", (start_ms, end_ms)
        ).fetchall()
        num_ticks = sum(int(span[1]) for span in spans) + len(tail)
        if num_ticks * max(1, len(self._ids)) > LARGEST_WINDOW_NUMBERS:
            text = f"{num_ticks:,} ticks of {len(self._ids)} series are too many at once; choose fewer series or a shorter time."
            raise RecordingError("too_large", text)
        times = [decode_times(bytes(content), int(count)) for _, count, content in spans]
        times.append(np.array([row[0] for row in tail], np.int64))
        numbers = np.full((len(self._ids), num_ticks), np.nan)
        self._fill_from_chunks(numbers, [(int(start), int(count)) for start, count, _ in spans])
        if tail and self._ids:
            numbers[:, num_ticks - len(tail) :] = self._tail([bytes(row[1]) for row in tail])
        return np.concatenate(times), numbers

    def _tail(self, rows: list[bytes]) -> Numbers:
        everything = decode_rows(rows, self._num_series)
        absent = np.full((1, len(rows)), np.nan)
        return np.concatenate([everything, absent])[self._ids]  # -1 takes the last row

    def _fill_from_chunks(self, numbers: Numbers, spans: list[tuple[int, int]]) -> None:
        if not spans:
            return
        places, first = {}, 0
        for start_ms, count in spans:
            places[start_ms] = (first, count)
            first += count
        statement = "SELECT start_ms, numbers FROM chunk WHERE series_id = ? AND start_ms >= ? AND start_ms <= ?"
        for index, series_id in enumerate(self._ids):
            for start_ms, content in self._connection.execute(statement, (series_id, spans[0][0], spans[-1][0])):
                first, count = places[start_ms]
                numbers[index, first : first + count] = decode_chunk(bytes(content), count)
