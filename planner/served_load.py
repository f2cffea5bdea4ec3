"""A demand served by a plan's engine in the simulator, as one line of figures: pool, waiting, preemptions, step time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.active_parameters import active_parameters
from planner.answer import Plan
from planner.budget import card_of
from planner.demand import Demand, requests_for
from planner.inventory import ModelFacts
from planner.simulation import Simulation, SimulationOptions
from planner.simulator_pool import engine_of_plan
from planner.step_time import Roofline

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
    is_cut: bool = False

    @property
    def preempted_fraction(self) -> float:
        """Preemptions for each request served."""
        return self.num_preemptions / max(self.num_finished, 1)


def roofline_of(plan: Plan, model: ModelFacts) -> Roofline:
    """The time of a step of the plan's engine; raises `PlanError` where the card's speed is not known.

    With pipeline stages a step passes through all of them one after the other, so their times add up.
    """
    cards_per_stage = plan.request.flags.tensor_parallel_size
    return Roofline.of_card(
        card_of(plan.request),
        weight_bytes=sum(rank.weights.load.best_bytes for rank in plan.ranks),
        kv_bytes_per_token=plan.pool.kv_bytes_per_token * len(plan.ranks),
        num_parameters=active_parameters(model) // cards_per_stage,
    )


def serve(
    plan: Plan, model: ModelFacts, demand: Demand, *, seed: int = 7, should_stop: ShouldStop | None = None
) -> ServedLoad:
    """The load of `demand` on one copy of the plan's engine, simulated step by step."""
    roofline = roofline_of(plan, model)
    config = engine_of_plan(plan, chunk_tokens=chunk_tokens(model)).config
    wanted = min(expected_concurrency(demand, roofline), 4.0 * config.max_num_seqs)
    if demand.users is not None:
        wanted = float(demand.users)
        config = replace(config, max_num_seqs=min(config.max_num_seqs, demand.users))
    requests = demand.draw(requests_for(wanted, is_timed=demand.users is None), seed=seed)
    simulation = Simulation(config, requests, SimulationOptions(seed=seed, step_seconds=roofline))
    return _run(simulation, demand, wanted, should_stop)


def chunk_tokens(model: ModelFacts) -> int | None:
    """The tokens of a local chunk, for models that attend in chunks."""
    chunks = (cache.chunk_size for layer in model.layers for cache in layer.caches if cache.kind == "chunked")
    return next(chunks, None)


def expected_concurrency(demand: Demand, roofline: Roofline) -> float:
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
        seconds = output * roofline.seconds(tokens_a_step, round(context))
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
    whole, steady = _Sums(), _Sums()
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
        is_steady = whole.num_finished >= warm_up and (users is not None or before <= last_arrival)
        counted = (whole, steady) if is_steady else (whole,)
        for sums in counted:
            _count(sums, simulation, users)
        simulation.apply_outputs()
        for sums in counted:
            _count_outputs(sums, simulation, simulation.now_seconds - before)
        scheduler.pool.forget_changes()
        if users is None and before <= last_arrival:
            whole.backlog = len(scheduler.waiting)
    return _load(whole, steady if steady.num_finished else whole, simulation, wanted)


def _count_outputs(sums: _Sums, simulation: Simulation, seconds: float) -> None:
    sums.seconds += seconds
    sums.longest = max(sums.longest, seconds)
    sums.num_finished += len(simulation.finished)
    sums.output_tokens += sum(sequence.max_tokens for sequence in simulation.finished)


def _is_too_long(simulation: Simulation, should_stop: ShouldStop | None) -> bool:
    is_asked = should_stop is not None and simulation.step % _STEPS_BETWEEN_CALLS == 0
    return simulation.step >= _MOST_STEPS or (is_asked and should_stop is not None and should_stop())


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
