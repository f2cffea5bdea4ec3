"""The button that makes a page a report: one press for the HTML file, the other kinds beside it; a file is made when it is asked for.

A page calls `report_button(name, title, make)`; `make` gives its sections (`report_sections`) from values that it holds already, for
it runs when no page is being drawn.
"""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import ScriptRunContext, add_script_run_ctx, get_script_run_ctx

from pages.parts import language, report_data, report_html, report_markdown, state
from pages.parts.language import t
from pages.parts.report_sections import Report, Section

MakeSections = Callable[[], Sequence[Section]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of file: how its name ends, its label, and what writes it."""

    ending: str
    label: str
    mime: str
    write: Callable[[Report], str]


_KINDS = (
    _Kind(ending="html", label="HTML", mime="text/html", write=report_html.to_html),
    _Kind(ending="md", label="Markdown", mime="text/markdown", write=report_markdown.to_markdown),
    _Kind(ending="json", label="JSON", mime="application/json", write=report_data.to_json),
    _Kind(ending="csv", label="CSV", mime="text/csv", write=report_data.to_csv),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a report is about: `title` says which page, `subject` of what, `versions` which releases stand behind it."""

    title: str
    subject: str = ""
    versions: tuple[tuple[str, str], ...] = ()


def report_button(name: str, about: About, make: MakeSections) -> None:
    """Draw the buttons; `name` keeps their keys and files apart from other pages'."""
    link, code = state.page_link(), language.language()

    context = get_script_run_ctx()

    def build(kind: _Kind) -> Callable[[], bytes]:
        def made() -> bytes:
            with language.speaking(code):
                content = kind.write(_report(about, make, link)).encode()
            _hold(content, kind, name, context)
            return content

        return made

    with st.container(horizontal=True, gap="small", key=f"report_{name}"):
        told = t("One HTML file with everything on this page; it opens offline and prints well.")
        _button(name, _KINDS[0], t("Report"), build(_KINDS[0]), told)
        with st.popover(t("Other formats"), icon=":material/file_save:"):
            for kind in _KINDS[1:]:
                _button(name, kind, kind.label, build(kind), None)


def in_session(make: MakeSections) -> MakeSections:
    """`make`, run with this session's state though no page is being drawn: what it reads is as it is at the press."""
    context = get_script_run_ctx()

    def made() -> Sequence[Section]:
        found: Future[Sequence[Section]] = Future()
        thread = threading.Thread(target=_settle, args=(found, make), name="report")
        add_script_run_ctx(thread, context)
        thread.start()
        return found.result()

    return made


def _settle(found: Future[Any], make: Callable[[], Any]) -> None:  # a future of what `make` gives
    try:
        found.set_result(make())
    except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
        found.set_exception(error)


def _hold(content: bytes, kind: _Kind, name: str, context: ScriptRunContext | None) -> None:
    """Keep a made file until the page runs as a whole.

    Streamlit drops a file that no element shows at the end of the second run after it, and a part of a page that runs
    each second ends before a browser has fetched it. A file that the session refers to stays.
    """
    if context is None or not runtime.exists():
        return
    held = Future[str]()
    add = partial(
        runtime.get_instance().media_file_mgr.add,
        content,
        kind.mime,
        f"report_{name}_{kind.ending}",
        file_name=_file_name(name, kind),
        is_for_static_download=True,
    )
    thread = threading.Thread(target=_settle, args=(held, add), name="report file")
    add_script_run_ctx(thread, context)
    thread.start()
    held.result()


def _file_name(name: str, kind: _Kind) -> str:
    return f"kvscope-{name}-report.{kind.ending}"


def _button(name: str, kind: _Kind, label: str, made: Callable[[], bytes], explanation: str | None) -> None:
    st.download_button(
        label,
        data=made,
        file_name=_file_name(name, kind),
        mime=kind.mime,
        key=f"report_{name}_{kind.ending}",
        icon=":material/summarize:" if kind.ending == "html" else ":material/download:",
        on_click="ignore",
        help=explanation,
    )


def _report(about: About, make: MakeSections, link: str | None) -> Report:
    return Report(
        title=about.title,
        subject=about.subject,
        sections=tuple(make()),
        made=datetime.now(UTC),
        link=link,
        versions=(("KVScope", own_version()), *about.versions),
        language=language.html_name(),
        labels={"made": t("Made"), "link": t("This link opens the page again"), "versions": t("Versions")},
    )


@cache
def own_version() -> str:
    """KVScope's version, as pyproject.toml says."""
    file = Path(__file__).parents[2] / "pyproject.toml"
    with file.open("rb") as content:
        return str(tomllib.load(content)["project"]["version"])
