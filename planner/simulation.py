"""Driving the scheduler: who arrives when, one engine step after the other, until all requests are served."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

from planner.facts import PlanError
from planner.schedule import Scheduler
from planner.schedule_journal import ScheduleJournal
from planner.sequence import Sequence, SimulatedRequest
from planner.simulator_config import SimulatorConfig
from planner.step_frames import StepFrame, frame_of
from planner.tiers import LowerTiers, OffloadConfig

MAX_SEQUENCES = 1_000_000
MAX_STEPS = 1_000_000
StepSeconds = Callable[[Scheduler], float]
Progress = Callable[[float, int], None]  # fraction of the tokens served, steps so far
ShouldStop = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """How to run: the seed of what is drawn, how long a step takes, when to stop."""

    seed: int = 0
    draft_acceptance: float = 0.0  # the chance that a draft token after right ones is right
    step_seconds: StepSeconds | None = None  # None: arrivals count in steps
    offload: OffloadConfig | None = None  # host memory and disk below the card
    max_steps: int = MAX_STEPS
    progress: Progress | None = None
    should_stop: ShouldStop | None = None


DEFAULT_OPTIONS = SimulationOptions()


class Simulation:
    """One engine serving one workload; `advance` is a step."""

    def __init__(
        self,
        config: SimulatorConfig,
        requests: Items[SimulatedRequest],
        options: SimulationOptions = DEFAULT_OPTIONS,
        *,
        journal: ScheduleJournal | None = None,
        skip_quiet_steps: bool = True,
    ) -> None:
        check_requests(config, requests)
        self._random = random.Random(options.seed)  # noqa: S311 - which drafts are right, not a secret
        self._draft_acceptance = options.draft_acceptance
        self._step_seconds = options.step_seconds
        tiers = LowerTiers(options.offload) if options.offload is not None else None
        self.scheduler = Scheduler(
            config, journal, tiers=tiers, accept_drafts=self._accept_drafts, skip_quiet_steps=skip_quiet_steps
        )
        self.sequences = _sequences(config, requests)
        by_time = options.step_seconds is not None
        self._pending = sorted(self.sequences, key=lambda sequence: _arrival(sequence, by_time=by_time), reverse=True)
        self.now_seconds = 0.0
        self.finished: list[Sequence] = []  # in the last step
        self.is_done = False
        self._depth = config.max_concurrent_batches

    @property
    def step(self) -> int:
        """The last step that was scheduled; -1 before the first."""
        return self.scheduler.step

    def schedule(self) -> None:
        """Let arrive what is due and schedule the next step."""
        self.skip_to_next_arrival()
        if self.scheduler.journal is not None:
            self.scheduler.journal.begin_schedule(self.scheduler.step + 1, self.now_seconds)
        self._arrive()
        self.is_done = not self._pending and not self.scheduler.has_unfinished()
        self.scheduler.schedule()

    def apply_outputs(self) -> None:
        """Return the outputs of the oldest batch once the pipeline is full."""
        scheduler = self.scheduler
        self.finished = []
        if self._step_seconds is not None:
            self.now_seconds += self._step_seconds(scheduler)
        if scheduler.tiers is not None:
            scheduler.tiers.end_step()
        if scheduler.batches_in_flight() >= self._depth:
            self.finished = scheduler.apply_outputs()
        self._check_progress()

    def advance(self) -> None:
        """One whole step."""
        self.schedule()
        self.apply_outputs()

    def skip_to_next_arrival(self) -> None:
        """Where steps take time: move the clock over an idle stretch."""
        if self._step_seconds is not None and self._pending and not self.scheduler.has_unfinished():
            self.now_seconds = max(self.now_seconds, _arrival(self._pending[-1], by_time=True)[0])

    def _arrive(self) -> None:
        by_time = self._step_seconds is not None
        now = self.now_seconds if by_time else self.scheduler.step + 1
        while self._pending and _arrival(self._pending[-1], by_time=by_time)[0] <= now:
            self.scheduler.add(self._pending.pop())

    def _accept_drafts(self, sequence: Sequence, num_drafts: int) -> int:
        """How many drafts of this step were right: as told, else each with the acceptance rate until one is wrong."""
        told = sequence.request.accepted_drafts
        if told is not None:
            accepted = told[sequence.draft_cursor % len(told)] if told else 0
            sequence.draft_cursor += 1
            return max(0, min(accepted, num_drafts))
        accepted = 0
        while accepted < num_drafts and self._random.random() < self._draft_acceptance:
            accepted += 1
        return accepted

    def _check_progress(self) -> None:
        """Refuse to wait for ever for a request that the pool can never take."""
        scheduler = self.scheduler
        is_idle = not scheduler.running and not scheduler.batch and not scheduler.preempted and not self.finished
        if not is_idle or not len(scheduler.waiting) or scheduler.batches_in_flight() >= self._depth:
            return
        first = scheduler.waiting.first()
        if first.stale or scheduler.pool.num_free < scheduler.config.num_usable_blocks:
            return
        text = f"Request {first.request_id} can never start: even the empty pool is too small for its tokens."
        raise PlanError("num_gpu_blocks", scheduler.config.num_gpu_blocks, text)


def step_frames(
    config: SimulatorConfig, requests: Items[SimulatedRequest], options: SimulationOptions = DEFAULT_OPTIONS
) -> Iterator[StepFrame]:
    """Each step's frame, in the form of vLLM's own traces; the last one is the empty step after all is served."""
    simulation = Simulation(config, requests, options)
    while not simulation.is_done:
        simulation.schedule()
        frame = frame_of(simulation.scheduler)
        simulation.apply_outputs()
        simulation.scheduler.pool.forget_changes()
        yield replace(frame, finished=tuple(sequence.request_id for sequence in simulation.finished))


def blocks_needed(config: SimulatorConfig, num_tokens: int) -> int:
    """The most blocks one request of `num_tokens` holds at once, over all KV groups."""
    total = 0
    for group in config.groups:
        whole, cap = config.blocks_for(group, num_tokens), config.admission_cap_blocks(group)
        total += whole if cap is None else min(whole, cap)
    return total


def check_requests(config: SimulatorConfig, requests: Items[SimulatedRequest]) -> None:
    """Refuse a request that this engine could never serve, and ids given twice."""
    if sum(request.n for request in requests) > MAX_SEQUENCES:
        text = f"At most {MAX_SEQUENCES:,} sequences can be simulated at once; take a part of the trace."
        raise PlanError("requests", len(requests), text)
    seen: set[str] = set()
    for row, request in enumerate(requests, 1):
        if request.request_id in seen:
            raise PlanError(
                "request_id", request.request_id, f"Row {row}: request id {request.request_id} came before."
            )
        seen.add(request.request_id)
        _check_length(config, request, row)


def _check_length(config: SimulatorConfig, request: SimulatedRequest, row: int) -> None:
    if request.num_prompt_tokens >= config.max_model_len:
        text = (
            f"Row {row}: request {request.request_id} has {request.num_prompt_tokens:,} prompt tokens, "
            f"and max_model_len is {config.max_model_len:,}; vLLM refuses a prompt that leaves no room for an answer."
        )
        raise PlanError("max_model_len", request.num_prompt_tokens, text)
    longest = min(request.num_prompt_tokens + request.num_output_tokens, config.max_model_len)
    needed = blocks_needed(config, min(longest + config.num_lookahead_tokens, config.max_model_len))
    if needed > config.num_usable_blocks:
        text = (
            f"Row {row}: request {request.request_id} needs {needed:,} blocks for {longest:,} tokens, "
            f"and the pool has {config.num_usable_blocks:,}."
        )
        raise PlanError("num_gpu_blocks", needed, text)
    if not config.enable_chunked_prefill and request.num_prompt_tokens > config.max_num_batched_tokens:
        text = (
            f"Row {row}: request {request.request_id} has {request.num_prompt_tokens:,} prompt tokens, more than "
            f"one step's {config.max_num_batched_tokens:,}, and chunked prefill is off."
        )
        raise PlanError("max_num_batched_tokens", request.num_prompt_tokens, text)


def _sequences(config: SimulatorConfig, requests: Items[SimulatedRequest]) -> list[Sequence]:
    sequences: list[Sequence] = []
    for request in requests:
        for sample in range(request.n):
            sequences.append(Sequence(request, sample=sample, ordinal=len(sequences), num_groups=len(config.groups)))
    return sequences


def _arrival(sequence: Sequence, *, by_time: bool) -> tuple[float, int]:
    request = sequence.request
    return (request.arrival_seconds or 0.0 if by_time else request.arrival_step, sequence.ordinal)
