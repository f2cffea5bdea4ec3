"""Signs that nobody sees in a text: taken out, except within a number, where what is left would be another number."""

from __future__ import annotations

import html
import itertools
import re

_HIDDEN = "\u200b\u200c\u200d\u2060\ufeff\xad\0"
_SIGNS = re.compile(f"[{_HIDDEN}]++")
_MOST_LOOKED_AT = 100_000
_TERMINAL_CODE = re.compile(
    r"(?:\x1b|␛|\^\[|\\(?:x1b|033|u001[bB]|e)(?=\[))(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\))"
)
_NUMERIC_ENTITY = re.compile(r"&#(?:\d{1,9}|[xX][0-9a-fA-F]{1,8});?")
_NO_SIGN = "\ufffd"
# What may stand before a sign, and what then makes it part of a number: 6|4, 6|.4, 6|e+4, 6.|4, 6e|4, 6e+|4, +|6.
_SIGNED = rf"[+-]?[{_HIDDEN}]*+\d"
_EXPONENT = rf"(?:[eE][{_HIDDEN}]*+{_SIGNED})"
_REST = rf"(?:\d|{_EXPONENT})"
_BEFORE_AND_AFTER = (
    (r"\d", rf"(?:\.[{_HIDDEN}]*+)?{_REST}"),
    (r"\.", _REST),
    (r"[\d.][eE]", _SIGNED),
    (r"[\d.][eE][+-]", r"\d"),
    (r'[\s"][+-]', rf"\.?[{_HIDDEN}]*+\d"),
)


_IN_NUMBER = re.compile("|".join(rf"(?<={before})[{_HIDDEN}]++(?={after})" for before, after in _BEFORE_AND_AFTER))
_NUMBER_BEGINS = re.compile(r"[\d.eE+-]{1,20}\Z")
_NUMBER_GOES_ON = re.compile(rf"[\d.eE+{_HIDDEN}-]{{1,30}}")


def without_hidden_signs(text: str) -> str:
    """The text without invisible signs; one within a number stays, so that the number is not read."""
    if text.isascii() and "\0" not in text:
        return text
    return _SIGNS.sub(lambda found: found[0] if _IN_NUMBER.match(text, found.start()) else "", text)


def number_with_hidden_sign(text: str) -> str | None:
    """The first number of `text` that an invisible sign stands in, as it is written; None where none does."""
    if text.isascii() and "\0" not in text:
        return None
    for found in itertools.islice(_SIGNS.finditer(text), _MOST_LOOKED_AT):
        if _IN_NUMBER.match(text, found.start()):
            begin = _NUMBER_BEGINS.search(text[max(found.start() - 20, 0) : found.start()])
            rest = _NUMBER_GOES_ON.match(text, found.start())
            return (begin[0] if begin else "") + (rest[0] if rest else "")
    return None


def without_terminal_codes(text: str) -> str:
    """The text without colours and other codes; one that moves the cursor within a number leaves a sign there."""
    return _TERMINAL_CODE.sub(lambda code: "" if _only_shows(code[0]) else _left_of(code, text), text)


def _only_shows(code: str) -> bool:
    """Whether a code changes how a text looks and not what it says: colours, what is behind the line's end, links."""
    return code[-1] in "mK\x07\\"


def _left_of(code: re.Match[str], text: str) -> str:
    before, after = text[max(code.start() - 1, 0) : code.start()], text[code.end() : code.end() + 1]
    return _NO_SIGN if before in {*"0123456789.+-"} and after in {*"0123456789."} else ""


def unescaped(text: str) -> str:
    """The text with HTML's entities as what they stand for; one that stands for nothing is a sign all the same."""
    return html.unescape(_NUMERIC_ENTITY.sub(lambda found: html.unescape(found[0]) or _NO_SIGN, text))
