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
from functools import cache
from pathlib import Path

import streamlit as st
from streamlit.runtime.scriptrunner import add_script_run_ctx, get_script_run_ctx

from pages.parts import language, report_data, report_html, report_markdown, state
from pages.parts.language import t
from pages.parts.report_sections import Report, Section

MakeSections = Callable[[], Sequence[Section]]
_KINDS: tuple[tuple[str, str, str, Callable[[Report], str]], ...] = (
    ("html", "HTML", "text/html", report_html.to_html),
    ("md", "Markdown", "text/markdown", report_markdown.to_markdown),
    ("json", "JSON", "application/json", report_data.to_json),
    ("csv", "CSV", "text/csv", report_data.to_csv),
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

    def build(write: Callable[[Report], str]) -> Callable[[], bytes]:
        def made() -> bytes:
            with language.speaking(code):
                return write(_report(about, make, link)).encode()

        return made

    with st.container(horizontal=True, gap="small", key=f"report_{name}"):
        _button(
            name,
            _KINDS[0],
            t("Report"),
            build,
            t("One HTML file with everything on this page; it opens offline and prints well."),
        )
        with st.popover(t("Other formats"), icon=":material/file_save:"):
            for kind in _KINDS[1:]:
                _button(name, kind, kind[1], build, None)


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


def _settle(found: Future[Sequence[Section]], make: MakeSections) -> None:
    try:
        found.set_result(make())
    except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
        found.set_exception(error)


def _button(
    name: str,
    kind: tuple[str, str, str, Callable[[Report], str]],
    label: str,
    build: Callable[[Callable[[Report], str]], Callable[[], bytes]],
    explanation: str | None,
) -> None:
    ending, _, mime, write = kind
    st.download_button(
        label,
        data=build(write),
        file_name=f"kvscope-{name}-report.{ending}",
        mime=mime,
        key=f"report_{name}_{ending}",
        icon=":material/summarize:" if ending == "html" else ":material/download:",
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
