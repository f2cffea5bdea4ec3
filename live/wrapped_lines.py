"""Lines that a terminal or a mail broke or cut, made whole where that is certain and named as cut where it is not."""

from __future__ import annotations

import re

SEAM = "\ufffd"  # where a broken line was joined between two digits, and no width says that nothing is lost

_FIRST_OWN = re.compile(r"(?:ray_)?vllm:[a-z0-9_]+[{\s]")
_SAMPLE_START = re.compile(r"#|[a-zA-Z_:][\w:]*(?:\{[^{}]*\})?\s+[-+0-9NI]")
_START_WITHIN = re.compile(r"(?:^|[^\w\"])(?:#\s*(?:HELP|TYPE)\s|(?:ray_)?vllm[:_])")  # behind a log's prefix
_HEAD_ALONE = re.compile(r"(?:ray_)?vllm:[a-z0-9_]+\{[^{}]*\}")
_NUMBER_ALONE = re.compile(r"[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|Inf)|NaN")
_MOST_PARTS = 60  # of one broken line
_NARROWEST = 20
_FEWEST_BROKEN = 3  # lines of one length, before that length is a terminal's width


def unwrapped(raw_lines: list[str]) -> tuple[list[str], list[str]]:
    """The stripped lines, broken ones joined, and those whose value may be cut at the width of a terminal."""
    if not any(_is_open(line.strip()) for line in raw_lines):
        return _with_their_values([line.strip() for line in raw_lines]), []
    width = max(map(len, raw_lines))
    broken = [place for place, line in enumerate(raw_lines) if len(line) == width]
    is_hard = width >= _NARROWEST and len(broken) >= _FEWEST_BROKEN
    goes_on = [place for place in broken if not _begins(raw_lines, place + 1)]
    if is_hard and len(goes_on) >= _FEWEST_BROKEN:
        raw_lines = _joined_at(raw_lines, set(goes_on))
    elif is_hard and any(_is_open(raw_lines[place].strip()) for place in broken):
        return _without_cut(raw_lines, width)
    return _with_their_values(_joined([line.strip() for line in raw_lines])), []


def _is_open(line: str) -> bool:
    return "{" in line and "}" not in line and _FIRST_OWN.search(line) is not None


def _begins(lines: list[str], place: int) -> bool:
    """Whether the line at `place` begins something, so that the one before it does not go on in it."""
    line = lines[place].strip() if place < len(lines) else ""
    return not line or _SAMPLE_START.match(line) is not None or _START_WITHIN.search(line) is not None


def _joined_at(raw_lines: list[str], goes_on: set[int]) -> list[str]:
    """The lines with each of `goes_on` joined to the next, sign by sign: a terminal broke them at its width."""
    joined: list[str] = []
    for place, line in enumerate(raw_lines):
        if place and place - 1 in goes_on:
            joined[-1] += line
        else:
            joined.append(line)
    return joined


def _without_cut(raw_lines: list[str], width: int) -> tuple[list[str], list[str]]:
    """A terminal cut lines at its width: what ends there in a value may have lost digits; whole labels stay."""
    cut = [line.strip() for line in raw_lines if len(line) == width and not line.lstrip().startswith("#")]
    kept = [line.strip() for line in raw_lines if len(line) < width or _is_open(line.strip())]
    return _with_their_values(kept), [line for line in cut if not _is_open(line) and _FIRST_OWN.match(line)]


def _joined(lines: list[str]) -> list[str]:
    """Lines broken inside their labels, joined; a number that was broken is marked and so not read."""
    joined: list[str] = []
    open_parts = 0
    for line in lines:
        is_start = line.startswith("#") or not line or _FIRST_OWN.search(line) is not None
        if open_parts and not is_start:
            seam = SEAM if joined[-1][-1:].isdigit() and line[:1].isdigit() else ""
            joined[-1] += seam + line
            open_parts = 0 if open_parts > _MOST_PARTS or "}" in line else open_parts + 1
            continue
        joined.append(line)
        open_parts = 1 if _is_open(line) else 0
    return joined


def _with_their_values(lines: list[str]) -> list[str]:
    """Lines whose value stands alone on the next one, joined to it."""
    joined: list[str] = []
    for line in lines:
        if joined and _NUMBER_ALONE.fullmatch(line) and _HEAD_ALONE.fullmatch(joined[-1]):
            joined[-1] += f" {line}"
        else:
            joined.append(line)
    return joined
