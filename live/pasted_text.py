"""What lies around a metrics text that was copied out of a terminal, a page, a log, a source file or JSON: undone here.

`plain_text` works on the whole text, and costs nothing where a text is as it was exported; `plain_line` works on a line that
the parser refused. Neither makes up a digit.
"""

from __future__ import annotations

import quopri
import re

from live.hidden_signs import unescaped, without_hidden_signs, without_terminal_codes
from live.json_samples import from_json

_STARTS = r"(?:#\s*(?:HELP|TYPE|EOF)\b|(?:ray_)?vllm[:_])"
_CARRIAGE_RETURN = re.compile(r"\r+\n?")
_OTHER_LINE_END = re.compile(rf"[\u2028\u2029\x85\x0b\x0c](?=\s{{0,4}}{_STARTS})")
_HTML_LINE_END = re.compile(r"<(?:br|hr)\s*/?>|</(?:p|div|li|tr|pre|code|td)>", re.IGNORECASE)
# Neighbouring string literals of a source file are one text.
_LITERAL_SEAM = re.compile(
    r"""(?<!\\)(["'])[ \t]{0,40}(?:[+\\.&][ \t]{0,40})?\n[ \t]{0,200}(?:[+.&][ \t]{0,40})?[rbfu]?\1(?=\S)"""
)
_WRITTEN_AT_LINE_END = re.compile(
    r"""(?:\\r)?\\n(?=["'`]?[ \t]{0,40}(?:[,;)\]}+\\]{1,40}[ \t]{0,40})?$)""", re.MULTILINE
)
_WRITTEN_BEFORE_START = re.compile(rf"""(?:\\r)?\\n(?=["'`]?[,\s]{{0,40}}["'`]?\s{{0,40}}{_STARTS})""")
_LITERAL_COMMA = re.compile(rf"""(["'])\s*,\s*[rbfu]?["'](?={_STARTS})""")

_TAG = re.compile(r"</?[a-z]{1,30}(?![a-z])[^<>{}]*>", re.IGNORECASE)
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("“”„‟«»″＂", '"'),
        **dict.fromkeys("\xa0\u202f\u2007\u3000", " "),
        "：": ":",
        "−": "-",
        "‘": "'",
        "’": "'",
    }
)
_MARKDOWN_ESCAPE = re.compile(r"\\([_{}\[\]()#*<>|~.!+:=,-])")
_MARKDOWN_LINK = re.compile(r"\[([^\[\]]{1,300})\]\([^()\s]{0,500}\)")
_BOLD = re.compile(r"(?<![\d.])\*\*|\*\*(?![\d.])")  # 10**6 is no 106
_LEFT_OUT_LABELS = re.compile(r",?\s{0,9}(?:\.\.\.|…)\s{0,9}\}")  # who writes of a sample often shortens it so
_DOUBLED_QUOTE = re.compile(r'=""[^,}"\s]')


def plain_text(text: str) -> str:
    """The text with line ends as they were and without what a terminal, a page or a source file put between."""
    if "\r" in text:
        text = _CARRIAGE_RETURN.sub("\n", text)
    if not text.isascii() or "\0" in text or "\x0b" in text or "\x0c" in text:
        text = _OTHER_LINE_END.sub("\n", without_hidden_signs(text))
    if (
        "\x1b" in text
        or "␛" in text
        or "^[[" in text
        or "\\x1b[" in text
        or "\\033[" in text
        or "\\u001b[" in text.lower()
    ):
        text = without_terminal_codes(text)
    if text.lstrip()[:1] in {"{", "[", '"'}:
        text = _LITERAL_COMMA.sub("\n", from_json(text))
    if "&" in text and '="' not in text:
        text = unescaped(unescaped(text))
    if "=3D" in text:
        text = quopri.decodestring(text.encode()).decode("utf-8", "replace")
    if "<" in text:
        text = _HTML_LINE_END.sub("\n", text)
    if "\\n" in text:
        text = _without_literals(text)
    return text


def _without_literals(text: str) -> str:
    """A text out of a source file or a log: literals joined, written line ends made real ones."""
    text = _LITERAL_SEAM.sub("", text)
    text = _WRITTEN_AT_LINE_END.sub("\n", text)
    return _WRITTEN_BEFORE_START.sub("\n", text)


def plain_line(line: str) -> str:
    """A refused line without entities, tags, typographic signs, Markdown's signs and a second layer of quoting."""
    if line[:1] in {"{", "["} and '"' in line:
        line = from_json(line).replace("\n", " | ") if line.rstrip()[-1:] in {"}", "]"} else line
    for _ in range(2):
        if "&" in line:
            line = unescaped(line)
    text = _TAG.sub(" ", line).translate(_SIGNS)
    if '=\\"' in text and '="' not in text:
        text = text.replace('\\"', '"')
    if _DOUBLED_QUOTE.search(text):
        text = text.replace('""', '"')
    if '="' not in text:
        text = _with_double_quotes(text)
    if "\\" in text:
        text = _MARKDOWN_ESCAPE.sub(r"\1", text)
    if "](" in text:
        text = _MARKDOWN_LINK.sub(r"\1", text)
    text = _LEFT_OUT_LABELS.sub("}", text)
    return _BOLD.sub("", text)


def _with_double_quotes(text: str) -> str:
    """Labels that stand in other quotes, in the right ones."""
    for quote in ("'", "`"):
        if f"={quote}" in text:
            return text.replace(quote, '"')
    return text
