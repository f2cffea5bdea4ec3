"""One line of a metrics text as one raw series: plain ones by a pattern, all others through prometheus-client's parser."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from prometheus_client.parser import text_string_to_metric_families

from live.metric_names import CACHE_CONFIG_INFO

_HEAD = r'[a-zA-Z_:][\w:]*(?:\{[^"}]*(?:"(?:[^"\\]|\\.)*"[^"}]*)*\})?'
# A time may stand behind the value, and behind that OpenMetrics' exemplar.
SAMPLE = re.compile(rf"({_HEAD})\s+(\S+)(?:\s+-?\d+(?:\.\d+)?)?(?:\s+#\s*\{{[^{{}}]*\}}\s+\S+(?:\s+[\d.]+)?)?")
_HEAD_SIGN_VALUE = re.compile(rf"({_HEAD})(?:\s*(?:=>?|:|->|→))?\s+(\S+)")
_PLAIN_TEXT = r'"((?:[^"\\\n]|\\[\\n"])*)"'
_PLAIN_LABEL = re.compile(rf"([a-zA-Z_][a-zA-Z0-9_]*)={_PLAIN_TEXT}(?:,|$)")
_PLAIN_HEAD = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{([^\n]*)\})?")
_ESCAPE = re.compile(r"\\(.)")
PLAIN_VALUE = re.compile(r"[+-]?\d{1,300}(?:\.\d+)?(?:[eE][+-]?\d{1,4})?|[+-]?Inf|NaN")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_WHOLE_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"(?=\s*[,}])')
_UNIT = re.compile(r"\s*(?:%|[a-zA-Zµ])")
_CLOSING_SIGNS = "`'\",;|)]}*\\"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSeries:
    """One line: the name as written, its labels and its value (not a number where the line was cut before it)."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@lru_cache(maxsize=40_960)  # fewer than the lines of a text would keep none from one scrape to the next
def _parsed_head(head: str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """A series' name and labels: the same in every scrape, and most of the work."""
    plain = _PLAIN_HEAD.fullmatch(head)
    if plain is not None:
        inside = plain[2] or ""
        pairs = _PLAIN_LABEL.findall(inside)
        length = sum(len(name) + len(text) + 4 for name, text in pairs)  # each with its signs ="",
        if len(dict(pairs)) == len(pairs) and length - len(inside) in {0, 1}:
            return plain[1], tuple((name, _unescaped(text)) for name, text in pairs)
    series = _parsed_line(f"{head} 0")
    return None if series is None else (series.name, series.labels)


def _unescaped(text: str) -> str:
    """A label's text as it was: the format writes a line end, a quote and a backslash as two signs."""
    return _ESCAPE.sub(lambda sign: "\n" if sign[1] == "n" else sign[1], text) if "\\" in text else text


def parsed(line: str) -> RawSeries | None:
    """What a line without anything around it says; None where it is no sample."""
    found = SAMPLE.fullmatch(line)
    if found is None or not PLAIN_VALUE.fullmatch(found[2]):
        return _parsed_line(line)
    return series_of(found[1], found[2])


def series_of(head: str, value: str) -> RawSeries | None:
    """The series with this name and these labels as written, and a number; None where they are none."""
    named = _parsed_head(head)
    return None if named is None else RawSeries(name=named[0], labels=named[1], value=float(value))


def _parsed_line(line: str) -> RawSeries | None:
    """What prometheus-client reads in one line; None where it refuses it."""
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


def decorated(piece: str) -> RawSeries | None:
    """A sample with a sign between its labels and its value, or with closing signs behind it."""
    head = _HEAD_SIGN_VALUE.match(piece)
    if head and _UNIT.match(piece, head.end()):
        return None  # 1.5 K and 52 % are other numbers than they begin with
    value = head[2].rstrip(_CLOSING_SIGNS) if head else ""
    return parsed(f"{head[1]} {value}") if head and PLAIN_VALUE.fullmatch(value) else None


def cut_cache_config(piece: str) -> RawSeries | None:
    """The whole labels of a cache_config_info line that lost its end: each is text on its own."""
    name = re.split(r"[{\s]", piece, maxsplit=1)[0]
    labels = dict(_WHOLE_LABEL.findall(piece))
    if name.removeprefix("ray_") != CACHE_CONFIG_INFO or not labels:
        return None
    return RawSeries(name=name, labels=tuple(labels.items()), value=math.nan)
