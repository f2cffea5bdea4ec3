"""A /metrics text, whole, cut or pasted, as raw series.

Each line goes through prometheus-client's parser; a line it refuses is repaired (a log prefix, entities, several samples
on a line) or named as unread. No number comes out that is not in the text.
"""

from __future__ import annotations

import gzip
import html
import io
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from prometheus_client.parser import text_string_to_metric_families

from live.metric_names import CACHE_CONFIG_INFO, PROCESS_START, is_own

LARGEST_TEXT_BYTES = 5 * 1000 * 1000
_LONGEST_KEPT_HEAD = 4000
_LONGEST_LINE = 8192  # cache_config_info has some 2,000 characters
_MOST_LINES = 40_000
_MOST_REPAIRS = 2_000
_MOST_PIECES = 10_000
_MOST_PARTS = 60  # of one broken line
_SEAM = "\ufffd"  # where a broken line was joined between two digits

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_INTERESTING = ("vllm", PROCESS_START)
_HELP = re.compile(r"#\s*HELP\s+(\S+)\s+(.*)")
# Where a sample, or its HELP or TYPE line, begins inside a line that holds more than one.
_BEGINNING = re.compile(r"(?<!\S)(?=#\s*(?:HELP|TYPE)\s|(?:ray_)?vllm:[a-z0-9_]+[{\s])")
_SECOND_COMMENT = re.compile(r"\S\s+#\s*(?:HELP|TYPE)\s")
_FIRST_OWN = re.compile(r"(?:ray_)?vllm:[a-z0-9_]+[{\s]")
_HEAD_AND_VALUE = re.compile(r'([a-zA-Z_:][\w:]*(?:\{[^"}]*(?:"(?:[^"\\]|\\.)*"[^"}]*)*\})?)\s+(\S+)')
_WRITTEN_LINE_END = re.compile(r"\\n(?=\s*(?:#|(?:ray_)?vllm[:_]|$))")  # of a text pasted as a quoted string
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN_VALUE = re.compile(r"[+-]?\d{1,300}(?:\.\d+)?(?:[eE][+-]?\d{1,4})?|[+-]?Inf|NaN")
_WHOLE_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"(?=\s*[,}])')
_TAG = re.compile(r"</?[a-z]+[^<>{}]*>")
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "\u00a0": " "})
# What Python's client writes: 12.0, 1.5e+09, NaN. A number without its point may have lost digits.
_FLOAT_AS_WRITTEN = re.compile(r"[+-]?(?:\d+\.\d+(?:e[+-]\d{2,})?|\d+e[+-]\d{2,}|Inf)|NaN")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSeries:
    """One line: the name as written, its labels and its value (not a number where the line was cut before it)."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """What a text holds: series in its order, HELP texts by name as written, and lines of vLLM's that could not be read."""

    series: tuple[RawSeries, ...] = ()
    help_texts: tuple[tuple[str, str], ...] = ()
    unread_lines: tuple[str, ...] = ()
    has_cut_end: bool = False
    has_metrics: bool = False  # some line is a sample, of whatever exporter


@dataclass(slots=True)
class _Reading:
    series: list[RawSeries] = field(default_factory=list)
    help_texts: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    num_repairs: int = 0


def decode_text(content: bytes) -> str:
    """The text of a response or a file: gzip undone within the size limit, UTF-16 by its mark, bad bytes replaced."""
    if content.startswith(_GZIP_MAGIC):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
                content = packed.read(LARGEST_TEXT_BYTES)
        except (OSError, EOFError, zlib.error):
            return ""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, "replace")
    return content.decode("utf-8", "replace")


@lru_cache(maxsize=16_384)
def _parsed_head(head: str) -> RawSeries | None:
    """A series' name and labels: the same in every scrape, and most of the parser's work."""
    return _parsed_line(f"{head} 0")


def _parsed(line: str) -> RawSeries | None:
    """What prometheus-client reads in one line; None where it refuses it."""
    plain = _HEAD_AND_VALUE.fullmatch(line)
    if plain is None or len(plain[1]) > _LONGEST_KEPT_HEAD or not _PLAIN_VALUE.fullmatch(plain[2]):
        return _parsed_line(line)
    head = _parsed_head(plain[1])
    return None if head is None else RawSeries(name=head.name, labels=head.labels, value=float(plain[2]))


def _parsed_line(line: str) -> RawSeries | None:
    try:
        samples = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
    except (ValueError, IndexError):
        return None
    if len(samples) != 1 or not _NAME.fullmatch(samples[0].name):  # the parser lets any text stand before the brace
        return None
    try:
        value = float(samples[0].value)
    except OverflowError:
        return None
    return RawSeries(name=samples[0].name, labels=tuple(samples[0].labels.items()), value=value)


def _is_wanted(series: RawSeries) -> bool:
    return series.name == PROCESS_START or is_own(series.name)


def _cut_cache_config(piece: str) -> RawSeries | None:
    """The whole labels of a cache_config_info line that lost its end: each is text on its own."""
    name = re.split(r"[{\s]", piece, maxsplit=1)[0]
    labels = dict(_WHOLE_LABEL.findall(piece))
    if name.removeprefix("ray_") != CACHE_CONFIG_INFO or not labels:
        return None
    return RawSeries(name=name, labels=tuple(labels.items()), value=math.nan)


def _repaired_piece(piece: str, reading: _Reading) -> RawSeries | None:
    if len(piece) > _LONGEST_LINE or reading.num_repairs > _MOST_REPAIRS:
        return None
    head = _HEAD_AND_VALUE.match(piece)
    series = _parsed(piece) or (_parsed(f"{head[1]} {head[2]}") if head else None)
    return series or _cut_cache_config(piece)


def _pieces(line: str) -> Iterator[str]:
    """The parts of a line that the parser refused: entities and typographic quotes undone, then cut where samples begin."""
    text = _TAG.sub(" ", html.unescape(line)).translate(_QUOTES)
    if '=\\"' in text and '="' not in text:
        text = text.replace('\\"', '"')
    first = _FIRST_OWN.search(text)
    if first is not None and "#" not in text[: first.start()]:
        text = text[first.start() :]
    yield from (piece.strip() for piece in _BEGINNING.split(text, maxsplit=_MOST_PIECES) if piece.strip())


def _take_help(line: str, reading: _Reading) -> None:
    described = _HELP.match(line)
    if described is not None:
        reading.help_texts.setdefault(described[1], described[2])


def _take_line(line: str, reading: _Reading) -> None:
    """Puts what one stripped line holds into `reading`."""
    is_comment = line.startswith("#")
    if is_comment and not _SECOND_COMMENT.search(line):
        _take_help(line, reading)
        return
    series = None if is_comment or len(line) > _LONGEST_LINE else _parsed(line)
    if series is not None:
        if _is_wanted(series):
            reading.series.append(series)
        return
    reading.num_repairs += 1
    for piece in _pieces(line) if reading.num_repairs <= _MOST_REPAIRS else [line]:
        if piece.startswith("#"):
            _take_help(piece, reading)
        elif (repaired := _repaired_piece(piece, reading)) is not None:
            reading.series += [repaired] * _is_wanted(repaired)
        elif _FIRST_OWN.match(piece) and not is_comment:
            reading.unread.append(piece[:200])


def _has_lost_digits(last_line: str, lines: list[str]) -> bool:
    """Whether the value that ends a text without a line end may be cut: it lacks the point that all others have."""
    if last_line.startswith("#"):
        return False
    values = [line.rsplit(None, 1)[-1] for line in lines if line and not line.startswith("#")]
    last = last_line.rsplit(None, 1)[-1]
    others = values[:-1]
    return not _FLOAT_AS_WRITTEN.fullmatch(last) and bool(others) and all(map(_FLOAT_AS_WRITTEN.fullmatch, others))


def _unwrapped(lines: list[str]) -> list[str]:
    """Lines that a terminal broke inside their labels, joined again; a number that was broken is marked and so not read."""
    joined: list[str] = []
    open_parts = 0
    for line in lines:
        is_start = line.startswith("#") or not line or _FIRST_OWN.match(line) is not None
        if open_parts and not is_start:
            seam = _SEAM if joined[-1][-1:].isdigit() and line[:1].isdigit() else ""
            joined[-1] += seam + line
            open_parts = 0 if open_parts > _MOST_PARTS or "}" in line else open_parts + 1
            continue
        joined.append(line)
        is_broken = _FIRST_OWN.match(line) is not None and "{" in line and "}" not in line
        open_parts = 1 if is_broken else 0
    return joined


def read_exposition(text: str) -> Exposition:
    """The series of vLLM (and the process's start) in `text`; never raises."""
    if text.count("\n") <= 1 and "\\n" in text:
        text = _WRITTEN_LINE_END.sub("\n", text)
    lines = [line.strip() for line in text.split("\n")]
    has_cut_end = lines[-1] not in {"", "# EOF"}  # OpenMetrics ends with its mark
    interesting = [line for line in _unwrapped(lines) if any(word in line for word in _INTERESTING)]
    reading = _Reading()
    if has_cut_end and interesting and interesting[-1] == lines[-1] and _has_lost_digits(lines[-1], interesting):
        reading.unread.append(interesting.pop()[:200])
    for line in interesting[:_MOST_LINES]:
        _take_line(line, reading)
    reading.unread += [line[:200] for line in interesting[_MOST_LINES:]]
    has_metrics = bool(reading.series) or any(
        _parsed(line[:_LONGEST_LINE]) for line in lines[:50] if line and line[0] != "#"
    )
    return Exposition(
        series=tuple(reading.series),
        help_texts=tuple(reading.help_texts.items()),
        unread_lines=tuple(reading.unread),
        has_cut_end=has_cut_end,
        has_metrics=has_metrics,
    )
