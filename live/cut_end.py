"""Whether the sample that ends a text without a line end is whole: a server ends its text with one, a cut leaves none.

What Python's client writes tells: `12.0` cannot go on, for larger numbers are `1.2e+07`; `1.0`, `12` and `0.0` can.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from live.metric_names import CACHE_CONFIG_INFO, OWN_NUMBERS, REQUEST_GAUGES, SHARES_AND_TIMES, canonical

_DESCRIBES = re.compile(r"#\s*(?:HELP|TYPE)\s")
# What Python's client writes: 12.0, 1.5e+09, NaN. A number without its point may have lost digits.
_FLOAT_AS_WRITTEN = re.compile(r"[+-]?(?:\d+\.\d+(?:e[+-]\d{2,})?|\d+e[+-]\d{2,}|Inf)|NaN")
# No count goes on behind these: nought, two or more digits before the point, and an exponent (1e+06 and more).
_WHOLE_COUNT = re.compile(r"0\.0|\d{2,}\.0|\d(?:\.\d+)?e\+\d{2}|NaN|[+-]?Inf")
_WHOLE_REQUESTS = re.compile(r"\d+\.0")  # fewer than a million wait or run
_TINY_SHARE = re.compile(r"\d(?:\.\d+)?e-\d{2}")
_BEHIND_LABELS = re.compile(r"[^{\s]+(?:\{.*\})?\s+(.*)")
_DIGITS_OF_A_SHARE = 16  # 7 of 30 blocks are 0.23333333333333334; one that ends early, such as 0.25, is rare


def may_have_lost_digits(last_line: str, lines: Sequence[str]) -> bool:
    """Whether the value of `last_line`, which ends a text without a line end, may be cut; `lines` are all of vLLM's lines."""
    behind = _BEHIND_LABELS.fullmatch(last_line)
    if last_line.startswith("#") or behind is None:
        return False  # no value to be taken
    name = canonical(re.split(r"[{\s]", last_line, maxsplit=1)[0])
    value, *more = behind[1].split()
    if more or name == CACHE_CONFIG_INFO:
        return False  # a time or an exemplar stands behind it; or the labels are what counts
    is_as_sent = any(_DESCRIBES.match(line) for line in lines)
    return not (_is_whole(name, value) if is_as_sent else _looks_whole(name, value, lines))


def _is_whole(name: str, value: str) -> bool:
    """Whether nothing can follow, in a text as a server sends it."""
    if name in SHARES_AND_TIMES:
        digits = sum(sign.isdigit() for sign in value.lstrip("0."))
        return digits >= _DIGITS_OF_A_SHARE or _TINY_SHARE.fullmatch(value) is not None
    if name in REQUEST_GAUGES:
        return _WHOLE_REQUESTS.fullmatch(value) is not None
    return _WHOLE_COUNT.fullmatch(value) is not None


def _looks_whole(name: str, value: str, lines: Sequence[str]) -> bool:
    """Whether the value is whole if lines were picked one by one (by grep, by hand), as a text without HELP lines is."""
    if not _FLOAT_AS_WRITTEN.fullmatch(value):
        others = [line.rsplit(None, 1)[-1] for line in lines[:-1] if line]
        return bool(others) and not any(map(_FLOAT_AS_WRITTEN.fullmatch, others))
    is_part = name in OWN_NUMBERS and name not in SHARES_AND_TIMES and "e" not in value and not value.endswith(".0")
    return not is_part  # a thing that is counted whole: 1.2 is of 1.23e+08
