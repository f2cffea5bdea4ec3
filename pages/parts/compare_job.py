"""A long comparison in a thread of its own, so that the page stays alive: how far it is, what it has, and a way to stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from pages.parts.side_job import SideJob
from planner.facts import PlanError

Result = TypeVar("Result")


class CompareJob(SideJob, Generic[Result]):
    """One comparison under way or done. `work` calls `note` as it goes on, and ends early when `should_stop` says so.

    `is_done` comes last: then `result`, `problem` or `fault` is set.
    """

    def __init__(self, work: Callable[[CompareJob[Result]], Result]) -> None:
        self.fraction = 0.0
        self.label = ""  # what is being tried, in words of no language
        self.so_far: Result | None = None
        self.result: Result | None = None
        self.problem: PlanError | None = None
        self.fault: Exception | None = None  # a mistake in the work, to be raised where it is seen
        self._given = work
        self._begin("comparison")

    @property
    def is_stopped(self) -> bool:
        """Whether the job was told to end early."""
        return self._is_stopping

    def note(self, fraction: float, label: str, so_far: Result) -> None:
        """Tell how far the work is and what it has."""
        self.fraction, self.label, self.so_far = min(max(fraction, 0.0), 1.0), label, so_far

    def _work(self) -> None:
        try:
            self.result = self._given(self)
        except PlanError as problem:
            self.problem = problem
        except Exception as fault:  # noqa: BLE001 - raised again in the session's own run
            self.fault = fault
