"""The reader's language: `t` gives a sentence of ours in it, from the gettext catalogues in pages/locale.

English is the source. Units, flag names, model and card names stay as they are, so they come in as values.
Knows no Streamlit: the frame says by `ask` how the reader's language is found; elsewhere it is English.
"""

from __future__ import annotations

import gettext
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

ENGLISH, CHINESE = "en", "zh"
LANGUAGES: Mapping[str, str] = {ENGLISH: "English", CHINESE: "中文"}  # each in its own words
DOMAIN = "kvscope"
FOLDER = Path(__file__).parents[1] / "locale"
_LOCALES = {CHINESE: "zh_CN"}
_HTML_NAMES = {ENGLISH: "en", CHINESE: "zh-CN"}


def _english() -> str:
    return ENGLISH


_ask: Callable[[], str] = _english
_spoken: ContextVar[str | None] = ContextVar("spoken", default=None)


def ask(chosen: Callable[[], str]) -> None:
    """Let `chosen` tell the language of the reader whose page is being drawn."""
    global _ask  # noqa: PLW0603 - set once, by the frame
    _ask = chosen


@contextmanager
def speaking(code: str) -> Iterator[None]:
    """Speak `code` within: for a file that is made when no page is being drawn."""
    before = _spoken.set(code)
    try:
        yield
    finally:
        _spoken.reset(before)


def language() -> str:
    """The code of the language that the reader reads: one of `LANGUAGES`."""
    return _spoken.get() or _ask()


def html_name() -> str:
    """The language as the page's `lang` attribute names it."""
    return _HTML_NAMES[language()]


def best(preferred: str | None) -> str:
    """The language nearest to a browser's preference such as "zh-CN"; English where we have none."""
    code = (preferred or "").replace("_", "-").split("-", 1)[0].lower()
    return code if code in LANGUAGES else ENGLISH


@lru_cache
def catalogue(code: str) -> gettext.NullTranslations:
    """The catalogue of the language `code`; English has an empty one."""
    if code == ENGLISH:
        return gettext.NullTranslations()
    return gettext.translation(DOMAIN, FOLDER, languages=[_LOCALES[code]])


def t(message: str, **values: object) -> str:
    """`message` in the reader's language with `values` put into its `{names}`."""
    translated = catalogue(language()).gettext(message)
    return translated.format(**values) if values else translated


def mark(message: str) -> str:
    """`message` as it is, set down for translation: `said` shows it in the reader's language later."""
    return message
