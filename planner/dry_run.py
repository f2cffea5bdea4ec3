"""The dry run before deployment: concurrency from 1 up, each level simulated; the knee, and sizes of a batch tried there.

What to set is said in `dry_advice`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.answer import Plan
from planner.budget import plan
from planner.demand import Demand
from planner.facts import PlanError
from planner.inventory import ModelFacts
from planner.request import PlanRequest
from planner.served_load import ServedLoad, ShouldStop, resolved_integer, serve, with_room_for

BATCHES = (2048, 4096, 8192, 16384, 32768)
_LEAST_GAIN = 0.10  # a doubling of users that brings less throughput than this is past the knee


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What `users` at once come to."""

    users: int
    load: ServedLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The last level that pays, and why the next does not; `is_open` where the sweep ended before a knee was met."""

    users: int
    reason: str
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTrial:
    """One value of max_num_batched_tokens: the pool it leaves, and the load at the knee; None where it does not start."""

    max_num_batched_tokens: int
    num_blocks: int
    pool_tokens: int
    load: ServedLoad | None
    refusal: str = ""
    is_present: bool = False  # the plan's own value, given or by default


def levels_up_to(most_users: int) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, ... and `most_users` itself; raises `PlanError` for what cannot be swept."""
    if not 1 <= most_users <= 4096:
        text = f"The dry run goes up to {most_users:,} users; write a whole number from 1 to 4,096."
        raise PlanError("most_users", most_users, text)
    steps = {step for power in range(most_users.bit_length()) for step in (2**power, 3 * 2**power)}
    return (*sorted(step for step in steps if step < most_users), most_users)


def sweep_levels(
    present: Plan, model: ModelFacts, demand: Demand, most_users: int, *, should_stop: ShouldStop | None = None
) -> Iterator[Level]:
    """Each level as soon as it is simulated, fewest users first; `demand` says what requests look like.

    Where no max_num_seqs is given, it is raised with the users: the knee is the pool's and the card's, not the default's.
    """
    for users in levels_up_to(most_users):
        if should_stop is not None and should_stop():
            return
        engine = with_room_for(present, model, users)
        asked = replace(demand, users=users, requests_per_second=None)
        load = serve(engine if engine.will_start else present, model, asked, should_stop=should_stop)
        if load.is_cut and should_stop is not None and should_stop():
            return
        yield Level(users=users, load=load)


def knee_of(levels: Sequence[Level], *, most_preempted_fraction: float = 0.0) -> Knee:
    """The level after which more users wait, are preempted or bring hardly more throughput."""
    before = levels[0]
    for level in levels[1:]:
        load = level.load
        if load.preempted_fraction > most_preempted_fraction:
            text = f"with {level.users:,} users {load.num_preemptions:,} preemptions come on {load.num_finished:,} requests"
            return Knee(users=before.users, reason=f"{text}: the pool is full.")
        if load.mean_waiting > 0.1 * level.users:
            text = f"with {level.users:,} users {load.mean_waiting:.1f} wait on average although {load.mean_running:.1f} run"
            if load.mean_running >= 0.98 * load.max_num_seqs:
                return Knee(users=before.users, reason=f"{text}: max_num_seqs lets no more run.")
            return Knee(users=before.users, reason=f"{text}: the pool holds no more.")
        gain = load.output_tokens_per_second / max(before.load.output_tokens_per_second, 1e-9) - 1.0
        doublings = level.users / before.users - 1.0
        if gain < _LEAST_GAIN * doublings:
            text = f"from {before.users:,} to {level.users:,} users throughput changes by {100 * gain:+.0f} %"
            return Knee(users=before.users, reason=f"{text}, while each of them waits longer for a token.")
        before = level
    text = f"up to {before.users:,} users throughput rises and the pool holds them all; sweep further to find the knee."
    return Knee(users=before.users, reason=text, is_open=True)


def try_batches(
    request: PlanRequest, model: ModelFacts, demand: Demand, users: int, *, should_stop: ShouldStop | None = None
) -> Iterator[BatchTrial]:
    """Each value of max_num_batched_tokens, planned anew (its activation peak is taken from the pool) and simulated."""
    present = resolved_integer(plan(request, model), "max_num_batched_tokens")
    for batch in sorted({*BATCHES, present}):
        if should_stop is not None and should_stop():
            return
        flags = replace(request.flags, max_num_batched_tokens=batch, max_num_seqs=users)
        trial = BatchTrial(
            max_num_batched_tokens=batch, num_blocks=0, pool_tokens=0, load=None, is_present=batch == present
        )
        try:
            changed = plan(replace(request, flags=flags), model)
            load = None
            if changed.will_start:
                asked = replace(demand, users=users, requests_per_second=None)
                load = serve(changed, model, asked, should_stop=should_stop)
        except PlanError as error:
            yield replace(trial, refusal=error.text)
            continue
        yield replace(
            trial,
            num_blocks=changed.pool.num_blocks,
            pool_tokens=changed.pool.tokens,
            load=load,
            refusal="" if load is not None else changed.reason,
        )
