"""A reader for the YAML that people paste: maps, lists, scalars and JSON values by indentation; no anchors, tags or blocks.

Every text gives a value: what is not understood becomes text. The planner has no YAML library, and needs none for this.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TypeAlias

Node: TypeAlias = "str | int | float | bool | list[Node] | dict[str, Node] | None"

_KEY = re.compile(r"""(?P<key>"[^"]*"|'[^']*'|[\w./][\w./-]{0,120})\s*:(?:\s+(?P<rest>.*)|$)""")
_DEEPEST = 40
_MOST_LINES = 5000


@dataclass(frozen=True, slots=True)
class _Line:
    indent: int
    text: str


def looks_like_yaml(text: str) -> bool:
    """Whether the first line that says anything is `key:` or `- key:`, as in an args file or a manifest."""
    lines = _lines(text)
    return bool(lines) and _KEY.fullmatch(lines[0].text.removeprefix("- ")) is not None


def read_yaml(text: str) -> Node:
    """The value that `text` holds."""
    lines = _lines(text)
    return _Reader(lines).block(lines[0].indent, 0) if lines else None


def _lines(text: str) -> list[_Line]:
    found = []
    for raw in text.splitlines()[:_MOST_LINES]:
        line = raw.expandtabs(2).rstrip()
        bare = line.lstrip()
        if bare and not bare.startswith("#") and bare not in ("---", "..."):
            found.append(_Line(len(line) - len(bare), _without_comment(bare)))
    return found


def _without_comment(text: str) -> str:
    """`text` up to a # that stands after a blank and outside quotes."""
    quote = ""
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "#" and index and text[index - 1].isspace():
            return text[:index].rstrip()
    return text


class _Reader:
    """Walks the lines once; mutable because a block ends where its caller goes on."""

    def __init__(self, lines: list[_Line]) -> None:
        self._lines = lines
        self._next = 0

    def block(self, indent: int, depth: int) -> Node:
        """The list or map whose lines stand at `indent`."""
        if depth > _DEEPEST:
            self._next = len(self._lines)
            return None
        if self._lines[self._next].text.startswith("- ") or self._lines[self._next].text == "-":
            return self._list(indent, depth)
        if _KEY.fullmatch(self._lines[self._next].text):
            return self._map(indent, depth)
        return self._scalar_lines(indent)

    def _scalar_lines(self, indent: int) -> Node:
        words = []
        while self._next < len(self._lines) and self._lines[self._next].indent >= indent:
            words.append(self._lines[self._next].text)
            self._next += 1
        return _scalar(" ".join(words))

    def _list(self, indent: int, depth: int) -> Node:
        items: list[Node] = []
        while self._is_at(indent) and self._lines[self._next].text.startswith("-"):
            line = self._lines[self._next]
            rest = line.text[1:].lstrip()
            if line.text != "-" and not line.text.startswith("- "):
                break
            if rest and not _KEY.fullmatch(rest):
                self._next += 1
                items.append(_scalar(rest))
                continue
            inner = line.indent + len(line.text) - len(rest) if rest else line.indent
            if rest:
                self._lines[self._next] = _Line(inner, rest)
                items.append(self.block(inner, depth + 1))
            else:
                self._next += 1
                items.append(self._nested(indent, depth))
        return items

    def _map(self, indent: int, depth: int) -> Node:
        pairs: dict[str, Node] = {}
        while self._is_at(indent):
            match = _KEY.fullmatch(self._lines[self._next].text)
            if match is None:
                break
            self._next += 1
            key, rest = match["key"].strip("\"'"), match["rest"] or ""
            if rest in ("", "|", ">", "|-", ">-"):
                pairs[key] = self._nested(indent, depth)
            else:
                pairs[key] = self._flow(rest, indent) if rest[0] in "[{" else _scalar(rest)
        return pairs

    def _nested(self, indent: int, depth: int) -> Node:
        """The block below a key; a list may stand at the key's own indent."""
        if self._next >= len(self._lines):
            return None
        line = self._lines[self._next]
        if line.indent > indent or (line.indent == indent and line.text.startswith("- ")):
            return self.block(line.indent, depth + 1)
        return None

    def _flow(self, rest: str, indent: int) -> Node:
        """A [list] or {map} that may go on over deeper lines."""
        words = [rest]
        while not _is_closed(words) and self._next < len(self._lines) and self._lines[self._next].indent >= indent:
            words.append(self._lines[self._next].text)
            self._next += 1
        return _scalar(" ".join(words))

    def _is_at(self, indent: int) -> bool:
        return self._next < len(self._lines) and self._lines[self._next].indent == indent


def _is_closed(words: list[str]) -> bool:
    text = " ".join(words)
    return text.count("[") <= text.count("]") and text.count("{") <= text.count("}")


def _scalar(text: str) -> Node:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered in ("null", "~", ""):
        return None
    if text[0] in '[{"' or re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", text):
        try:
            value: Node = json.loads(text)
        except (ValueError, RecursionError):
            return _flow_items(text) if text[0] == "[" else text.strip('"')
        return value
    if text[0] == "'" == text[-1] and len(text) > 1:
        return text[1:-1].replace("''", "'")
    return text


def _flow_items(text: str) -> Node:
    """The items of a [flow, list] whose words are not all quoted."""
    inner = text.strip().removeprefix("[").removesuffix("]")
    parts = re.findall(r"\"[^\"]*\"|'[^']*'|[^,]+", inner)
    return [part.strip().strip("\"'") for part in parts if part.strip()]
