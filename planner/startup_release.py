"""The release that wrote a log: from its banner, else an interval of releases from the source lines of its messages."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.facts import PlanError
from planner.startup_facts import LogLine, ReleaseReading
from planner.versions import Version, parse_version

_DATA = Path(__file__).parent / "data" / "log_lines.json"


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[str, ...], dict[tuple[str, str, int], frozenset[int]]]:
    """The releases in order, and by (message, file, line) the places of those that print the message there."""
    document = json.loads(_DATA.read_text(encoding="utf-8"))
    places: dict[tuple[str, str, int], set[int]] = {}
    for key, rows in document["messages"].items():
        for file, line, first, last in rows:
            span = range(document["releases"].index(first), document["releases"].index(last) + 1)
            places.setdefault((key, file, line), set()).update(span)
    return tuple(document["releases"]), {place: frozenset(span) for place, span in places.items()}


def read_release(banner: Any, sources: set[tuple[str, str, int]], environment: LogLine | None) -> ReleaseReading | None:
    """The release by the banner (a `Said`), else by source lines, else by an environment report; None without any."""
    stated = _stated(str(banner.value), "banner") if banner is not None else None
    if stated is not None:
        return stated
    by_lines = release_by_lines(sources)
    if by_lines is not None:
        return by_lines
    if environment is None:
        return None
    reported = re.search(r"vLLM Version *: *v?([^\s,]+)", environment.text)
    return None if reported is None else _stated(reported[1], "environment report")


def _stated(text: str, basis: Any) -> ReleaseReading | None:
    try:
        version = parse_version(re.split(r"[.]?(?:dev|rc|post)|[+]", text)[0].strip("."))
    except PlanError:
        return None
    if version < (0, 2, 0):  # builds without a tag call themselves 0.1.dev...
        return None
    return ReleaseReading(basis=basis, text=text, first=version, last=version)


def release_by_lines(sources: set[tuple[str, str, int]]) -> ReleaseReading | None:
    """The interval of releases in which every source line agrees; of a build between two releases, these; else None."""
    releases, places = _table()
    known = [places[source] for source in sources if source in places]
    files = {place[:2] for place in places}
    unknown = [source for source in sources if source not in places and source[:2] in files]
    if unknown:
        return _between(unknown)
    common = frozenset.intersection(*known) if known else frozenset()
    if not common:
        return None
    first, last = releases[min(common)], releases[max(common)]
    text = f"{first} by source lines" if first == last else f"{first} to {last} by source lines"
    return ReleaseReading(basis="source lines", text=text, first=_version(first), last=_version(last))


def _between(sources: list[tuple[str, str, int]]) -> ReleaseReading | None:
    """The two neighbouring releases between whose lines all of `sources` lie: a build that is neither."""
    releases, places = _table()
    gaps: set[int] | None = None  # of release i and i + 1
    for key, file, line in sources:
        lines: dict[int, int] = {}
        for (message, name, number), span in places.items():
            if (message, name) == (key, file):
                lines.update(dict.fromkeys(span, number))
        here = {
            at
            for at in lines
            if at + 1 in lines and min(lines[at], lines[at + 1]) < line < max(lines[at], lines[at + 1])
        }
        gaps = here if gaps is None else gaps & here
    if gaps is None or len(gaps) != 1:
        return None
    before, after = (releases[at] for at in (min(gaps), min(gaps) + 1))
    text = f"between {before} and {after} by source lines"
    return ReleaseReading(basis="source lines", text=text, first=_version(before), last=_version(after))


def _version(text: str) -> Version:
    return parse_version(".".join(text.split(".")[:3]))
