"""Numbers and words as stored bytes: one row of a tick, one compressed chunk of a series, one document against another."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from live.recording_schema import LARGEST_CHUNK_TICKS, LARGEST_DOCUMENT_BYTES, RecordingError

Numbers = NDArray[np.float64]
Times = NDArray[np.int64]

_ITEM_BYTES = 8
_REAL = np.dtype("<f8")
_TIME = np.dtype("<i8")
_LATEST_MS = 2**50  # the year 37647: sums of times stay far from overflowing


def encode_row(numbers: Numbers) -> bytes:
    """One tick's numbers, series after series; trailing NaN is left out."""
    known = np.flatnonzero(~np.isnan(numbers))
    return numbers[: int(known[-1]) + 1 if known.size else 0].astype(_REAL).tobytes()


def decode_rows(rows: list[bytes], num_series: int) -> Numbers:
    """The numbers of `rows` as an array [series, tick]; what a row does not hold is NaN."""
    numbers = np.full((len(rows), num_series), np.nan)
    if rows and len({len(row) for row in rows}) == 1:
        width = _row_width(rows[0], num_series)
        numbers[:, :width] = np.frombuffer(b"".join(rows), _REAL).reshape(len(rows), width)
    else:
        for index, row in enumerate(rows):
            width = _row_width(row, num_series)
            numbers[index, :width] = np.frombuffer(row, _REAL)
    return numbers.T


def _row_width(row: bytes, num_series: int) -> int:
    width, rest = divmod(len(row), _ITEM_BYTES)
    if rest or width > num_series:
        raise RecordingError(
            "damaged", f"A tick of the recording holds {len(row)} bytes for {num_series} series; it is damaged."
        )
    return width


def encode_chunk(numbers: Numbers) -> bytes | None:
    """The bytes of one series over a chunk: None for all NaN, 8 bytes for a constant, else shuffled and compressed.

    What compression would not make smaller by a quarter is stored as it is: it reads faster.
    """
    real = numbers.astype(_REAL)
    bits = real.view(np.uint64)
    if np.isnan(real).all():
        return None
    if (bits == bits[0]).all():
        return real[:1].tobytes()
    packed = zlib.compress(real.view(np.uint8).reshape(-1, _ITEM_BYTES).T.tobytes(), 1)
    return packed if 4 * len(packed) <= 3 * real.nbytes else real.tobytes()


def decode_chunk(content: bytes, num_ticks: int) -> Numbers:
    """The `num_ticks` numbers of one series."""
    if len(content) == _ITEM_BYTES:
        return np.broadcast_to(np.frombuffer(content, _REAL), num_ticks)
    if len(content) == _ITEM_BYTES * num_ticks:
        return np.frombuffer(content, _REAL)
    raw = _inflate(content, num_ticks)
    return np.frombuffer(raw, np.uint8).reshape(_ITEM_BYTES, num_ticks).T.copy().view(_REAL)[:, 0]


def encode_times(time_ms: Times) -> bytes:
    """The bytes of a span's times."""
    first = time_ms.astype(_TIME)
    return zlib.compress(np.diff(first, prepend=np.zeros(1, _TIME)).tobytes(), 1)


def decode_times(content: bytes, num_ticks: int) -> Times:
    """The `num_ticks` times of a span, in milliseconds since 1970, each later than the one before."""
    steps = np.frombuffer(_inflate(content, num_ticks), _TIME)
    if steps.min() <= 0 or steps[0] >= _LATEST_MS or steps[1:].sum() >= _LATEST_MS:
        raise RecordingError("damaged", "A span of the recording has times that do not rise; it is damaged.")
    return np.cumsum(steps)


def _inflate(content: bytes, num_ticks: int) -> bytes:
    if not 0 < num_ticks <= LARGEST_CHUNK_TICKS:
        raise RecordingError("damaged", f"A span of the recording claims {num_ticks} ticks; it is damaged.")
    limit = _ITEM_BYTES * num_ticks
    try:
        raw = zlib.decompressobj().decompress(content, limit + 1)
    except zlib.error:
        raise RecordingError("damaged", "A chunk of the recording cannot be unpacked; it is damaged.") from None
    if len(raw) != limit:
        raise RecordingError("damaged", f"A chunk of the recording does not hold {limit} bytes; it is damaged.")
    return raw


def encode_document(text: str, base: str | None) -> bytes:
    """The bytes of `text`; few where it is nearly `base`."""
    encoder = zlib.compressobj(zdict=base.encode()) if base else zlib.compressobj()
    return encoder.compress(text.encode()) + encoder.flush()


def decode_document(content: bytes, base: str | None) -> str:
    """The text that was encoded against the same `base`."""
    decoder = zlib.decompressobj(zdict=base.encode()) if base else zlib.decompressobj()
    try:
        raw = decoder.decompress(content, LARGEST_DOCUMENT_BYTES + 1)
        is_whole = decoder.eof
    except zlib.error:
        is_whole = False
    if not is_whole:
        raise RecordingError("damaged", "A description in the recording cannot be unpacked; it is damaged.")
    return raw.decode("utf-8", "replace")
