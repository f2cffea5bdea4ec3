"""The settings that a start prints: the engine's config line, "non-default args" and V0's Namespace, as names and values.

These are Python's own spellings, possibly cut short: what can be read as a literal is one, anything else stays a text.
"""

from __future__ import annotations

import ast
import re

_OPENING = "([{<"
_CLOSING = ")]}>"
_PAIR = re.compile(r"\s*['\"]?([A-Za-z_]\w{0,60})['\"]?\s*[=:]\s*(.*)", re.DOTALL)
_MOST_PAIRS = 400
_PLAIN_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?(?:e-?\d{1,2})?")  # as Python prints one
_ENUM = re.compile(r"<(\w+\.\w+): .*>")

Pairs = tuple[tuple[str, object], ...]


def split_outside(text: str) -> list[str]:
    """The parts of `text` between commas that stand outside brackets and quotes; ends where a bracket closes too much."""
    parts, depth, quote, begin = [], 0, "", 0
    position, end = 0, len(text)
    while position < end:
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "'\"" and not (position and text[position - 1].isalnum()):
            quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
            if depth < 0:
                break
        elif character == "," and depth == 0:
            parts.append(text[begin:position])
            begin = position + 1
        position += 1
    parts.append(text[begin:position])
    return parts


def read_pairs(text: str) -> Pairs:
    """The settings in `text`: name=value or 'name': value, separated by commas; what is neither is left out."""
    pairs: list[tuple[str, object]] = []
    for part in split_outside(text)[:_MOST_PAIRS]:
        match = _PAIR.fullmatch(part)
        if match is not None and not _is_cut(match[2].strip()):
            pairs.append((match[1], read_value(match[2].strip())))
        elif pairs and part.strip()[:1].isdigit():
            pairs.pop()  # a broken number with commas, of which this is the rest
    return tuple(pairs)


def _is_cut(text: str) -> bool:
    """Whether a value ends within its quotes or brackets: the line was cut there."""
    if text[:1] in ("'", '"'):
        return len(text) < 2 or text[-1] != text[0]
    return sum(map(text.count, "([{")) > sum(map(text.count, ")]}"))


def read_value(text: str) -> object:
    """The Python literal that `text` is, an enum's name, or the text itself."""
    if match := _ENUM.fullmatch(text):
        return match[1]
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text.strip("'\"")[:2000]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return text if is_number and _PLAIN_NUMBER.fullmatch(text) is None else value


def read_object_text(text: str) -> dict[str, object]:
    """The settings of a nested object such as {"level":3,"cudagraph_mode":[2,1]} or SpeculativeConfig(method='mtp', ...)."""
    start = min((text.find(bracket) for bracket in "{(" if bracket in text), default=-1)
    return dict(read_pairs(text[start + 1 :])) if start >= 0 else {}


def engine_config(message: str) -> Pairs:
    """The settings of the line "Initializing a V1 LLM engine (v...) with config: ..."."""
    _, found, config = message.partition("with config: ")
    return read_pairs(_without_class(config)) if found else ()


def _without_class(config: str) -> str:
    """V0 of 0.2 and before, and some forks, wrap it: VllmConfig(model=..., ...)."""
    match = re.match(r"\w*Config\(", config)
    return config[match.end() :] if match else config


def arguments(message: str) -> Pairs:
    """What the user gave: the line "non-default args: {...}", or "args: Namespace(...)" of older releases."""
    match = re.search(r"non-default args: \{|args: Namespace\(|Namespace\(", message)
    return read_pairs(message[match.end() :]) if match else ()
