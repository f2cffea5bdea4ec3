"""How a start ended: running, or failed and why. A memory error says more than the engine's own "failed to start"."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from planner.error_lines import ErrorReading, read_error
from planner.startup_facts import FailedStart, LogLine
from planner.startup_lines import Record, joined, last_joined
from planner.startup_matches import shown_line

_STARTED = re.compile(
    r"Application startup complete|Starting vLLM (?:API )?server (?:\d+ )?on |Uvicorn running on|Avg prompt throughput: |Processed prompts: "
    r"|\"(?:GET|POST) /(?:v1|health|metrics)[^\"]* HTTP/1\.\d\" 200"
)
_MEMORY_FAILURE = re.compile(
    r"No available memory for the cache blocks|is larger than the available KV cache memory|max seq len|at least one request"
    r"|maximum number of tokens that can be stored in KV cache|is less than desired GPU memory util|OutOfMemoryError"
    r"|(?:CUDA|HIP|XPU|NPU|GPU)(?: error:)? out of memory|is less than the engine's budget|available Mamba cache blocks|emory on (?:device|node) .*on startup\W*$"
)
_ENGINE_FAILURE = re.compile(
    r"Engine core initialization failed|Engine process failed to start|EngineCore failed to start|WorkerProc initialization failed"
)
_EXCEPTION = re.compile(r"(?:^|[\])] |\s)((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)): \S")
_ERROR_LEVEL = re.compile(r"ERROR \d\d-\d\d")
_FIELDS = tuple(field.name for field in fields(ErrorReading))


@dataclass(slots=True)
class Ending:
    """How the start ended, as far as its lines were read."""

    is_started: bool = False
    failure: FailedStart | None = None
    exception: LogLine | None = None
    has_traceback: bool = False
    last_number: int = 0  # of the last line that a wrapped error took in

    def take(self, record: Record) -> bool:
        """Notes what a record says of the end; whether it says anything."""
        text = record.text
        if not _may_tell(text):
            return False
        if _STARTED.search(text) is not None:
            self.is_started = True
            return True
        self.has_traceback = self.has_traceback or "Traceback (most recent call last)" in text
        if self.is_started:
            return _MEMORY_FAILURE.search(text) is not None  # of a request, not of the start
        if _MEMORY_FAILURE.search(text) is not None:
            return self._fail_of_memory(record)
        return self._fail(shown_line(record.number, text), text)

    def _fail(self, line: LogLine, text: str) -> bool:
        if _ENGINE_FAILURE.search(text) is not None:
            if self.failure is None:
                self.failure = FailedStart(kind="engine_failed", line=line)
            return True
        if (self.has_traceback or _ERROR_LEVEL.search(text) is not None) and _EXCEPTION.search(text) is not None:
            if self.exception is None or self.failure is None:
                self.exception = line
            return True
        return False

    def _fail_of_memory(self, record: Record) -> bool:
        whole, reading = record.text, read_error(record.text)
        longer = joined(record)
        if (more := read_error(longer)) is not None and _num_said(more) > _num_said(reading):
            whole, reading, self.last_number = longer, more, last_joined(record)
        if reading is None:
            return False
        if self.failure is None or _num_said(reading) > _num_said(self.failure.reading):
            self.failure = FailedStart(kind=reading.kind, line=shown_line(record.number, whole), reading=reading)
        return True

    def forget_exception(self) -> None:
        """The start went on after an exception, so that was not its end."""
        self.exception = None

    @property
    def has_ended(self) -> bool:
        """Whether the start runs or has failed."""
        return self.is_started or self.failure is not None

    @property
    def failed(self) -> FailedStart | None:
        """Why the start failed: the memory error, else the first exception before the engine's own; None when it did not."""
        if self.is_started:
            return None
        is_plain = self.failure is None or self.failure.kind == "engine_failed"
        return (
            FailedStart(kind="other", line=self.exception) if is_plain and self.exception is not None else self.failure
        )


def _num_said(reading: ErrorReading | None) -> int:
    return 0 if reading is None else sum(getattr(reading, name) is not None for name in _FIELDS)


def _may_tell(text: str) -> bool:
    """Whether a line may hold any of the patterns: each of them holds one of these pieces."""
    return (
        "rror" in text
        or "xception" in text
        or "Traceback" in text
        or "startup" in text
        or "server " in text
        or "Uvicorn" in text
        or "throughput: " in text
        or "Processed prompts" in text
        or "HTTP/1" in text
        or "available" in text
        or "emory on" in text
        or "max seq len" in text
        or "at least one" in text
        or "stored in KV" in text
        or "less than" in text
        or "out of memory" in text
        or "nitialization failed" in text
        or "failed to start" in text
    )
