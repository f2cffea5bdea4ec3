"""The known messages that a record holds, each with the line it stands on."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from planner.startup_facts import LogLine
from planner.startup_lines import Record, joined, last_joined
from planner.startup_ranks import Process, process_before, source_before
from planner.startup_texts import TEXTS_BY_PIECE, MessageText

_LONGEST_SHOWN = 600
_LONGEST_KEPT = 2_000
_MEMORY_LOOK = re.compile(r"\d ?[GM]i?B\b|KV cache|(?:gpu|cpu|cuda) blocks", re.IGNORECASE)
# Lines with a size that says nothing of a start's memory, or whose figures another line holds.
_KNOWN_OTHERWISE = re.compile(
    r"KV cache usage|throughput: |page cache|Checkpoint size|GiB of cached|[Ss]leep mode|swap space|NFS|Downloading|it/s\]|s/it\]"
    r"|B/s|with config: |args: |Profiling CUDA graph memory|HTTP/1|KV connector|RAM|nvidia-smi|MiB /|first-capture|cpu_offload"
    r"|shared memory|shm|prefix ca|to store kv cache|reuses KV cache|kv_cache_dtype|--kv-cache-memory|[Ff]ree memory after profiling"
    r"|worker init memory snapshot|Peak GPU memory after loading|Encoder graph capturing|1~3 GiB memory"
    r"|sleep freed|backed up in CPU|In v0\.19, CUDA graph memory|Multiplying the GPU KV cache size|Memory profiling takes|KV cache layout|KV cache format|scaling factor|Chunked prefill"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One known message in a record, who printed it, and from which source line."""

    message: MessageText
    match: re.Match[str]
    line: LogLine
    process: Process
    source: tuple[str, int] | None
    last_number: int = 0  # of the last line it takes in, where it was wrapped

    @property
    def key(self) -> str:
        """The message's name."""
        return self.message.key


def find_messages(record: Record) -> list[Found]:
    """The known messages in a record; one that the paste wrapped is found with the lines below."""
    here, begun = (_in_kept if len(record.text) <= _LONGEST_KEPT else _in_text)(record.text)
    found = [replace(one, line=LogLine(number=record.number, text=one.line.text)) for one in here]
    if begun:
        found += _wrapped(record, begun)
    return found + _broken(record) if "iB" in record.text else found


def _in_text(text: str) -> tuple[tuple[Found, ...], tuple[MessageText, ...]]:
    """The messages in a text, and those that only begin there."""
    found: list[Found] = []
    begun: list[MessageText] = []
    for piece, messages in TEXTS_BY_PIECE:
        if piece in text:
            for message in messages:
                if message.anchor in text:
                    here = [_found(message, match, 0) for match in message.pattern.finditer(text)]
                    found += here
                    begun += [] if here else [message]
    complete = {one.message.anchor for one in found}
    return tuple(found), tuple(message for message in begun if message.anchor not in complete)


_in_kept = lru_cache(maxsize=8192)(_in_text)  # ranks and restarts print the same lines again and again


def _found(message: MessageText, match: re.Match[str], number: int, last_number: int = 0) -> Found:
    text, begin = match.string, match.start()
    return Found(
        message=message,
        match=match,
        line=shown_line(number, text, match),
        process=process_before(text, begin),
        source=source_before(text, begin),
        last_number=last_number,
    )


def _wrapped(record: Record, begun: tuple[MessageText, ...]) -> list[Found]:
    """The messages that begin in a record and end in the lines below it."""
    whole = joined(record)
    if len(whole) <= len(record.text):
        return []
    return [
        _found(message, match, record.number, last_joined(record))
        for message in begun
        for match in message.pattern.finditer(whole)
        if match.start() < len(record.text)
    ]


def _broken(record: Record) -> list[Found]:
    """The messages that a paste broke within the words they are known by: they end in the lines below the record."""
    text, whole = record.text, joined(record)
    if len(whole) <= len(text):
        return []
    return [
        _found(message, match, record.number, last_joined(record))
        for _, messages in TEXTS_BY_PIECE
        for message in messages
        if message.anchor not in text and message.anchor in whole
        for match in message.pattern.finditer(whole)
        if match.start() < len(text)
    ]


def looks_like_memory(text: str) -> bool:
    """Whether a line that was not understood may tell of memory."""
    message = text.rpartition("] ")[2]  # without its head, which is full of digits
    return (
        _MEMORY_LOOK.search(message) is not None
        and any(map(str.isdigit, message))
        and _KNOWN_OTHERWISE.search(text) is None
    )


def shown_line(number: int, text: str, match: re.Match[str] | None = None) -> LogLine:
    """The line as it is shown: whole, or around the match where it is long."""
    if match is None or len(text) <= _LONGEST_SHOWN:
        return LogLine(number=number, text=text.strip()[:_LONGEST_SHOWN])
    begin = max(0, min(match.start() - 100, match.end() + 40 - _LONGEST_SHOWN))
    return LogLine(number=number, text=text[begin : max(begin + _LONGEST_SHOWN, match.end())].strip())
