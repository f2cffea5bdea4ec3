"""Readers of values that people write: in a form, a link, a file or a command.

Each returns the typed value or raises `PlanError` with the field's name; none knows what a field is for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from planner.facts import PlanError

Reader: TypeAlias = Callable[[str, object], object]

_LARGEST_INTEGER = 2**53
_LONGEST_TEXT = 500
_MOST_ITEMS = 2000
# vLLM's suffixes (`human_readable_int`, vllm/utils/argparse_utils.py): small letters are decimal, capitals binary.
_MULTIPLIERS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SUFFIXED = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([kKmMgGtT])")
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_YES = frozenset({"true", "1", "yes", "on"})
_NO = frozenset({"false", "0", "no", "off"})


def refuse(name: str, value: object, allowed: str) -> PlanError:
    """The error that says `name` holds `value` and what would be read instead."""
    return PlanError(name, value, f"{name} is {value!r:.60}; write {allowed}.")


def read_integer(name: str, value: object) -> int:
    """A whole number; text may carry vLLM's suffix (32k is 32000, 32K is 32768, 25.6k is 25600)."""
    allowed = "a whole number, or one with a suffix such as 32k (32000) or 32K (32768)"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        value = _integer_of_text(name, value.strip(), allowed)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST_INTEGER:
        raise refuse(name, value, allowed)
    return value


def _integer_of_text(name: str, text: str, allowed: str) -> int:
    match = _SUFFIXED.fullmatch(text)
    if match is not None:
        number, suffix = match.groups()
        if suffix.islower():
            return int(float(number) * _MULTIPLIERS[suffix])
        if "." in number:
            text = f"{name} is {text!r}: decimals go with small suffixes only; write {number}{suffix.lower()} instead."
            raise PlanError(name, text, text)
        return int(number) * _MULTIPLIERS[suffix]
    if _WHOLE.fullmatch(text):
        return int(text)
    raise refuse(name, text, allowed)


def read_length(name: str, value: object) -> int | Literal["auto"]:
    """A length in tokens, or "auto" (also written -1): as long as the memory allows."""
    if isinstance(value, str) and value.strip().lower() == "auto":
        return "auto"
    length = read_integer(name, value)
    return "auto" if length == -1 else length


def read_number(name: str, value: object) -> float:
    """A finite number."""
    if isinstance(value, str):
        try:
            value = float(value.strip()[:40])
        except ValueError:
            raise refuse(name, value, "a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise refuse(name, value, "a number")
    return float(value)


def read_flag(name: str, value: object) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    if word in _YES or word in _NO:
        return word in _YES
    raise refuse(name, value, "true or false")


def read_text(name: str, value: object) -> str:
    """A text of one line and at most 500 characters."""
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_TEXT or not value.isprintable():
        raise refuse(name, value, f"a text of at most {_LONGEST_TEXT} characters on one line")
    return value.strip()


def read_integers(name: str, value: object) -> tuple[int, ...]:
    """Whole numbers: a list, or text with commas or spaces between them."""
    if isinstance(value, str):
        value = [part for part in re.split(r"[\s,\[\]]+", value) if part]
    if not isinstance(value, list | tuple) or len(value) > _MOST_ITEMS:
        raise refuse(name, value, "whole numbers with commas between them")
    return tuple(read_integer(name, item) for item in value)


def read_object(name: str, value: object) -> Mapping[str, object]:
    """A JSON object, or text that holds one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise refuse(name, value, "a JSON object") from None
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refuse(name, value, "a JSON object")
    return value


def read_counts(name: str, value: object) -> tuple[tuple[str, int], ...]:
    """Items per prompt by modality, sorted: {"image": 2}, {"image": {"count": 2}} or image=2,video=0."""
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        value = dict(part.split("=", 1) for part in value.split(",") if part.count("=") == 1)
        if not value:
            raise refuse(name, value, "items by kind, such as image=2,video=0")
    counts = []
    for key, item in read_object(name, value).items():
        count = item.get("count", 1) if isinstance(item, Mapping) else item
        number = read_integer(f"{name}.{key}"[:80], count)
        if number < 0:
            raise refuse(name, value, "counts of at least 0")
        counts.append((read_text(name, key), number))
    return tuple(sorted(counts))


def one_of(*allowed: str) -> Reader:
    """A reader of one of the texts in `allowed`."""

    def read(name: str, value: object) -> str:
        if value not in allowed:
            raise refuse(name, value, f"one of {', '.join(allowed)}")
        return str(value)

    return read
