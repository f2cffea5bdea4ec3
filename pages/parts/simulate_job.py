"""A simulation in a thread of its own, so that the page stays alive: progress, stop, and the result when it is there."""

from __future__ import annotations

from dataclasses import replace

from pages.parts.side_job import SideJob
from pages.parts.simulate_setup import Setup
from pages.parts.simulate_v0 import V0Run
from pages.parts.step_player import StepPlayer
from planner.contiguous import POLICIES, ContiguousResult, simulate_contiguous
from planner.facts import PlanError
from planner.simulate import SimulationResult, simulate

_MOST_CONTIGUOUS_STEPS = 4_000_000  # steps × requests at once


class SimulationJob(SideJob):
    """One simulation under way or done. `is_done` comes last: then either `result` or `problem` is set."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.fraction = 0.0
        self.num_steps = 0
        self.result: SimulationResult | None = None
        self.contiguous: tuple[ContiguousResult, ...] = ()
        self.player: StepPlayer | None = None  # made by whoever looks first
        self.v0: tuple[tuple[int, str, bool], V0Run] | None = None  # the same, with what it was asked for
        self.problem: PlanError | None = None
        self._begin("simulation")

    def _work(self) -> None:
        options = replace(self.setup.options, progress=self._note, should_stop=self.should_stop)
        try:
            self.result = simulate(self.setup.config, self.setup.requests, options)
            self.contiguous = self._contiguous(self.result)
        except PlanError as problem:
            self.problem = problem

    def _contiguous(self, result: SimulationResult) -> tuple[ContiguousResult, ...]:
        """The allocators that paging replaced; none where requests arrive by the clock or the run is very long."""
        setup = self.setup
        is_long = result.summary.num_steps * max(1, result.summary.peak_running) > _MOST_CONTIGUOUS_STEPS
        if result.summary.is_stopped or is_long or setup.options.step_seconds is not None:
            return ()
        return tuple(simulate_contiguous(setup.config, setup.requests, policy) for policy in POLICIES)

    def _note(self, fraction: float, num_steps: int) -> None:
        self.fraction, self.num_steps = fraction, num_steps
