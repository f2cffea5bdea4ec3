"""Which process wrote a message, and from which source line: the parts that stand before it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_TAG = r"(?:DP|PP|TP|EP|DCP|PCP)\d{1,5}"
_PROCESS = re.compile(
    rf"\((?:(?P<name>[A-Za-z][\w:.-]{{0,80}}?)(?P<tag>(?:[_ ]{_TAG}(?:_{_TAG})*|[_ ](?:rank=)?\d{{1,5}})?) )?"
    r"pid=(?P<pid>\d{1,10})(?:, ip=(?P<ip>[\w.:]{1,60}))?"
)
_RANK = re.compile(r"\[rank(\d{1,5})\]")
_SINGLE = frozenset({"Worker", "VllmWorker", "EngineCore", "APIServer", "ApiServer", "DPCoordinator"})
_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process as a log names it: `name` with its place, such as "EngineCore_DP1", and the worker's `rank`."""

    name: str = ""
    rank: str = ""  # such as "TP0", "DP1", "rank2" or "pid 4711"; "" for a process that is the only one of its kind


_NOBODY = Process()


def process_before(text: str, position: int) -> Process:
    """The process that is named nearest before `position`, else the first in the text; one without a name where none is."""
    at = text.rfind("pid=", 0, position)
    at = at if at >= 0 else text.find("pid=")
    if at >= 0 and (begin := text.rfind("(", max(0, at - _LONGEST), at)) >= 0:
        return _process(text[begin : at + _LONGEST].partition(")")[0])
    if "[rank" not in text:
        return _NOBODY
    found = _RANK.search(text)
    return _NOBODY if found is None else Process(name=found[0], rank=f"rank{found[1]}")


@lru_cache(maxsize=4096)
def _process(text: str) -> Process:
    match = _PROCESS.match(text)
    if match is None:
        return _NOBODY
    name, tag = match["name"] or "", (match["tag"] or "").strip("_ ")
    return Process(name=name + (match["tag"] or ""), rank=_rank(name, tag, match))


def _rank(name: str, tag: str, match: re.Match[str]) -> str:
    if name == "EngineCore":
        return f"DP{tag}" if tag.isdigit() else tag
    if tag:
        return tag if tag[0].isupper() else f"rank{tag.removeprefix('rank=')}"
    if name in _SINGLE:
        return ""
    return f"pid {match['pid']}" + (f" at {match['ip']}" if match["ip"] else "")


def source_before(text: str, position: int) -> tuple[str, int] | None:
    """The file and line of the log call whose message stands at `position`: of `[gpu_worker.py:306]` or `worker.py:241]`."""
    at = text.rfind(".py:", 0, position)
    if at < 0:
        return None
    number, closed, _ = text[at + 4 : at + 12].partition("]")
    if not (closed and number.isascii() and number.isdigit()):
        return None
    begin = 1 + max(text.rfind("[", 0, at), text.rfind(" ", 0, at), text.rfind("/", 0, at))
    return (text[begin : at + 3], int(number)) if begin < at else None
