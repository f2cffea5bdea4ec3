"""`simulate`: a workload served by one engine, as a `Timeline` and a summary."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

from planner.facts import PlanError
from planner.recorder import Recorder
from planner.sequence import SimulatedRequest, Status
from planner.simulation import DEFAULT_OPTIONS, MAX_STEPS, Simulation, SimulationOptions
from planner.simulator_config import SimulatorConfig
from planner.timeline import Timeline

_STEPS_BETWEEN_CALLS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSummary:
    """What a whole run comes to. Fractions are of the usable pool, without its null block."""

    num_steps: int
    num_finished: int
    num_unfinished: int
    num_preemptions: int
    recomputed_tokens: int  # computed more than once after preemptions
    peak_used_blocks: int
    mean_used_fraction: float
    hit_tokens: int
    queried_tokens: int
    evicted_blocks: int
    peak_running: int
    peak_waiting: int
    seconds: float
    is_stopped: bool  # by the caller or at the step limit, before all was served


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """A run to look into, and what it comes to."""

    timeline: Timeline
    summary: SimulationSummary


def simulate(
    config: SimulatorConfig, requests: Items[SimulatedRequest], options: SimulationOptions = DEFAULT_OPTIONS
) -> SimulationResult:
    """The timeline and summary of `requests` served under `config`; equal inputs give equal results.

    A bigger pool does not always preempt less: admission looks only at the tokens known so far, so one block more
    can let a request in that its own growth then pushes out (tests/property/test_blocks.py holds a case of three
    requests). Nor does prefix reuse always lower the peak: where requests wait, it lets more of them in at once.
    """
    recorder = Recorder()
    simulation = Simulation(config, requests, options, journal=recorder)
    recorder.begin(simulation.scheduler, simulation.sequences)
    is_stopped = _run(simulation, recorder, options)
    tiers = simulation.scheduler.tiers
    timeline = Timeline(config, simulation.sequences, recorder, tiers.columns if tiers is not None else None)
    return SimulationResult(timeline, _summary(simulation, recorder, is_stopped=is_stopped))


def _run(simulation: Simulation, recorder: Recorder, options: SimulationOptions) -> bool:
    """Whether the run ended before all was served."""
    if not 1 <= options.max_steps <= MAX_STEPS:
        text = f"The number of steps must be from 1 to {MAX_STEPS:,}; {options.max_steps:,} was given."
        raise PlanError("max_steps", options.max_steps, text)
    total = sum(sequence.num_prompt + sequence.max_tokens for sequence in simulation.sequences) or 1
    scheduled = 0
    while not simulation.is_done:
        if simulation.step + 1 >= options.max_steps:
            return True
        simulation.schedule()
        recorder.end_schedule()
        simulation.apply_outputs()
        recorder.end_outputs(simulation.finished)
        scheduled += simulation.scheduler.num_scheduled_tokens
        if simulation.step % _STEPS_BETWEEN_CALLS == 0:
            if options.progress is not None:
                options.progress(min(scheduled / total, 1.0), simulation.step + 1)
            if options.should_stop is not None and options.should_stop():
                return True
    if options.progress is not None:
        options.progress(1.0, simulation.step + 1)
    return False


def _summary(simulation: Simulation, recorder: Recorder, *, is_stopped: bool) -> SimulationSummary:
    columns, config = recorder.columns, simulation.scheduler.config
    usable, num_steps = config.num_usable_blocks, len(columns.free_blocks)
    finished = [sequence for sequence in simulation.sequences if sequence.status is Status.FINISHED]
    needed = sum(sequence.num_tokens - 1 for sequence in finished)
    given = sum(columns.scheduled_tokens) if len(finished) == len(simulation.sequences) else needed
    hits = columns.hit_tokens[-1] if num_steps else 0
    return SimulationSummary(
        num_steps=num_steps,
        num_finished=len(finished),
        num_unfinished=len(simulation.sequences) - len(finished),
        num_preemptions=columns.preemptions[-1] if num_steps else 0,
        recomputed_tokens=max(0, given + hits - needed),
        peak_used_blocks=usable - min(columns.free_blocks, default=usable),
        mean_used_fraction=1.0 - sum(columns.free_blocks) / (usable * num_steps) if num_steps else 0.0,
        hit_tokens=hits,
        queried_tokens=columns.queried_tokens[-1] if num_steps else 0,
        evicted_blocks=columns.evicted_blocks[-1] if num_steps else 0,
        peak_running=max(columns.num_running, default=0),
        peak_waiting=max(columns.num_waiting, default=0),
        seconds=simulation.now_seconds,
        is_stopped=is_stopped,
    )
