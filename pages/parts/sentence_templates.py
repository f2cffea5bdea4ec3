"""What the planner and the watchers can say, read from their source as templates: an extraction method for Babel.

Every text that reads like prose is taken, whoever shows it: rather one too many than one left in English. What no page
shows is left out by what receives it (a parser of arguments, a logger, a pattern, a database) or by its module.
"""

from __future__ import annotations

import ast
import io
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from pages.parts.said import CONTEXT

Message = tuple[int, str, tuple[str, str], list[str]]

_MOST_VARIANTS = 16
_PROSE = re.compile(r"[A-Za-z]{2,}[,;:]? [A-Za-z{]|[a-z}][,;:]? [a-z]{2,}")
_NOT_PROSE = re.compile(
    r"\(\?|\\[dS(]|\.\*|\[\^|: ?\*| \?G|\w \| \w|^\w+/\w+, |^Bearer |^torch\.|%s|^python -m |^import |<\w+:|\w\|\w"
    r"|^(SELECT|INSERT|DELETE|UPDATE|PRAGMA|CREATE|BEGIN)\b"
)
_NOT_SHOWN = frozenset({
    "add_argument", "add_parser", "ArgumentParser", "add_subparsers", "add_mutually_exclusive_group", "compile", "print",
    "execute", "executescript", "startswith", "Pattern", "search", "executemany", "debug", "info", "exception", "write", "RuntimeError", "AssertionError",
    "TypeError", "KeyError", "AttributeError", "Thread", "namedtuple", "getLogger",
})  # fmt: skip
_NAMES = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def extract(
    fileobj: io.BytesIO, keywords: Collection[str], comment_tags: Collection[str], options: Mapping[str, object]
) -> Iterator[Message]:
    """Babel's extraction method: every template of the module `fileobj`, in the context of sentences."""
    del keywords, comment_tags, options
    for line, template in templates(fileobj.read().decode("utf-8")):
        yield line, "pgettext", (CONTEXT, template), []


def extract_notes(
    fileobj: io.BytesIO, keywords: Collection[str], comment_tags: Collection[str], options: Mapping[str, object]
) -> Iterator[Message]:
    """Babel's extraction method for data: each `note` and `source` of a JSON file that reads like prose."""
    del keywords, comment_tags, options
    for note in dict.fromkeys(_notes(json.load(fileobj))):
        if _PROSE.search(note):
            yield 1, "pgettext", (CONTEXT, _literal(note)), []


def _notes(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for name in ("note", "source") if isinstance(text := value.get(name), str))
        for child in value.values():
            yield from _notes(child)
    elif isinstance(value, list):
        for child in value:
            yield from _notes(child)


def extract_calls(
    fileobj: io.BytesIO, keywords: Collection[str], comment_tags: Collection[str], options: Mapping[str, object]
) -> Iterator[tuple[int, str, str, list[str]]]:
    """Babel's extraction method for pages: the first argument of each call of `keywords`, within f-strings too."""
    del comment_tags, options
    for node in ast.walk(ast.parse(fileobj.read())):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str() as message), *_]) if name in keywords:
                yield node.lineno, name, message, []


def templates(source: str) -> Iterator[tuple[int, str]]:
    """The line and the template of every text in `source` that reads like prose."""
    for node in _texts(ast.parse(source)):
        for template in itertools.islice(_variants(node), _MOST_VARIANTS):
            if _PROSE.search(template) and not _NOT_PROSE.search(template):
                yield node.lineno, template


def _texts(node: ast.AST) -> Iterator[ast.expr]:
    """The outermost text expressions below `node`: constants, f-strings and sums of them."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and _called(node.func) in _NOT_SHOWN):
        return
    if isinstance(node, ast.expr) and _is_text(node):
        yield node
        yield from _inside(node)
        return
    body = list(ast.iter_child_nodes(node))
    if isinstance(node, _NAMES) and node.body and _is_docstring(node.body[0]):
        body.remove(node.body[0])
    for child in body:
        yield from _texts(child)


def _inside(node: ast.AST) -> Iterator[ast.expr]:
    """Texts within the holes of a text: they are said as parts of it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FormattedValue):
            yield from _texts(child.value)
        elif not isinstance(child, ast.Constant):
            yield from _inside(child) if isinstance(child, ast.expr) and _is_text(child) else _texts(child)


def _called(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr():
            return True
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _is_text(left) or _is_text(right)
    return False


def _variants(node: ast.expr) -> Iterator[str]:
    """The templates of a text, one for each way in which its choices between constants can fall."""
    for parts in itertools.product(*_pieces(node)):
        yield _named(parts)


def _pieces(node: ast.expr) -> list[list[str | ast.expr]]:
    """The parts of a text in order, each with its alternatives: a string is literal, an expression a hole."""
    pieces: list[list[str | ast.expr]] = [[node]]
    match node:
        case ast.Constant(value=str() as literal):
            pieces = [[literal]]
        case ast.JoinedStr(values=values):
            pieces = [piece for value in values for piece in _pieces(value)]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            pieces = [*_pieces(left), *_pieces(right)]
        case ast.FormattedValue(value=inner):
            pieces = _pieces(inner)
        case ast.BinOp(op=ast.Mult(), left=ast.Constant(value=str() as repeated)):  # "s" * (count != 1)
            pieces = [["", repeated]]
        case ast.IfExp(body=ast.Constant(value=str() as yes), orelse=ast.Constant(value=str() as no)):
            pieces = [[yes, no]]
    return pieces


def _named(parts: Sequence[str | ast.expr]) -> str:
    """A template in braces, each hole called by what fills it."""
    text, taken = "", set[str]()
    for part in parts:
        if isinstance(part, str):
            text += _literal(part)
            continue
        base = _hole(part)
        name = next(
            name for number in itertools.count(1) if (name := base if number == 1 else f"{base}_{number}") not in taken
        )
        taken.add(name)
        text += f"{{{name}}}"
    return text


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _hole(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_") or "value"
        case ast.Call(args=[first, *_]):
            return _hole(first)
        case ast.BinOp(left=left) if not isinstance(left, ast.Constant):
            return _hole(left)
        case ast.Subscript(value=value):
            return _hole(value)
    return "value"
