"""A /metrics text, whole, cut or pasted, as raw series.

A line that is no plain sample is repaired (a log prefix, entities, several samples on a line) or named as unread. No number
comes out that is not in the text. What a hostile text can cost is bounded by `_MOST_…`.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from live.cut_end import may_have_lost_digits
from live.hidden_signs import number_with_hidden_sign
from live.metric_names import CACHE_CONFIG_INFO, OWN_NUMBERS, PROCESS_START, canonical, is_own
from live.other_exporters import other_exporter
from live.pasted_text import plain_line, plain_text
from live.sample_lines import (
    PLAIN_VALUE,
    SAMPLE,
    RawSeries,
    cut_cache_config,
    decorated,
    parsed,
    series_of,
)
from live.wrapped_lines import SEAM, unwrapped

_LONGEST_LINE = 8192  # cache_config_info has some 2,000 characters
_MOST_LINES_OF_A_NUMBER = 600  # of each family that fills a sample's field; there is one line an engine
_MOST_OTHER_LINES = 12_000  # of all others: 25 engines with every histogram
_MOST_NUMBER_LINES = 30_000  # of all families that fill a field, together
_MOST_REPAIRS = 4_000  # lines taken apart: as many for the families that fill a field, and for all others
_MOST_REPAIRED_CHARACTERS = 500_000
_MOST_PIECES = 2_000
_LONGEST_DECORATED_TEXT = 2_000_000  # a longer one is no paste; of it only lines as a server sends them are read

_INTERESTING = ("vllm", PROCESS_START)
_HELP = re.compile(r"#\s*HELP\s+(\S+)\s+(.*)")
# Where a sample, or its HELP or TYPE line, begins inside a line that holds more than one.
_OWN_START = r"(?:ray_)?(?:vllm:[a-z0-9_]+[{\s]|vllm_[a-z0-9_]+\{)"
_BEGINNING = re.compile(rf"(?<!\S)(?=#\s*(?:HELP|TYPE)\s|{_OWN_START})")
_DESCRIBES = re.compile(r"#\s*(?:HELP|TYPE)\s")
_SECOND_COMMENT = re.compile(r"\S\s+#\s*(?:HELP|TYPE)\s")
_FIRST_OWN = re.compile(_OWN_START)
_FIRST_NAME = re.compile(r"(?:ray_)?vllm(?::[a-z0-9_]+|_[a-z0-9_]+(?=\{))")
# In a long text: lines as a server sends them; first those that fill a field, then all others.
_NUMBER_NAMES = "|".join(sorted(name.removeprefix("vllm:") for name in {*OWN_NUMBERS, CACHE_CONFIG_INFO}))
_NUMBER_LINES = re.compile(
    rf"^(?:(?:# HELP )?(?:ray_)?vllm[:_](?:{_NUMBER_NAMES})(?:_total)?[{{ \t]|{PROCESS_START} )[^\n]*", re.MULTILINE
)
_OTHER_LINES = re.compile(rf"^(?:ray_)?vllm[:_](?!(?:{_NUMBER_NAMES})(?:_total)?[{{ \t])[^\n]*", re.MULTILINE)
_IDENTITY_LABELS = {"model_name", "engine", "model"}
# A sample behind a HELP or TYPE line that lost its line end.
_SAMPLE_IN_COMMENT = re.compile(r"\s(?=(?:ray_)?vllm:[a-z0-9_]+\{[^{}]*\}\s+[-+0-9NI])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """What a text holds: series in its order, HELP texts by name as written, and lines of vLLM's that could not be read."""

    series: tuple[RawSeries, ...] = ()
    help_texts: tuple[tuple[str, str], ...] = ()
    unread_lines: tuple[str, ...] = ()
    has_too_many_lines: bool = False  # some are left out, for the text is longer than any real one
    has_cut_end: bool = False
    has_metrics: bool = False  # some line is a sample, of whatever exporter
    hidden_number: str | None = None  # the first number that an invisible sign stands in; such are not read
    other_exporter: str | None = None  # the server whose metrics these are, where there are none of vLLM's


@dataclass(slots=True)
class _Reading:
    series: list[RawSeries] = field(default_factory=list)
    help_texts: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    num_repairs: Counter[bool] = field(default_factory=Counter)  # by whether the line is of such a family
    num_repaired_characters: Counter[bool] = field(default_factory=Counter)
    num_lines: Counter[str] = field(default_factory=Counter)  # by family; those without a field of their own as ""
    has_left_out: bool = False

    def has_room(self, name: str) -> bool:
        """Whether one more line of this family may be read; it is counted."""
        is_number = _is_number(name)
        kind = name if is_number else ""
        self.num_lines[kind] += 1
        has_room = self.num_lines[kind] <= (_MOST_LINES_OF_A_NUMBER if is_number else _MOST_OTHER_LINES)
        self.has_left_out |= not has_room
        return has_room

    def may_repair(self, line: str) -> bool:
        """Whether a line may be taken apart; it is counted."""
        first = _FIRST_NAME.search(line)
        kind = first is not None and _is_number(first[0]) and "#" not in line
        self.num_repairs[kind] += 1
        self.num_repaired_characters[kind] += len(line)
        return (
            self.num_repairs[kind] <= _MOST_REPAIRS and self.num_repaired_characters[kind] <= _MOST_REPAIRED_CHARACTERS
        )


@lru_cache(maxsize=8192)
def _is_wanted(name: str) -> bool:
    return name == PROCESS_START or is_own(name)


@lru_cache(maxsize=8192)
def _is_number(name: str) -> bool:
    known = canonical(name)
    return known in OWN_NUMBERS or known in {CACHE_CONFIG_INFO, PROCESS_START}


def _repaired_piece(piece: str) -> RawSeries | None:
    if len(piece) > _LONGEST_LINE:
        return None
    series = parsed(piece) or decorated(piece) or cut_cache_config(piece)
    is_whole = series is None or not any(SEAM in text for name, text in series.labels if name in _IDENTITY_LABELS)
    return series if is_whole else None


def _pieces(line: str) -> Iterator[str]:
    """The parts of a line that the parser refused: what was put around it undone, then cut where samples begin."""
    text = plain_line(line)
    first = _FIRST_OWN.search(text)
    if first is not None and "#" not in text[: first.start()]:
        text = text[first.start() :]
    yield from (piece.strip() for piece in _BEGINNING.split(text, maxsplit=_MOST_PIECES) if piece.strip())


def _take_help(line: str, reading: _Reading) -> None:
    described = _HELP.match(line)
    if described is not None and len(reading.help_texts) < _MOST_PIECES:
        reading.help_texts.setdefault(described[1], described[2][:_MOST_PIECES])


def _holds_more(line: str) -> bool:
    """Whether a HELP or TYPE line follows on the same line, or a sample follows one."""
    if _SECOND_COMMENT.search(line):
        return True
    return _DESCRIBES.match(line) is not None and _SAMPLE_IN_COMMENT.search(line) is not None


def _take_line(line: str, reading: _Reading) -> None:
    """Puts what one stripped line holds into `reading`."""
    found = SAMPLE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
    if found is not None and PLAIN_VALUE.fullmatch(found[2]):
        name = found[1].partition("{")[0]
        if not _is_wanted(name) or not reading.has_room(name):
            return
        if (series := series_of(found[1], found[2])) is not None:
            reading.series.append(series)
            return
    if line.startswith("#") and len(line) <= _LONGEST_LINE and not _holds_more(line):
        _take_help(line, reading)
        return
    _take_odd_line(line, reading)


def _take_odd_line(line: str, reading: _Reading) -> None:
    """Puts what a line holds that is no plain sample, such as one with a log's prefix, into `reading`."""
    is_comment = line.startswith("#")
    if not reading.may_repair(line):
        reading.unread += [line[:200]] * (_FIRST_OWN.match(line) is not None)
        return
    has_more = "#" in line and _holds_more(line)
    series = None if is_comment or has_more or len(line) > _LONGEST_LINE else parsed(line)
    if series is not None:
        reading.series += [series] * _is_wanted(series.name)
        return
    for piece in _pieces(line):
        if piece.startswith("#"):
            _take_help(piece, reading)
        elif (repaired := _repaired_piece(piece)) is not None:
            reading.series += [repaired] * _is_wanted(repaired.name)
        elif _FIRST_OWN.match(piece) and not is_comment:
            reading.unread.append(piece[:200])


def _lines_of(text: str) -> tuple[list[str], list[str], str]:
    """The stripped lines that may be of use, those that a terminal cut, and the text's last line."""
    if len(text) > _LONGEST_DECORATED_TEXT:
        numbers = itertools.islice(_NUMBER_LINES.finditer(text), _MOST_NUMBER_LINES)
        others = itertools.islice(
            _OTHER_LINES.finditer(text), _MOST_OTHER_LINES + 1
        )  # one more tells that there are more
        whole = [found[0].strip() for found in (*numbers, *others)]
        return whole, [], text[text.rfind("\n") + 1 :].strip()
    raw_lines = plain_text(text).split("\n")
    whole, cut = unwrapped(raw_lines)
    return [line for line in whole if any(word in line for word in _INTERESTING)], cut, raw_lines[-1].strip()


def read_exposition(text: str) -> Exposition:
    """The series of vLLM (and the process's start) in `text`; never raises."""
    lines, cut, last = _lines_of(text)
    has_cut_end = last not in {"", "# EOF"}  # OpenMetrics ends with its mark
    if has_cut_end and last in lines[-1:] and may_have_lost_digits(last, lines):
        cut = [*cut, lines.pop()]
    reading = _Reading(unread=[line[:200] for line in cut])
    for line in lines:
        _take_line(line, reading)
    has_metrics = bool(reading.series) or any(
        parsed(line.strip()[:_LONGEST_LINE])
        for line in text[:200_000].split("\n")[:50]
        if line.strip() and line[0] != "#"
    )
    other = None if reading.series else other_exporter(text)
    return Exposition(
        series=tuple(reading.series),
        help_texts=tuple(reading.help_texts.items()),
        unread_lines=tuple(reading.unread),
        has_too_many_lines=reading.has_left_out,
        has_cut_end=has_cut_end,
        hidden_number=number_with_hidden_sign(text),
        has_metrics=has_metrics or other is not None,
        other_exporter=other,
    )
