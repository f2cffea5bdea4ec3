"""The catalogues: complete, compiled, true to their sources; and no page says English that they do not hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from babel.messages.catalog import Message
from babel.messages.pofile import read_po
from messages import TEMPLATE, TRANSLATIONS, collected, compiled

ROOT = Path(__file__).parents[2]
PAGE_FILES = sorted((ROOT / "pages").rglob("*.py"))
FULL = [pytest.param(path, id=path.parts[-3]) for path in TRANSLATIONS]

_HOLE = re.compile(r"(?<!\{)\{(\w+)[^{}]*\}(?!\})")
# What must stand on both sides: code in backticks, flags, addresses, vLLM's own names, units.
_FIXED = (
    re.compile(r"`[^`]+`"),
    re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+"),
    re.compile(r"https?://[\w.:/-]*\w"),
    re.compile(r"\b[a-z]+(?:_[a-z0-9]+)+\b"),
    re.compile(r"(?<![A-Za-z])(?:[KMGT]i?B(?:/s)?|ms|FLOP/s)(?![A-Za-z])"),
)


def _messages(path: Path) -> list[Message]:
    with path.open("rb") as file:
        return [message for message in read_po(file) if message.id]


def _keys(messages: Iterator[Message] | list[Message]) -> set[tuple[str | None, str]]:
    return {(message.context, str(message.id)) for message in messages if message.id}


@pytest.fixture(scope="module")
def source_keys() -> set[tuple[str | None, str]]:
    return _keys(list(collected()))


@pytest.mark.parametrize("path", [pytest.param(TEMPLATE, id="template"), *FULL])
def test_every_text_of_the_source_is_collected(path, source_keys):
    held = _keys(_messages(path))

    assert source_keys - held == set(), "run `make messages` and translate what is new"
    assert held - source_keys == set(), "run `make messages`"


@pytest.mark.parametrize("path", FULL)
def test_every_text_is_translated(path):
    missing = [message.id for message in _messages(path) if not message.string or message.fuzzy]

    assert missing == []


@pytest.mark.parametrize("path", FULL)
def test_a_translation_has_the_holes_of_its_source(path):
    odd = [
        (message.id, message.string)
        for message in _messages(path)
        if sorted(set(_HOLE.findall(message.id))) != sorted(set(_HOLE.findall(message.string)))
    ]

    assert odd == []


@pytest.mark.parametrize("path", FULL)
def test_flags_addresses_names_and_units_stay(path):
    lost = [
        (fixed, message.id, message.string)
        for message in _messages(path)
        for pattern in _FIXED
        for fixed in pattern.findall(_HOLE.sub("{}", message.id))
        if fixed not in _HOLE.sub("{}", message.string)
    ]

    assert lost == []


@pytest.mark.parametrize("path", FULL)
def test_the_compiled_catalogue_is_that_of_the_text(path):
    assert path.with_suffix(".mo").read_bytes() == compiled(path)


# -- the pages ----------------------------------------------------------------------------------------------------------

# Arguments that are no words: keys, icons, layout, types.
_NO_WORDS = frozenset({
    "key", "icon", "width", "height", "gap", "format", "type", "border", "label_visibility", "persist_state", "alignment",
    "horizontal_alignment", "vertical_alignment", "selection_mode", "on_select", "delta_color", "delta_arrow", "mime",
    "autocomplete", "language", "filename", "num_rows", "on_click",
        "on_change", "position", "size", "url_path", "layout", "page_title",
    "run_every", "data_type", "chart_type", "scope", "default",
})  # fmt: skip
_NOT_DRAWN = frozenset(
    {
        "markdown_styles",
        "switch_page",
        "Page",
        "set_page_config",
        "fragment",
        "cache_data",
        "html",
        "code",
        "get_option",
    }
)
_WORD = re.compile(r"[A-Za-z]{2}")
_NOT_ENGLISH = re.compile(
    r":[a-z]+\[|:material/\w*:?|/\w+:|`[^`]*`|--[a-z-]+|&nbsp;|[a-z]+_[a-z_]+|[\w-]+\.(json|csv|html|md|py)$|\w+://\S+|\b\w+=\w+|kvscope-|-report\.$"
)
# Words that are the same in every language, with why.
_ALLOWED = {
    "JSON": "a format", "CSV": "a format", "HTML": "a format", "Markdown": "a format", "HF_TOKEN": "a variable",
    "Model loading took 14.99 GiB memory and 3.2 seconds": "a line of vLLM's log", "vLLM": "a name", "org/name": "a Hub id's form", "main": "a Git branch", "KVScope": "a name",
}  # fmt: skip


def _drawing_calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr not in _NOT_DRAWN:
            owner = node.func
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            if isinstance(owner, ast.Name) and owner.id == "st":
                yield node


def _english(call: ast.Call) -> Iterator[str]:
    given = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg not in _NO_WORDS)]
    for value in given:
        for piece in value.values if isinstance(value, ast.JoinedStr) else [value]:
            if isinstance(piece, ast.Constant) and isinstance(piece.value, str):
                text = _NOT_ENGLISH.sub(" ", piece.value).strip()
                if _WORD.search(text) and text not in _ALLOWED:
                    yield text


@pytest.mark.parametrize("path", PAGE_FILES, ids=lambda path: str(path.relative_to(ROOT / "pages")))
def test_no_page_draws_english_past_the_catalogue(path):
    found = [
        f"line {call.lineno}: {text}" for call in _drawing_calls(ast.parse(path.read_text())) for text in _english(call)
    ]

    assert found == []


@pytest.mark.parametrize("path", PAGE_FILES, ids=lambda path: str(path.relative_to(ROOT / "pages")))
def test_what_is_to_be_translated_is_written_where_it_is_said(path):
    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"t", "mark"}
    ]

    assert [call.lineno for call in calls if not (call.args and isinstance(call.args[0], ast.Constant))] == []
    assert [call.lineno for call in calls if len(call.args) != 1] == []
