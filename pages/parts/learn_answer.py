"""Reads what a learner types as an answer: a number as it is written in any country, with a unit or without. Pure."""

from __future__ import annotations

import math
import re
import unicodedata

from pages.parts import words
from pages.parts.language import t
from planner.facts import PlanError
from planner.units import GIB, KIB, MIB

_LONGEST = 40  # signs
_BYTES = {
    "b": 1, "byte": 1, "bytes": 1, "字节": 1, "kb": 10**3, "kib": KIB, "mb": 10**6, "mib": MIB, "gb": 10**9, "gib": GIB,
    "tb": 10**12, "tib": 1024 * GIB,
}  # fmt: skip
_THOUSANDS = {"k": 10**3, "m": 10**6}
_ANSWER = re.compile(r"([+-]?)([\d.,]*\d[.,]?)(e[+-]?\d{1,3})?([^\d+-]*)", re.IGNORECASE)
_NO_PLACE_VALUE = ("<super>", "<sub>", "<circle>")  # NFKC would make 102 of 10²
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[\s_'’]+(?=\d)")
_ABOUT = re.compile(r"^(?:about|ca\.?|大约|约|[≈~=])\s*", re.IGNORECASE)
_GROUPED = {",": re.compile(r"[1-9]\d{0,2}(?:,\d{3})+"), ".": re.compile(r"[1-9]\d{0,2}(?:\.\d{3}){2,}")}


def read_answer(text: str, unit: str) -> float:
    """The number that `text` says, in `unit`; raises `PlanError` for what is no number or has a unit that does not fit.

    "24.3", "24,3", "24.3 GiB", "24,900 MiB" and full-width digits are all read; a unit of bytes is converted.
    """
    if any(unicodedata.decomposition(sign).startswith(_NO_PLACE_VALUE) for sign in text):
        raise _no_number(text)
    plain = _ABOUT.sub("", unicodedata.normalize("NFKC", text).replace("−", "-").strip()).rstrip("。! ")
    if not plain:
        raise PlanError("answer", None, t("Give an answer first."))
    match = _ANSWER.fullmatch(_BETWEEN_DIGITS.sub("", plain)) if len(plain) <= _LONGEST else None
    if match is None:
        raise _no_number(text)
    sign, digits, power, suffix = match.groups()
    number = float(f"{sign}{_decimal(digits, text)}{power or ''}") * _factor(suffix.strip().rstrip("."), unit)
    if not math.isfinite(number):
        raise _no_number(text)
    return number


def _decimal(digits: str, text: str) -> str:
    """`digits` with a point for decimals and nothing between thousands."""
    marks = [sign for sign in digits if sign in ",."]
    if not marks:
        return digits
    if len(set(marks)) == 2:
        other = "," if marks[-1] == "." else "."
        whole, _, rest = digits.replace(other, "").rpartition(marks[-1])
        if marks.count(marks[-1]) == 1:
            return f"{whole}.{rest}"
    elif _GROUPED[marks[0]].fullmatch(digits):
        return digits.replace(marks[0], "")
    elif len(marks) == 1:
        return digits.replace(",", ".")
    raise _no_number(text)


def _factor(suffix: str, unit: str) -> float:
    """What a number with `suffix` is multiplied by to be in `unit`."""
    name, wanted = suffix.casefold().removeprefix("个").strip(), unit.casefold()
    if name in {"", wanted, wanted.removesuffix("s")}:
        return 1.0
    if wanted in _BYTES:
        if name in _BYTES:
            return _BYTES[name] / _BYTES[wanted]
    elif name in _THOUSANDS:
        return float(_THOUSANDS[name])
    raise PlanError(
        "unit",
        suffix,
        t("The unit “{given}” does not fit here: answer in {unit}.", given=words.plain(suffix), unit=unit),
    )


def _no_number(text: str) -> PlanError:
    shown = words.plain(text if len(text) <= _LONGEST else text[:_LONGEST] + "…")
    return PlanError("answer", text, t("“{text}” is no number that can be read. Write one such as 24.3.", text=shown))
