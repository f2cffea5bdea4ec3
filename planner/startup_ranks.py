"""Which process wrote a message, and from which source line: the parts that stand before it."""

from __future__ import annotations

import re

_TAG = r"(?:DP|PP|TP|EP|DCP|PCP)\d{1,5}"
_PROCESS = re.compile(
    rf"\((?:(?P<name>[A-Za-z][\w:.-]{{0,80}}?)(?P<tag>(?:[_ ]{_TAG}(?:_{_TAG})*|[_ ](?:rank=)?\d{{1,5}})?) )?"
    r"pid=(?P<pid>\d{1,10})(?:, ip=(?P<ip>[\w.:]{1,60}))?"
    r"|\[rank(?P<rank>\d{1,5})\]"
)
_SINGLE = frozenset({"Worker", "VllmWorker", "EngineCore", "APIServer", "ApiServer", "DPCoordinator"})
_SOURCE = re.compile(r"\[?((?:[\w.]+/)*(\w+\.py)):(\d{1,6})\]")


def process_before(text: str, position: int) -> re.Match[str] | None:
    """The name of the process that stands nearest before `position`, else the first in the text."""
    if "pid=" not in text and "[rank" not in text:
        return None
    found = None
    for match in _PROCESS.finditer(text):
        if match.start() >= position and found is not None:
            break
        found = match
    return found


def process_name(process: re.Match[str] | None) -> str:
    """A process's name with its place, such as "EngineCore_DP1"; "" where none is given."""
    return "" if process is None else (process["name"] or "") + (process["tag"] or "")


def rank_name(process: re.Match[str] | None) -> str:
    """A worker's name such as "TP0", "DP1", "rank2" or "pid 4711"; "" for a process that is the only one of its kind."""
    if process is None:
        return ""
    if process["rank"] is not None:
        return f"rank{process['rank']}"
    tag = (process["tag"] or "").strip("_ ")
    if process["name"] == "EngineCore":
        return f"DP{tag}" if tag.isdigit() else tag
    if tag:
        return f"rank{tag.removeprefix('rank=')}" if tag[-1].isdigit() and not tag[0].isupper() else tag
    if process["name"] in _SINGLE:
        return ""
    return f"pid {process['pid']}" + (f" at {process['ip']}" if process["ip"] else "")


def source_before(text: str, position: int) -> tuple[str, int] | None:
    """The file and line of the log call whose message stands at `position`."""
    if ".py:" not in text:
        return None
    found = None
    for match in _SOURCE.finditer(text[: position + 1]):
        found = match
    return None if found is None else (found[2], int(found[3]))
