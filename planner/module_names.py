"""Whether a quantisation config's names, wildcards and patterns mean a module.

Configs name modules as the checkpoint does, vLLM as its classes do; they differ in the leading "model." and
"language_model." parts only, so names are compared without those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

_LEADING = ("model.", "language_model.", "thinker.")
_WRAPPERS = ("", "model.", "language_model.model.", "model.language_model.", "language_model.")


@lru_cache(maxsize=65536)
def bare(name: str) -> str:
    """The name without leading "model." and "language_model." parts: "layers.3.mlp.down_proj"."""
    while True:
        for prefix in _LEADING:
            if name.startswith(prefix):
                name = name[len(prefix) :]
                break
        else:
            return name


@lru_cache(maxsize=16384)
def spellings(name: str) -> tuple[str, ...]:
    """The name as given and as either side may spell it."""
    plain = bare(name)
    return tuple(dict.fromkeys((name, *(wrapper + plain for wrapper in _WRAPPERS))))


def holds_experts(name: str, entries: Iterable[str]) -> bool:
    """Whether an entry names a part of this module (experts are listed one by one)."""
    plain = bare(name)
    return any(plain in entry and "experts" in entry for entry in entries)


def is_part(name: str, entries: Iterable[str]) -> bool:
    """Whether any entry is a substring of the module's name."""
    text = "\n".join(spellings(name))  # no entry spans two of them: names hold no line break
    return any(entry in text for entry in entries)


def is_wild(name: str, entries: Iterable[str]) -> bool:
    """Whether any shell-style entry matches the name."""
    pattern = _wild_pattern(tuple(entries))
    return pattern is not None and any(pattern.match(spelling) for spelling in spellings(name))


@lru_cache(maxsize=256)
def _wild_pattern(entries: tuple[str, ...]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(translate, entries))) if entries else None


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error:
        return None


def is_pattern(name: str, expression: str) -> bool:
    """Whether the regular expression matches from the name's start; a broken expression matches nothing."""
    pattern = _pattern(expression)
    return pattern is not None and any(pattern.match(spelling) for spelling in spellings(name))


# Checkpoint prefixes of multimodal models, and what vLLM's classes call these parts.
_ENGINE_PREFIXES = (
    ("model.language_model.", "language_model.model."),
    ("thinker.model.", "language_model.model."),
    ("thinker.", ""),
    ("model.visual.", "visual."),
)


@lru_cache(maxsize=16384)
def engine_name(name: str) -> str:
    """The name that vLLM's own classes give a module of this checkpoint name."""
    found = next(((old, new) for old, new in _ENGINE_PREFIXES if name.startswith(old)), ("", ""))
    return found[1] + name.removeprefix(found[0])


def is_engine_pattern(name: str, expression: str) -> bool:
    """Whether the regular expression matches vLLM's own name from its start: vLLM does not rewrite patterns to its names."""
    pattern = _pattern(expression)
    return pattern is not None and pattern.match(engine_name(name)) is not None
