"""Finished English sentences of the planner and of engines' watchers in the reader's language, by template.

Their makers know of no language: a sentence comes with its numbers in it. The catalogue holds what they can say as
templates ("One request of {max_model_len} tokens needs {gib} GiB …", context `sentence`); the template that a sentence
matches gives the translation its values. What matches none stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter

from pages.parts.language import ENGLISH, catalogue, language, mark

CONTEXT = "sentence"
_DEEPEST = 4  # sentences within sentences
_HAS_WORDS = re.compile(r"[A-Za-z]{2}")
_WORDS = re.compile(r"[A-Za-z]{2}\S* [A-Za-z]|[A-Za-z] \S*[A-Za-z]{2}")
_SEVERAL = re.compile(r"[:;=] ")
_UNIT = re.compile(r" (GiB|MiB|tokens|bytes|%|blocks|layers|requests|KV)\b|x | x ")
_NUMBER = r"([-−+]?[\d.,]+)"
_COUNTED = re.compile(r"([\d,.]+) ([a-z][a-z ]*)")
# What fills a hole beside sentences: a number with its noun (others are in `simulate_words`), a part of the profile run.
COUNTED = (
    mark("{number} prompt token"), mark("{number} prompt tokens"), mark("{number} cached block"),
    mark("{number} cached blocks"), mark("sampler"), mark("layers"), mark("encoder"),
)  # fmt: skip
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+")
_SUM = re.compile(r"(.+) = (-?[\d.,]+ GiB)", re.DOTALL)  # a formula's terms and what they come to
_REMARK = re.compile(r"(.+) \((.+)\)", re.DOTALL)
_MARKS = {".": "。", "!": "！", "?": "？", ";": "；", ":": "："}
_FEW_LETTERS = 10  # a template with less of its own matches only what is known word by word
_START = 4  # signs by which templates are found


@dataclass(frozen=True, slots=True)
class _Template:
    """One thing the makers can say: the patterns it matches, the closer one first, and what it becomes."""

    start: str
    end: str
    longest_literal: str
    num_letters: int
    patterns: tuple[re.Pattern[str], ...]
    names: tuple[str, ...]
    translation: str


@dataclass(frozen=True, slots=True)
class _Templates:
    """All templates with values in them, those with most words of their own first."""

    by_start: dict[str, list[_Template]]
    others: tuple[_Template, ...]
    tail: re.Pattern[str]


def said(text: str) -> str:
    """`text`, a finished English sentence or a marked one, in the reader's language."""
    code = language()
    return text if code == ENGLISH or not text else _said(code, text)


@lru_cache(maxsize=8192)
def _said(code: str, text: str, depth: int = 0) -> str:
    for read in (_exactly, _by_template, _by_sum, _by_tail, _by_remark, _by_sentences):
        found = read(code, text, depth)
        if found is not None:
            return found
    return text


def _by_sum(code: str, text: str, depth: int) -> str | None:
    match = _SUM.fullmatch(text)
    return None if match is None else f"{_inner(code, match[1], depth)} = {match[2]}"


def _by_remark(code: str, text: str, depth: int) -> str | None:
    """A thing with a remark in brackets after it, where both are known."""
    match = _REMARK.fullmatch(text)
    if match is None:
        return None
    thing, remark = (_inner(code, part, depth) for part in match.groups())
    return None if thing == match[1] and remark == match[2] else f"{thing}（{remark}）"


def _by_sentences(code: str, text: str, depth: int) -> str | None:
    parts = _SENTENCE_END.split(text)
    return _joined(list(_by_parts(code, parts, depth))) if len(parts) > 1 and depth < _DEEPEST else None


def _by_parts(code: str, parts: list[str], depth: int) -> Iterator[str]:
    """The longest runs of `parts` that are known, one after the other; the rest as it is."""
    place = 0
    while place < len(parts):
        for end in range(len(parts), place, -1):
            run = " ".join(parts[place:end])
            found = _exactly(code, run) or _exactly_marked(code, run) or _by_template(code, run, depth)
            if found is None and end == place + 1:
                found = _without_mark(code, run, depth)
            if found is not None or end == place + 1:
                yield run if found is None else found
                place = end
                break


def _without_mark(code: str, run: str, depth: int) -> str | None:
    """A part that is known without the mark at its end, with that mark."""
    bare = run[:-1] if run[-1:] in _MARKS else run
    found = _said(code, bare, depth + 1)
    return None if found == bare else found + _MARKS.get(run[len(bare) :], "")


def _exactly_marked(code: str, run: str) -> str | None:
    found = _exactly(code, run[:-1]) if run[-1:] in _MARKS else None
    return None if found is None else found + _MARKS[run[-1]]


def _joined(parts: list[str]) -> str:
    """Chinese sentences stand beside each other without a gap; where either side is Latin there is one."""
    text = parts[0]
    for part in parts[1:]:
        text += part if text[-1:] in "。！？；：" else f" {part}"
    return text


def _exactly(code: str, text: str, _depth: int = 0) -> str | None:
    """A text that the catalogue holds as it is, or a number with a noun that it knows."""
    found = catalogue(code)
    for translated in (found.gettext(text), found.pgettext(CONTEXT, _escaped(text))):
        if translated not in {text, _escaped(text)}:
            return str(translated).replace("{{", "{").replace("}}", "}")
    counted = _COUNTED.fullmatch(text)
    if counted is not None:
        source = f"{{number}} {counted[2]}"
        translated = found.gettext(source)
        if translated != source:
            return str(translated).format(number=counted[1])
    return None


def _by_template(code: str, text: str, depth: int) -> str | None:
    templates = _templates(code)
    for template in (*templates.by_start.get(text[:_START], ()), *templates.others):
        match = _match(template, text)
        if match is not None:
            values = {
                name: (value, _inner(code, value, depth))
                for name, value in zip(template.names, match.groups(), strict=True)
            }
            if template.num_letters >= _FEW_LETTERS or all(_is_known(*pair) for pair in values.values()):
                told: str = template.translation.format(**{name: inner for name, (_, inner) in values.items()})
                return told
    return None


def _is_known(value: str, inner: str) -> bool:
    """Whether a value is no sentence, or one that was translated: what a template of few words may take."""
    return not _WORDS.search(value) or (value != inner and not _SEVERAL.search(value))


def _by_tail(code: str, text: str, depth: int) -> str | None:
    """A known text with a known continuation (" + shared workspace 0.81") after it."""
    match = _templates(code).tail.fullmatch(text)
    if match is None:
        return None
    head, tail = (_inner(code, part, depth) for part in match.groups())
    return None if head == match[1] or tail == match[2] else head + tail


def _match(template: _Template, text: str) -> re.Match[str] | None:
    if not (text.startswith(template.start) and text.endswith(template.end) and template.longest_literal in text):
        return None
    return next(filter(None, (pattern.fullmatch(text) for pattern in template.patterns)), None)


def _inner(code: str, value: str, depth: int) -> str:
    """A value of a template: itself a sentence, or a name or number that stays."""
    return _said(code, value, depth + 1) if depth < _DEEPEST and _HAS_WORDS.search(value) else value


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@lru_cache
def _templates(code: str) -> _Templates:
    prefix = f"{CONTEXT}\x04"
    entries: Mapping[str, str] = getattr(catalogue(code), "_catalog", {})
    sources = {str(key).removeprefix(prefix): value for key, value in entries.items() if str(key).startswith(prefix)}
    tails = "|".join(_pattern(source, lambda _, __: ".*?") for source in sources if source[:1] in " ,;")
    made = [_template(source, translation, tails) for source, translation in sources.items()]
    made = sorted((each for each in made if each.names), key=lambda each: -each.num_letters)
    by_start: dict[str, list[_Template]] = {}
    for each in made:
        if len(each.start) >= _START:
            by_start.setdefault(each.start[:_START], []).append(each)
    others = tuple(each for each in made if len(each.start) < _START)
    return _Templates(by_start=by_start, others=others, tail=re.compile(f"(.+?)({tails or 'x^'})", re.DOTALL))


def _pattern(source: str, hole: Callable[[str, str], str]) -> str:
    """The template as a regular expression; `hole` gives what stands for a hole between the texts around it."""
    pieces = [(literal, name) for literal, name, _, _ in Formatter().parse(source)]
    after = [*(literal for literal, _ in pieces[1:]), ""]
    return "".join(
        re.escape(literal) + ("" if name is None else hole(literal, following))
        for (literal, name), following in zip(pieces, after, strict=True)
    )


def _template(source: str, translation: str, tails: str) -> _Template:
    pieces = list(Formatter().parse(source))
    literals = [literal for literal, _, _, _ in pieces]

    def close(before: str, after: str) -> str:
        if _UNIT.match(after):
            return _NUMBER
        is_tail = (not before or before[-1].isalnum()) and (before, after) != (
            "",
            literals[1] if len(literals) > 1 else "",
        )
        return f"(|{tails})" if is_tail else "(.+?)"

    return _Template(
        start=literals[0],
        end=literals[-1] if pieces[-1][1] is None else "",
        longest_literal=max(literals, key=len),
        num_letters=sum(sign.isalpha() for literal in literals for sign in literal),
        patterns=tuple(re.compile(_pattern(source, hole), re.DOTALL) for hole in (close, lambda _, __: "(.*?)")),
        names=tuple(name for _, name, _, _ in pieces if name is not None),
        translation=translation,
    )


def sentence(text: str) -> str:
    """`text` in the reader's language as a sentence of its own, where it is also said after a colon."""
    found = said(text)
    return found[:1].upper() + found[1:]
