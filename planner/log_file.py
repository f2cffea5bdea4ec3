"""A log file, or standard input, as decoded lines: read piece by piece, in whichever encoding its first bytes show."""

from __future__ import annotations

import codecs
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from planner.bounded_files import size_text
from planner.facts import PlanError
from planner.units import GIB, MIB

LARGEST_FILE_BYTES = 2 * GIB
LARGEST_TEXT_BYTES = 4 * MIB  # read whole, so that lines broken at a width can be joined again
_PIECE_BYTES = MIB
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NO_TEXT = (b"\x1f\x8b", b"PK\x03\x04", b"%PDF", b"\x7fELF", b"\x89PNG", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_TEXT_BYTES = bytes({*range(32, 256), 8, 9, 10, 12, 13, 27} - {127})


def decode_log(content: bytes) -> str:
    """The text of a log's bytes; raises `PlanError` for what is no text."""
    return content.decode(_encoding(content[:_PIECE_BYTES]), errors="replace")


def _encoding(begin: bytes) -> str:
    """The encoding of a text that begins so: by its mark, by its zero bytes, UTF-8 where it is valid, else Latin-1."""
    for mark, name in _MARKS:
        if begin.startswith(mark):
            return name
    if begin.startswith(bytes(64)):  # a file that its rotation emptied while it was written begins with zero bytes
        begin = begin.lstrip(b"\0")
    sample = begin[:4000]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if max(even, odd) > len(sample) // 4 > 4 * min(even, odd):  # UTF-16 without its mark: half of English text is zeros
        return "utf-16-le" if odd > even else "utf-16-be"
    if begin.startswith(_NO_TEXT) or len(begin.translate(None, _TEXT_BYTES)) > len(begin) // 50:
        raise PlanError("log", None, "The file is not text, so it is no log; unpack it first where it is an archive.")
    try:
        begin.decode("utf-8")
    except UnicodeDecodeError as error:
        return "utf-8" if error.start > len(begin) - 4 else "latin-1"  # a character cut at the piece's end
    return "utf-8"


def read_file_lines(path: Path) -> Iterator[str]:
    """The lines of the regular file `path`; raises `PlanError` for anything else, and for a file that is too large."""
    try:
        refusal = _refusal(path)
        if refusal is None:
            with path.open("rb") as file:
                yield from stream_lines(file)
    except FileNotFoundError:
        refusal = f"{path} does not exist; check its name."
    except PlanError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the name
        refusal = f"{path} cannot be read ({getattr(error, 'strerror', None) or error}); check its permissions."
    if refusal is not None:
        raise PlanError("log", str(path), refusal)


def _refusal(path: Path) -> str | None:
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        return f"{path} is not a regular file; give a log file, or - for standard input."
    if state.st_size > LARGEST_FILE_BYTES:
        return f"{path.name} is larger than {size_text(LARGEST_FILE_BYTES)}; cut out the part with the start."
    return None


def stream_lines(file: BinaryIO) -> Iterator[str]:
    """The lines of an open file, decoded piece by piece and never held whole; no more than the largest size."""
    begin = _read_up_to(file, _PIECE_BYTES)
    decoder = codecs.getincrementaldecoder(_encoding(begin))(errors="replace")
    rest, total, piece = "", 0, begin
    while piece and total <= LARGEST_FILE_BYTES:
        total += len(piece)
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        yield from lines
        if len(rest) > 8 * _PIECE_BYTES:  # no line of a log; what is kept of it can still be a progress bar's end
            rest = rest[-_PIECE_BYTES:]
        piece = file.read(_PIECE_BYTES)
    yield rest + decoder.decode(b"", final=True)


def _read_up_to(file: BinaryIO, size: int) -> bytes:
    """The next `size` bytes, fewer only at the end: a pipe gives them in its own pieces."""
    content = b""
    while len(content) < size and (more := file.read(size - len(content))):
        content += more
    return content
