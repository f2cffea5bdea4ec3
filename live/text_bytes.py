"""The text in the bytes of a response or a saved file: packed or not, in whatever encoding, within the size limit."""

from __future__ import annotations

import zlib

LARGEST_TEXT_BYTES = 16 * 1000 * 1000  # some 200,000 lines; a server exports 600 an engine

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's way to say "with gzip's head"
# UTF-32's mark begins with UTF-16's, so it is looked for first.
_BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_LOOKED_AT_BYTES = 4096
_SHARE_OF_ZEROS = 0.9  # of one place of each unit, where a text of mostly ASCII is written in wide units


def decode_text(content: bytes) -> str:
    """The text: gzip undone (a cut one as far as it goes), wide encodings by their mark or their zeros, bad bytes replaced."""
    if content.startswith(_GZIP_MAGIC):
        content = _unpacked(content)
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, "replace")
    return content.decode(_encoding(content[:_LOOKED_AT_BYTES]), "replace")


def _unpacked(content: bytes) -> bytes:
    try:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(content, LARGEST_TEXT_BYTES)
    except zlib.error:
        return b""


def _encoding(head: bytes) -> str:
    """The encoding of a text without a mark: PowerShell and some editors write wide units so."""
    if head.count(0) * 3 < len(head):
        return "utf-8"
    for width, encoding in ((4, "utf-32"), (2, "utf-16")):
        zeros = [_share_of_zeros(head[place::width]) for place in range(width)]
        if all(share > _SHARE_OF_ZEROS for share in zeros[1:]) and zeros[0] < 1 - _SHARE_OF_ZEROS:
            return f"{encoding}-le"
        if all(share > _SHARE_OF_ZEROS for share in zeros[:-1]) and zeros[-1] < 1 - _SHARE_OF_ZEROS:
            return f"{encoding}-be"
    return "utf-8"


def _share_of_zeros(part: bytes) -> float:
    return part.count(0) / len(part) if part else 0.0
