"""A demand served by a plan's engine in the simulator, as one line of figures: pool, waiting, preemptions, times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.active_parameters import active_parameters_by_stage, expert_fraction
from planner.answer import Plan
from planner.budget import card_of, plan
from planner.demand import Demand, requests_for
from planner.inventory import ModelFacts
from planner.latency import NOT_MEASURED, Latency, LatencyMeter
from planner.simulation import Simulation, SimulationOptions
from planner.simulator_config import SimulatorConfig
from planner.simulator_pool import engine_of_plan
from planner.step_time import Pipeline, Roofline

MOST_CONCURRENT = 10_000.0  # more at once than any engine runs: the load never settles
_MOST_STEPS = 60_000
_STEPS_BETWEEN_CALLS = 64
ShouldStop = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLoad:
    """What a run came to. Fractions are of the usable pool; `is_cut`: stopped before all was seen.

    Means and throughput are of the steady state; peaks, preemptions and what finished count the start as well.
    """

    concurrency: float  # requests that want to run at once, on average
    mean_running: float
    mean_waiting: float
    num_finished: int
    num_preemptions: int
    mean_used_fraction: float
    peak_used_fraction: float
    mean_step_seconds: float
    longest_step_seconds: float
    output_tokens_per_second: float
    is_backlog_growing: bool  # requests arrive faster than they are served
    latency: Latency = NOT_MEASURED
    max_num_seqs: int = 0  # of the engine, before it is held to the users
    is_cut: bool = False

    @property
    def preempted_fraction(self) -> float:
        """Preemptions for each request served."""
        return self.num_preemptions / max(self.num_finished, 1)


def roofline_of(present: Plan, model: ModelFacts) -> Roofline | Pipeline:
    """The time of a step of the plan's engine, over all its stages; raises `PlanError` where the card's speed is not known.

    A stage's share of the KV of a token is that of its layers: `kv_bytes_per_token` is of the fullest stage.
    """
    gpu, flags = card_of(present.request), present.request.flags
    most_layers = max(rank.num_layers for rank in present.ranks)
    active = active_parameters_by_stage(model, len(present.ranks))
    fraction = expert_fraction(model)
    stages = tuple(
        replace(
            Roofline.of_card(
                gpu,
                weight_bytes=rank.weights.load.best_bytes,
                kv_bytes_per_token=present.pool.kv_bytes_per_token * rank.num_layers // max(1, most_layers),
                num_parameters=active[rank.pp_rank] // flags.tensor_parallel_size,
            ),
            expert_bytes=min(dict(rank.weights.by_role).get("experts", 0), rank.weights.load.best_bytes),
            expert_fraction=fraction,
        )
        for rank in present.ranks
    )
    return stages[0] if len(stages) == 1 else Pipeline(stages=stages)


def served_config(present: Plan, model: ModelFacts) -> SimulatorConfig:
    """The engine that is simulated; one with pipeline stages keeps a batch under way for each (`Pipeline` says why)."""
    config = engine_of_plan(present, chunk_tokens=chunk_tokens(model)).config
    num_stages = present.request.flags.pipeline_parallel_size
    return config if num_stages == 1 else replace(config, async_scheduling=False, pipeline_parallel_size=num_stages)


def serve(
    present: Plan, model: ModelFacts, demand: Demand, *, seed: int = 7, should_stop: ShouldStop | None = None
) -> ServedLoad:
    """The load of `demand` on one copy of the plan's engine, simulated step by step."""
    times = roofline_of(present, model)
    config = served_config(present, model)
    wanted = min(expected_concurrency(demand, times), 4.0 * config.max_num_seqs)
    most_seqs = config.max_num_seqs
    if demand.users is not None:
        wanted = float(demand.users)
        config = replace(config, max_num_seqs=min(config.max_num_seqs, demand.users))
    requests = demand.draw(requests_for(wanted, is_timed=demand.users is None), seed=seed)
    simulation = Simulation(config, requests, SimulationOptions(seed=seed, step_seconds=times.clock()))
    return replace(_run(simulation, demand, wanted, should_stop), max_num_seqs=most_seqs)


def with_room_for(present: Plan, model: ModelFacts, concurrency: int) -> Plan:
    """The plan with a max_num_seqs that lets `concurrency` run, where the user gave none; never more than a batch has tokens."""
    flags = present.request.flags
    if flags.max_num_seqs is not None or concurrency <= resolved_integer(present, "max_num_seqs"):
        return present
    most = min(concurrency, resolved_integer(present, "max_num_batched_tokens"))
    return plan(replace(present.request, flags=replace(flags, max_num_seqs=most)), model)


def resolved_integer(present: Plan, name: str) -> int:
    """The flag `name` as vLLM resolves it."""
    value = next(item.value for item in present.resolved if item.name == name)
    return value if isinstance(value, int) else 1


def chunk_tokens(model: ModelFacts) -> int | None:
    """The tokens of a local chunk, for models that attend in chunks."""
    chunks = (cache.chunk_size for layer in model.layers for cache in layer.caches if cache.kind == "chunked")
    return next(chunks, None)


def expected_concurrency(demand: Demand, times: Roofline | Pipeline) -> float:
    """Requests under way at once: users, or by Little's law rate x time of a request; capped where it never settles.

    The time of a request is prompt / prefill speed + output x step time, and the step's time grows with how many run.
    """
    if demand.users is not None:
        return float(demand.users)
    prompt, output = demand.means()
    rate, running = demand.requests_per_second or 0.0, 1.0
    for _ in range(60):
        context = running * (demand.prefix_tokens + prompt + output / 2)
        tokens_a_step = max(1, round(running * (1.0 + prompt / max(output, 1.0))))
        seconds = output * times.token_seconds(tokens_a_step, round(context))
        settled = rate * seconds
        if abs(settled - running) <= 0.01 * running or settled > MOST_CONCURRENT:
            return min(settled, MOST_CONCURRENT)
        running = settled
    return running


class _Sums:
    """Running sums over the steps that count."""

    def __init__(self) -> None:
        self.num_steps = self.num_preemptions = self.num_finished = self.output_tokens = 0
        self.running = self.waiting = self.used = self.peak_used = 0
        self.seconds = self.longest = 0.0
        self.backlog = 0  # requests that wait when the last one comes
        self.is_cut = False


def _run(simulation: Simulation, demand: Demand, wanted: float, should_stop: ShouldStop | None) -> ServedLoad:
    scheduler, users, total = simulation.scheduler, demand.users, len(simulation.sequences)
    whole, steady, meter = _Sums(), _Sums(), LatencyMeter(simulation, demand.users)
    # Before each of those that start together was served once, and (users ask again when served) once fewer requests
    # are left than users, the load is not what was asked for.
    warm_up = min(math.ceil(wanted), total // 4)
    last_counted = max(total - (users or 0), 1)
    last_arrival = max(sequence.request.arrival_seconds or 0.0 for sequence in simulation.sequences)
    while not simulation.is_done and (users is None or whole.num_finished < last_counted):
        if _is_too_long(simulation, should_stop):
            whole.is_cut = True
            break
        simulation.schedule()
        before = simulation.now_seconds
        meter.note_schedule()
        is_steady = whole.num_finished >= warm_up and (users is not None or before <= last_arrival)
        counted = (whole, steady) if is_steady else (whole,)
        is_pause = scheduler.config.pipeline_parallel_size > 1 and not scheduler.num_scheduled_tokens
        for sums in () if is_pause else counted:  # an empty batch between stages is no step
            _count(sums, simulation, users)
        simulation.apply_outputs()
        meter.note_outputs(before, is_steady=is_steady)
        for sums in counted:
            _count_outputs(sums, simulation, simulation.now_seconds - before)
        scheduler.pool.forget_changes()
        if users is None and before <= last_arrival:
            whole.backlog = len(scheduler.waiting)
    load = _load(whole, steady if steady.num_finished else whole, simulation, wanted)
    return replace(load, latency=meter.result())


def _count_outputs(sums: _Sums, simulation: Simulation, seconds: float) -> None:
    sums.seconds += seconds
    sums.longest = max(sums.longest, seconds)
    sums.num_finished += len(simulation.finished)
    sums.output_tokens += sum(sequence.max_tokens for sequence in simulation.finished)


def _is_too_long(simulation: Simulation, should_stop: ShouldStop | None) -> bool:
    is_asked = should_stop is not None and simulation.step % _STEPS_BETWEEN_CALLS == 0
    most_steps = _MOST_STEPS * simulation.scheduler.config.pipeline_parallel_size
    return simulation.step >= most_steps or (is_asked and should_stop is not None and should_stop())


def _count(sums: _Sums, simulation: Simulation, users: int | None) -> None:
    scheduler = simulation.scheduler
    usable = scheduler.config.num_usable_blocks
    sums.num_steps += 1
    sums.num_preemptions += len(scheduler.preempted)
    running, waiting = len(scheduler.running), len(scheduler.waiting)
    sums.running += running
    # Those that wait behind the asked number of users have not been sent yet.
    sums.waiting += waiting if users is None else min(waiting, max(0, users - running))
    used = usable - scheduler.pool.num_free
    sums.used += used
    sums.peak_used = max(sums.peak_used, used)


def _load(whole: _Sums, steady: _Sums, simulation: Simulation, wanted: float) -> ServedLoad:
    usable, steps = simulation.scheduler.config.num_usable_blocks, max(steady.num_steps, 1)
    seconds = max(steady.seconds, 1e-9)
    num_requests = len(simulation.sequences)
    return ServedLoad(
        concurrency=wanted,
        mean_running=steady.running / steps,
        mean_waiting=steady.waiting / steps,
        num_finished=whole.num_finished,
        num_preemptions=whole.num_preemptions,
        mean_used_fraction=steady.used / (usable * steps),
        peak_used_fraction=whole.peak_used / usable,
        mean_step_seconds=seconds / steps,
        longest_step_seconds=whole.longest,
        output_tokens_per_second=steady.output_tokens / seconds,
        is_backlog_growing=whole.backlog > max(2, 0.1 * num_requests),
        is_cut=whole.is_cut,
    )
