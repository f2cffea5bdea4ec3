"""Finished English sentences of the planner and of engines' watchers in the reader's language, by template.

Their makers know of no language: a sentence comes with its numbers in it. The catalogue holds what they can say as
templates ("One request of {max_model_len} tokens needs {gib} GiB …", context `sentence`); the template that a sentence
matches gives the translation its values. What matches none stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter

from pages.parts.language import ENGLISH, catalogue, language

CONTEXT = "sentence"
_DEEPEST = 4  # sentences within sentences
_HAS_WORDS = re.compile(r"[A-Za-z]{2}")
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+")


@dataclass(frozen=True, slots=True)
class _Template:
    """One thing the makers can say: the pattern it matches and what it becomes."""

    longest_literal: str
    num_literal: int
    pattern: re.Pattern[str]
    names: tuple[str, ...]
    translation: str


def said(text: str) -> str:
    """`text`, a finished English sentence or a marked one, in the reader's language."""
    code = language()
    return text if code == ENGLISH or not text else _said(code, text)


@lru_cache(maxsize=8192)
def _said(code: str, text: str, depth: int = 0) -> str:
    whole = _by_template(code, text, depth)
    if whole is not None:
        return whole
    parts = _SENTENCE_END.split(text)
    if len(parts) < 2 or depth >= _DEEPEST:
        return text
    return _joined(list(_by_parts(code, parts, depth)))


def _by_parts(code: str, parts: list[str], depth: int) -> Iterator[str]:
    """The longest runs of `parts` that match a template, one after the other; the rest as it is."""
    place = 0
    while place < len(parts):
        for end in range(len(parts), place, -1):
            run = " ".join(parts[place:end])
            found = _by_template(code, run, depth)
            if found is not None or end == place + 1:
                yield found if found is not None else run
                place = end
                break


def _joined(parts: list[str]) -> str:
    """Chinese sentences stand beside each other without a gap; where either side is Latin there is one."""
    text = parts[0]
    for part in parts[1:]:
        text += part if text[-1:] in "。！？；：" else f" {part}"
    return text


def _by_template(code: str, text: str, depth: int) -> str | None:
    found = catalogue(code)
    for translated in (found.gettext(text), found.pgettext(CONTEXT, _escaped(text))):
        if translated not in {text, _escaped(text)}:
            return translated.replace("{{", "{").replace("}}", "}")
    for template in _templates(code):
        if template.longest_literal not in text:
            continue
        match = template.pattern.fullmatch(text)
        if match is not None:
            values = zip(template.names, match.groups(), strict=True)
            return template.translation.format(**{name: _inner(code, value, depth) for name, value in values})
    return None


def _inner(code: str, value: str, depth: int) -> str:
    """A value of a template: itself a sentence, or a name or number that stays."""
    return _said(code, value, depth + 1) if depth < _DEEPEST and _HAS_WORDS.search(value) else value


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@lru_cache
def _templates(code: str) -> tuple[_Template, ...]:
    """All templates with values in them, the most literal first."""
    prefix = f"{CONTEXT}\x04"
    entries: dict[str, str] = getattr(catalogue(code), "_catalog", {})
    made = [_template(key.removeprefix(prefix), value) for key, value in entries.items() if str(key).startswith(prefix)]
    return tuple(sorted((each for each in made if each.names), key=lambda each: -each.num_literal))


def _template(source: str, translation: str) -> _Template:
    literals, names, pattern = [], [], ""
    for literal, name, _, _ in Formatter().parse(source):
        literals.append(literal)
        pattern += re.escape(literal)
        if name is not None:
            names.append(name)
            pattern += "(.*?)"
    return _Template(
        longest_literal=max(literals, key=len),
        num_literal=sum(map(len, literals)),
        pattern=re.compile(pattern, re.DOTALL),
        names=tuple(names),
        translation=translation,
    )
