"""The known messages that a record holds, each with the line it stands on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.startup_facts import LogLine
from planner.startup_lines import Record, joined, last_joined
from planner.startup_texts import TEXTS, MessageText

_LONGEST_SHOWN = 600
_MEMORY_LOOK = re.compile(r"\d ?[GM]i?B\b|KV cache|(?:gpu|cpu|cuda) blocks", re.IGNORECASE)
# Lines with a size that says nothing of a start's memory, or whose figures another line holds.
_KNOWN_OTHERWISE = re.compile(
    r"KV cache usage|throughput: |page cache|Checkpoint size|GiB of cached|[Ss]leep mode|swap space|NFS|Downloading|it/s\]|s/it\]"
    r"|B/s|with config: |args: |Profiling CUDA graph memory|HTTP/1|KV connector|RAM|nvidia-smi|MiB /|first-capture|cpu_offload"
    r"|shared memory|shm|prefix cach|to store kv cache|reuses KV cache|kv_cache_dtype|--kv-cache-memory|[Ff]ree memory after profiling"
    r"|worker init memory snapshot|worker requested memory|Peak GPU memory after loading|Encoder graph capturing|1~3 GiB memory"
    r"|In v0\.19, CUDA graph memory|Multiplying the GPU KV cache size|Memory profiling takes|KV cache layout|Chunked prefill"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One known message in a record."""

    message: MessageText
    match: re.Match[str]
    line: LogLine
    last_number: int = 0  # of the last line it takes in, where it was wrapped

    @property
    def key(self) -> str:
        """The message's name."""
        return self.message.key


def find_messages(record: Record) -> list[Found]:
    """The known messages in a record; one that the paste wrapped is found with the lines below."""
    text = record.text
    found: list[Found] = []
    begun: list[MessageText] = []
    for message in TEXTS:
        if message.anchor not in text:
            continue
        here = [
            Found(message=message, match=match, line=shown_line(record.number, text, match))
            for match in message.pattern.finditer(text)
        ]
        found += here
        if not here:
            begun.append(message)
    complete = {one.message.anchor for one in found}
    begun = [message for message in begun if message.anchor not in complete]
    return found + _wrapped(record, begun) if begun and record.below else found


def _wrapped(record: Record, begun: list[MessageText]) -> list[Found]:
    """The messages that begin in a record and end in the lines below it."""
    whole = joined(record)
    if len(whole) <= len(record.text):
        return []
    return [
        Found(
            message=message,
            match=match,
            line=shown_line(record.number, whole, match),
            last_number=last_joined(record),
        )
        for message in begun
        for match in message.pattern.finditer(whole)
        if match.start() < len(record.text)
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
