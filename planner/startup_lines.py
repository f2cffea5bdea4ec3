"""The lines of a log that may say something of a start, without the decoration that terminals and collectors add.

A record is one printed message with the number of the line it stands on and the lines after it (a message may be wrapped or
printed over several lines). What no record can come of is dropped early: a log of hundreds of thousands of lines is mostly that.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

_BATCH = 20_000
_LOOK_AHEAD = 12
LONGEST_LINE = 200_000
_MOST_OF_A_KIND, _MOST_ERRORS = 1_000, 5_000  # the largest starts print a line for each of hundreds of ranks
_FIGURES = "0123456789.,x GiBtokensecdan:`()/=-\r"
_LONGEST_KEPT = 2_000
_COLOURS = re.compile(
    r"(?:\x1b|\\u001b|\\x1b|\\033|\^\[|\u241b)\[[0-9;?]*[A-Za-z]|\[\d{1,3}(?:;\d{1,3})*m|[\x00\u200b\ufeff]"
)
# A cell of a table that was exported with times in nanoseconds behind it.
_CELL = re.compile(r"^(.*?)\"?,1\d{18}(?:,.*)?\r?$", re.DOTALL)
_MESSAGE_KEYS = (
    "message",
    "msg",
    "log",
    "MESSAGE",
    "text",
    "event",
    "body",
    "textPayload",
    "content",
    "line",
    "@message",
)
_NESTED_KEYS = ("record", "jsonPayload", "data", "fields", "attributes", "_source")
_HEAD = re.compile(
    r"(?:\([^()]{1,100}pid=\d{1,10}[^()]{0,60}\) +)?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d"
)
_STARTS = re.compile(
    r"\(\w[\w ]*pid=\d+|\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|^\s*[{\[]\"|^Traceback|^\d{4}-\d\d-\d\d|\d+%\||^\s*File \"|^[\w.]+(?:Error|Exception)\b"
)


@dataclass(frozen=True, slots=True)
class Record:
    """One line's message, undecorated, and where it stands: what goes on below is looked at only when it is asked for."""

    number: int
    text: str
    pieces: tuple[str, ...]  # of the same physical line
    piece: int
    lines: list[str]  # the batch of physical lines
    line: int

    @property
    def below(self) -> tuple[str, ...]:
        """The next lines, decorated as they are."""
        return (*self.pieces[self.piece + 1 :], *self.lines[self.line + 1 : self.line + 1 + _LOOK_AHEAD])[:_LOOK_AHEAD]


def is_relevant(line: str) -> bool:
    """Whether a line may say something of a start; cheap, and wrong only to the safe side."""
    return (
        "iB" in line or "GB" in line or "blocks" in line or "KV" in line or "config" in line or "ersion" in line
        or "args" in line or "ackend" in line or "load" in line or "startup" in line or "rror" in line
        or "server " in line or "HTTP/1" in line or "memory" in line or "size" in line or "rank " in line
        or "num_batched" in line or "device" in line or "compile" in line or "GPU " in line or "model " in line
        or "max seq len" in line or "usage is" in line or "runner" in line or "concurrency" in line
        or "padding" in line or "raph" in line or "xpert" in line or "Model Runner" in line
        or "etected platform" in line or "failed" in line or "LLM engine" in line or "throughput: " in line or "Processed prompts" in line or "rchitecture: " in line or "Auto-fit" in line
    )  # fmt: skip


@dataclass(slots=True)
class Repeats:
    """How often each kind of line stood in a start: one that stands there thousands of times tells nothing more of it."""

    counts: dict[str, int] = field(default_factory=dict)
    num_left_out: int = 0

    def are_enough(self, line: str) -> bool:
        """Whether as many lines of this one's kind were read as a start prints; counts the line."""
        at = line.find(".py:")
        kind = line[at - 12 : at + 9] if at >= 0 else line[-120:].rstrip(_FIGURES)[-16:]
        count = self.counts.get(kind, 0) + 1
        self.counts[kind] = count
        if count <= _MOST_OF_A_KIND or (count <= _MOST_ERRORS and "rror" in line):
            return False
        self.num_left_out += 1
        return True

    def forget(self) -> None:
        """Another start begins."""
        self.counts.clear()
        self.num_left_out = 0


def records(lines: Iterable[str], *, first: int = 1, repeats: Repeats | None = None) -> Iterator[Record]:
    """The records of `lines`, the first of which has the number `first`; without what `repeats` has had enough of."""
    repeats = repeats or Repeats()
    source = iter(lines)
    batch = list(islice(source, _BATCH))
    was_traffic = False
    while batch:
        following = list(islice(source, _BATCH))
        batch_and_more = [*batch, *following[:_LOOK_AHEAD]]
        for index, line in enumerate(batch):
            is_traffic = "throughput: " in line or "HTTP/1" in line
            if is_traffic and was_traffic:
                continue  # the first tells that the engine runs; nothing else does a hundred thousand times
            if is_relevant(line) and not repeats.are_enough(line):
                was_traffic = is_traffic
                yield from _expand(first + index, line, batch_and_more, index)
        first += len(batch)
        batch = following


def _expand(number: int, line: str, lines: list[str], at: int) -> Iterator[Record]:
    """The records of one physical line: its message's lines, split where a progress bar overwrote itself."""
    for overwritten in line.split("\r") if "\r" in line else (line,):
        split = _pieces if len(overwritten) <= _LONGEST_KEPT else _split
        pieces = split(overwritten) if is_relevant(overwritten) else ()
        for index, piece in enumerate(pieces):
            yield Record(number, piece, pieces, index, lines, at)


def _split(line: str) -> tuple[str, ...]:
    """The lines of a physical line's message: a JSON text holds several, and so does a paste that lost its line ends."""
    message = clean(line).replace("\r", "\n")
    if _num_levels(message) > 1 and len(_HEAD.findall(message)) > 1:
        message = _HEAD.sub(r"\n\g<0>", message)
    return tuple(piece for piece in message.split("\n") if piece and not piece.isspace())


_pieces = lru_cache(maxsize=8192)(_split)  # ranks and restarts print the same lines again and again


def _num_levels(text: str) -> int:
    return text.count("INFO ") + text.count("ERROR ") + text.count("WARNING ") + text.count("DEBUG ")


def clean(line: str) -> str:
    """The message of a line without colours, and out of the JSON that a collector wrapped it in."""
    line = line[:LONGEST_LINE]
    stripped = line.strip()
    for _ in range(3):
        if not stripped.startswith("{"):
            break
        inner = _message(stripped)
        if inner is None:
            break
        line, stripped = inner, inner.strip()
    if _may_be_coloured(line):
        line = _COLOURS.sub("", line)
    if "&" in line and ("&#39;" in line or "&quot;" in line or "&gt;" in line or "&#x27;" in line):
        line = html.unescape(line)
    if ",1" in line and (cell := _CELL.search(line)) is not None:
        line = cell[1].replace('""', '"')
    return line.replace("\u00a0", " ") if "\u00a0" in line else line


def _may_be_coloured(line: str) -> bool:
    return (
        "\x1b" in line
        or "\\" in line
        or "[0" in line
        or "[1" in line
        or "[3" in line
        or "[9" in line
        or "^[" in line
        or not line.isascii()
        or "\x00" in line
    )


def _message(text: str) -> str | None:
    """The message within one JSON object, with the process's name before it where the object gives one."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    for name in _NESTED_KEYS:
        inner = record.get(name)
        if isinstance(inner, dict) and any(isinstance(inner.get(key), str) for key in _MESSAGE_KEYS):
            record = {**record, **inner}
            break
    message = next((record[key] for key in _MESSAGE_KEYS if isinstance(record.get(key), str)), None)
    return None if message is None else f"{_source(record)}{message}"


def _source(record: dict[str, object]) -> str:
    """A head like vLLM's own from a structured record's parts: (Worker_TP0 pid=7) [gpu_worker.py:306]."""
    process, pid = record.get("processName") or record.get("process_name"), record.get("process") or record.get("pid")
    named = f"({process} pid={pid}) " if isinstance(process, str) and process.startswith(_PROCESSES) else ""
    file, line = record.get("filename") or record.get("file"), record.get("lineno") or record.get("line_number")
    return f"{named}[{file}:{line}] " if isinstance(file, str) and isinstance(line, int | str) else named


_PROCESSES = ("Worker", "VllmWorker", "EngineCore", "APIServer", "ApiServer", "RayWorker")


def joined(record: Record) -> str:
    """The record's text with the lines below it that go on with it: no head, no process, no progress bar of their own."""
    return " ".join([record.text.rstrip("\\ \t\r"), *_continuing(record)])


def last_joined(record: Record) -> int:
    """The number of the last line that `joined` takes in."""
    return record.number + len(_continuing(record))


def _continuing(record: Record) -> list[str]:
    parts = []
    for line in record.below:
        text = re.sub(r"^(?:>\s*)+|^\S+\s+\|\s+", "", clean(line).strip())
        if not text or _STARTS.search(text):
            break
        parts.append(text.rstrip("\\ "))
    return parts
