"""The lines of a pasted log with those joined again that a terminal or an editor broke at its width."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

_LARGEST_TEXT = 4 * 1000 * 1000
_NARROWEST, _FEWEST = 40, 3
_NEW = re.compile(
    r"^\s*(?:[>|│]\s*)*(?:\S+\s+\|\s*)?(?:\(|\[|\{|\"|\d{4}-\d\d|\w{3} +\d|INFO|DEBUG|WARN|ERROR|CRIT|Traceback|File |\w[\w.]*Error|#|```|Loading |Capturing |\S+%)"
)


def unwrapped(text: str) -> Iterator[str]:
    """The lines of `text`; a line as wide as the paste goes on in the next, and then stands where it began, with blanks after."""
    lines = text.split("\n")
    width = _width(lines) if len(text) <= _LARGEST_TEXT else None
    if width is None:
        yield from lines
        return
    index = 0
    while index < len(lines):
        whole, begin = lines[index], index
        while _goes_on(lines[index], width) and index + 1 < len(lines) and not _NEW.match(lines[index + 1]):
            index += 1
            whole = whole.rstrip("\r") + lines[index]
        yield whole
        yield from [""] * (index - begin)  # so that the numbers of later lines stay
        index += 1


def _goes_on(line: str, width: int) -> bool:
    """Whether a line fills the width; one in a frame, or padded, ends there by itself."""
    line = line.rstrip("\r")
    return len(line) == width and line[-1:] not in " │|"


def _width(lines: list[str]) -> int | None:
    """The width at which lines were broken: one that many share, whose next lines begin nothing, and that few exceed."""
    broken = Counter(
        len(line.rstrip("\r"))
        for line, following in pairwise(lines)
        if len(line) >= _NARROWEST
        and line.rstrip("\r")[-1:] not in " │|"
        and following.strip()
        and not _NEW.match(following)
    )
    for width, count in broken.most_common(3):
        longer = sum(len(line.rstrip("\r")) > width for line in lines)
        if count >= _FEWEST and longer <= count // 2:
            return width
    return None
