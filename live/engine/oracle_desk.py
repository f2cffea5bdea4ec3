"""Where a process asks vLLM itself: one question at a time, in a thread, its child ended on demand and at exit.

Pages ask and look; they never wait. Answers are kept by their question, so that the same plan is not asked about twice.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from live.engine.oracle import DEFAULT_SECONDS, OracleAnswer, OracleError, OracleQuestion, Started, ask_one

AskState = Literal["asking", "answered", "failed", "stopped"]
Ask = Callable[[OracleQuestion, float, Started], OracleAnswer]
MOST_KEPT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How one question stands. `text` says why there is no answer, `error_state` what kind of why."""

    question: OracleQuestion
    state: AskState
    began_seconds: float  # on the monotonic clock
    answer: OracleAnswer | None = None
    error_state: str = ""
    text: str = ""

    def waited_seconds(self, now_seconds: float) -> float:
        """How long it has been asked for."""
        return max(0.0, now_seconds - self.began_seconds)


def question_key(question: OracleQuestion) -> str:
    """Text that equal questions share, and no others."""
    return json.dumps(msgspec.to_builtins(question), sort_keys=True)


class OracleDesk:
    """Takes one question at a time; remembers the last answers."""

    def __init__(
        self, ask: Ask = ask_one, seconds: float = DEFAULT_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask, self._clock = ask, clock
        self.limit_seconds = seconds
        self._lock = threading.Lock()
        self._kept: dict[str, Asked] = {}  # by `question_key`, in the order of asking
        self._running: str | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def look(self, question: OracleQuestion) -> Asked | None:
        """How `question` stands, or None where it was never asked."""
        with self._lock:
            return self._kept.get(question_key(question))

    @property
    def is_busy(self) -> bool:
        """Whether a question, of this session or another, is being asked now."""
        with self._lock:
            return self._running is not None

    def ask(self, question: OracleQuestion) -> Asked | None:
        """Begin to ask `question`, or None where another one is being asked; an answered one is not asked again."""
        key = question_key(question)
        with self._lock:
            known = self._kept.get(key)
            if known is not None and known.state in ("asking", "answered"):
                return known
            if self._running is not None:
                return None
            self._running = key
            begun = Asked(question=question, state="asking", began_seconds=self._clock())
            self._keep(begun)
        threading.Thread(target=self._work, args=(begun,), name="oracle", daemon=True).start()
        return begun

    def stop(self) -> None:
        """End the child that is being asked, if there is one; its question is stopped."""
        with self._lock:
            child, running = self._child, self._running
            if running is not None:
                self._keep(replace(self._kept[running], state="stopped", text="The question was stopped."))
        if child is not None:
            _end(child)

    def _work(self, begun: Asked) -> None:
        ended = self._outcome(begun)
        with self._lock:
            if self._kept.get(question_key(begun.question), begun).state == "asking":
                self._keep(ended)
            self._running = self._child = None

    def _outcome(self, begun: Asked) -> Asked:
        question, began = begun.question, begun.began_seconds
        try:
            answer = self._ask(question, self.limit_seconds, self._note_child)
        except OracleError as error:
            return Asked(
                question=question, state="failed", began_seconds=began, error_state=error.state, text=error.text
            )
        except OSError as error:
            text = f"vLLM's process could not be started: {error.strerror or error}."
            return Asked(question=question, state="failed", began_seconds=began, error_state="broken", text=text)
        return Asked(question=question, state="answered", began_seconds=began, answer=answer)

    def _note_child(self, child: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._child = child
            is_stopped = self._running is not None and self._kept[self._running].state == "stopped"
        if is_stopped:  # while the child was being started
            _end(child)

    def _keep(self, asked: Asked) -> None:
        key = question_key(asked.question)
        self._kept.pop(key, None)
        self._kept[key] = asked
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and what it forked; it leads a session of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


_desk = OracleDesk()
atexit.register(_desk.stop)


def process_desk() -> OracleDesk:
    """The desk of this process, shared by all its sessions."""
    return _desk
