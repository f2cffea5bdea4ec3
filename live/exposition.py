"""A /metrics text, whole, cut or pasted, as raw series.

Each line goes through prometheus-client's parser; a line it refuses is repaired (a log prefix, entities, several samples
on a line) or named as unread. No number comes out that is not in the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from prometheus_client.parser import text_string_to_metric_families

from live.metric_names import CACHE_CONFIG_INFO, OWN_NUMBERS, PROCESS_START, SHARES_AND_TIMES, canonical, is_own
from live.pasted_text import plain_line, plain_text
from live.wrapped_lines import SEAM, unwrapped

_LONGEST_KEPT_HEAD = 4000
_LONGEST_LINE = 8192  # cache_config_info has some 2,000 characters
_MOST_LINES = 40_000
_MOST_REPAIRS = 2_000
_MOST_PIECES = 10_000

_INTERESTING = ("vllm", PROCESS_START)
_HELP = re.compile(r"#\s*HELP\s+(\S+)\s+(.*)")
# Where a sample, or its HELP or TYPE line, begins inside a line that holds more than one.
_BEGINNING = re.compile(r"(?<!\S)(?=#\s*(?:HELP|TYPE)\s|(?:ray_)?vllm:[a-z0-9_]+[{\s])")
_DESCRIBES = re.compile(r"#\s*(?:HELP|TYPE)\s")
_SECOND_COMMENT = re.compile(r"\S\s+#\s*(?:HELP|TYPE)\s")
_FIRST_OWN = re.compile(r"(?:ray_)?vllm:[a-z0-9_]+[{\s]")
_HEAD_AND_VALUE = re.compile(r'([a-zA-Z_:][\w:]*(?:\{[^"}]*(?:"(?:[^"\\]|\\.)*"[^"}]*)*\})?)\s+(\S+)')
_HEAD_SIGN_VALUE = re.compile(_HEAD_AND_VALUE.pattern.replace(r"\s+(\S+)", r"(?:\s*(?:=>?|:|->|→))?\s+(\S+)"))
_CLOSING_SIGNS = "`'\",;|)]}*\\"
_IDENTITY_LABELS = {"model_name", "engine", "model"}
# A sample behind a HELP or TYPE line that lost its line end.
_SAMPLE_IN_COMMENT = re.compile(r"\s(?=(?:ray_)?vllm:[a-z0-9_]+\{[^{}]*\}\s+[-+0-9NI])")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN_VALUE = re.compile(r"[+-]?\d{1,300}(?:\.\d+)?(?:[eE][+-]?\d{1,4})?|[+-]?Inf|NaN")
_WHOLE_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"(?=\s*[,}])')
# What Python's client writes: 12.0, 1.5e+09, NaN. A number without its point may have lost digits.
_FLOAT_AS_WRITTEN = re.compile(r"[+-]?(?:\d+\.\d+(?:e[+-]\d{2,})?|\d+e[+-]\d{2,}|Inf)|NaN")

_DIGITS_OF_A_SHARE = 12  # 7 of 30 blocks are 0.23333333333333334; one that ends early, such as 0.25, is rare


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


@lru_cache(maxsize=40_960)  # fewer than the lines of a text would keep none from one scrape to the next
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
    series = _parsed(piece) or _decorated(piece) or _cut_cache_config(piece)
    is_whole = series is None or not any(SEAM in text for name, text in series.labels if name in _IDENTITY_LABELS)
    return series if is_whole else None


def _decorated(piece: str) -> RawSeries | None:
    """A sample with a sign between its labels and its value, or with closing signs behind it."""
    head = _HEAD_SIGN_VALUE.match(piece)
    value = head[2].rstrip(_CLOSING_SIGNS) if head else ""
    return _parsed(f"{head[1]} {value}") if head and _PLAIN_VALUE.fullmatch(value) else None


def _pieces(line: str) -> Iterator[str]:
    """The parts of a line that the parser refused: what was put around it undone, then cut where samples begin."""
    text = plain_line(line)
    first = _FIRST_OWN.search(text)
    if first is not None and "#" not in text[: first.start()]:
        text = text[first.start() :]
    yield from (piece.strip() for piece in _BEGINNING.split(text, maxsplit=_MOST_PIECES) if piece.strip())


def _take_help(line: str, reading: _Reading) -> None:
    described = _HELP.match(line)
    if described is not None:
        reading.help_texts.setdefault(described[1], described[2])


def _holds_more(line: str) -> bool:
    """Whether a HELP or TYPE line follows on the same line, or a sample follows one."""
    if _SECOND_COMMENT.search(line):
        return True
    return _DESCRIBES.match(line) is not None and _SAMPLE_IN_COMMENT.search(line) is not None


def _take_line(line: str, reading: _Reading) -> None:
    """Puts what one stripped line holds into `reading`."""
    is_comment = line.startswith("#")
    holds_more = "#" in line and _holds_more(line)
    if is_comment and not holds_more:
        _take_help(line, reading)
        return
    series = None if is_comment or holds_more or len(line) > _LONGEST_LINE else _parsed(line)
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
    """Whether the value that ends a text without a line end may be cut.

    It lacks the point that all others have; or it is a part of a thing that is counted whole (1.2 of 1.23e+08); or, in a
    text as a server sends it, it is shorter than a share of blocks is written.
    """
    if last_line.startswith("#"):
        return False
    values = [line.rsplit(None, 1)[-1] for line in lines if line and not line.startswith("#")]
    *others, last = values
    if not _FLOAT_AS_WRITTEN.fullmatch(last):
        return bool(others) and all(map(_FLOAT_AS_WRITTEN.fullmatch, others))
    name = canonical(re.split(r"[{\s]", last_line, maxsplit=1)[0])
    if name not in OWN_NUMBERS or "." not in last or last.endswith(".0"):
        return False
    is_part = not float(last).is_integer()
    is_short = sum(sign.isdigit() for sign in last.lstrip("0.")) < _DIGITS_OF_A_SHARE
    is_as_sent = any(_DESCRIBES.match(line) for line in lines)
    return is_part and (name not in SHARES_AND_TIMES or (is_short and is_as_sent and "e" not in last))


def read_exposition(text: str) -> Exposition:
    """The series of vLLM (and the process's start) in `text`; never raises."""
    raw_lines = plain_text(text).split("\n")
    lines = [line.strip() for line in raw_lines]
    has_cut_end = lines[-1] not in {"", "# EOF"}  # OpenMetrics ends with its mark
    whole, cut = unwrapped(raw_lines)
    interesting = [line for line in whole if any(word in line for word in _INTERESTING)]
    reading = _Reading(unread=[line[:200] for line in cut])
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
