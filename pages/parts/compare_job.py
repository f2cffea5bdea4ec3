"""A long comparison in a thread of its own, so that the page stays alive: how far it is, what it has, and a way to stop it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from planner.facts import PlanError

_FORSAKEN_AFTER_SECONDS = 60.0  # nobody asked for so long: the reader has gone
Result = TypeVar("Result")


class CompareJob(Generic[Result]):
    """One comparison under way or done. `work` calls `note` as it goes on, and ends early when `should_stop` says so.

    It must not draw or translate: the thread knows no session. `is_done` comes last: then `result`, `problem` or `fault` is set.
    """

    def __init__(self, work: Callable[[CompareJob[Result]], Result]) -> None:
        self.fraction = 0.0
        self.label = ""  # what is being tried, in words of no language
        self.so_far: Result | None = None
        self.result: Result | None = None
        self.problem: PlanError | None = None
        self.fault: Exception | None = None  # a mistake in the work, to be raised where it is seen
        self.is_stopped = False
        self._asked_at = time.monotonic()
        self._thread = threading.Thread(target=self._work, args=(work,), name="comparison", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to wait for."""
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Whether the job is done after at most `seconds`."""
        self._asked_at = time.monotonic()
        self._thread.join(seconds)
        return self.is_done

    def stop(self) -> None:
        """End the job early; what was found until then stays."""
        self.is_stopped = True

    def should_stop(self) -> bool:
        """Whether somebody stopped the job, or nobody waits for it any more."""
        if time.monotonic() - self._asked_at > _FORSAKEN_AFTER_SECONDS:
            self.is_stopped = True
        return self.is_stopped

    def note(self, fraction: float, label: str, so_far: Result) -> None:
        """Tell how far the work is and what it has."""
        self.fraction, self.label, self.so_far = min(max(fraction, 0.0), 1.0), label, so_far

    def _work(self, work: Callable[[CompareJob[Result]], Result]) -> None:
        try:
            self.result = work(self)
        except PlanError as problem:
            self.problem = problem
        except Exception as fault:  # noqa: BLE001 - raised again in the session's own run
            self.fault = fault
