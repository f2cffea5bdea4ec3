"""The fewest cards that hold a demand: splits in order of cards, ruled out by formula, confirmed by the simulator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from planner.answer import Plan
from planner.budget import plan
from planner.demand import Demand
from planner.facts import PlanError
from planner.gpu_catalog import GpuFacts
from planner.inventory import ModelFacts
from planner.matrix import MatrixQuestion, Sheet, Split, sheet
from planner.request import PlanRequest
from planner.served_load import (
    MOST_CONCURRENT,
    ServedLoad,
    ShouldStop,
    expected_concurrency,
    roofline_of,
    serve,
    served_config,
    with_room_for,
)
from planner.simulator_config import KvGroup, SimulatorConfig

TENSOR_PARALLEL = (1, 2, 4, 8, 16)
PIPELINE_PARALLEL = (1, 2, 3, 4)
MOST_CARDS = 64
_NEVER_SETTLES = (
    "By formula requests come faster than a card of this speed serves them: the number under way grows without end."
)
State = Literal["does_not_start", "too_small", "preempts", "falls_behind", "holds", "not_simulated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One split of the model over cards of one kind, and how far it got."""

    gpu: GpuFacts
    split: Split
    request: PlanRequest
    state: State
    reason: str
    users_per_copy: float = 0.0
    needed_blocks: int = 0  # of one copy, by formula
    num_blocks: int = 0
    load: ServedLoad | None = None

    @property
    def holds(self) -> bool:
        """Whether the demand is held."""
        return self.state == "holds"


def splits_up_to(most_cards: int) -> tuple[Split, ...]:
    """All splits of at most `most_cards`, fewest cards first, then fewer stages, then more copies."""
    if not 1 <= most_cards <= MOST_CARDS:
        text = f"The most cards to try are {most_cards:,}; write a whole number from 1 to {MOST_CARDS}."
        raise PlanError("most_cards", most_cards, text)
    found = [
        Split(tensor_parallel_size=tp, pipeline_parallel_size=pp, data_parallel_size=dp)
        for tp in TENSOR_PARALLEL
        for pp in PIPELINE_PARALLEL
        for dp in range(1, most_cards // (tp * pp) + 1)
    ]
    return tuple(sorted(found, key=lambda split: (split.num_cards, split.pipeline_parallel_size, split.num_ranks)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Where to look: cards of one kind, at most so many."""

    gpu: GpuFacts
    most_cards: int = 8
    should_stop: ShouldStop | None = None


def fewest_cards(request: PlanRequest, model: ModelFacts, demand: Demand, search: Search) -> Iterator[Candidate]:
    """Candidates as they are judged, fewest cards first, to the first that holds; raises `PlanError` for the demand."""
    asked, gpu, should_stop = _with_length(request, model, demand), search.gpu, search.should_stop
    splits = splits_up_to(search.most_cards)
    question = MatrixQuestion(request=asked, gpus=(gpu,), splits=splits, kv_dtypes=(request.flags.kv_cache_dtype,))
    cells = sheet(question, model)
    for place, split in enumerate(splits):
        if should_stop is not None and should_stop():
            return
        found = _judge(cells, place, model, demand.for_replicas(split.data_parallel_size), should_stop)
        if should_stop is not None and should_stop():
            return  # what was cut short is not judged
        yield found
        if found.holds:
            return


def _with_length(request: PlanRequest, model: ModelFacts, demand: Demand) -> PlanRequest:
    """The request with a length that all of p99 fits in."""
    length = demand.longest_tokens
    if length > model.max_position and not request.allow_long_max_model_len:
        text = (
            f"Prompt and output at p99 are {length:,} tokens together with the shared prefix, and {request.model_id} takes "
            f"{model.max_position:,} at most; lower the percentiles or choose another model."
        )
        raise PlanError("prompt_p99", length, text)
    return replace(request, flags=replace(request.flags, max_model_len=length))


def _judge(cells: Sheet, place: int, model: ModelFacts, demand: Demand, should_stop: ShouldStop | None) -> Candidate:
    cell = (place, 0, 0)
    question = cells.question
    gpu, split = question.gpus[0], question.splits[place]
    request = cells.request(cell)
    candidate = Candidate(gpu=gpu, split=split, request=request, state="does_not_start", reason="")
    if cells.stop(cell) != "starts":
        return replace(candidate, reason=cells.refusal(cell) or plan(request, model).reason)
    present = plan(request, model)
    try:
        wanted = expected_concurrency(demand, roofline_of(present, model))
    except PlanError as error:  # the card's speed is not known: nothing that takes time can be said
        return _by_formula_alone(replace(candidate, reason=error.text), present, demand, model)
    if wanted >= MOST_CONCURRENT:
        return replace(candidate, state="falls_behind", users_per_copy=wanted, reason=_NEVER_SETTLES)
    present = with_room_for(present, model, math.ceil(wanted))
    request = present.request
    candidate = replace(
        candidate, request=request, users_per_copy=wanted, num_blocks=present.pool.num_blocks,
        needed_blocks=needed_blocks(present, model, demand, wanted),
    )  # fmt: skip
    if not present.will_start:
        return replace(candidate, reason=present.reason)
    if candidate.needed_blocks > candidate.num_blocks:
        return replace(candidate, state="too_small", reason=_too_small(candidate))
    return _simulated(candidate, present, model, demand, should_stop)


def _by_formula_alone(candidate: Candidate, present: Plan, demand: Demand, model: ModelFacts) -> Candidate:
    if demand.users is None:
        return replace(candidate, state="not_simulated")
    needed = needed_blocks(present, model, demand, demand.users)
    known = replace(candidate, users_per_copy=demand.users, needed_blocks=needed, num_blocks=present.pool.num_blocks)
    if needed > present.pool.num_blocks:
        return replace(known, state="too_small", reason=_too_small(known))
    return replace(known, state="not_simulated", reason=f"By formula it holds. {candidate.reason}")


def needed_blocks(present: Plan, model: ModelFacts, demand: Demand, concurrency: float) -> int:
    """Blocks that `concurrency` requests of mean length hold when half of their output is there, the prefix once.

    prefix + concurrency x (prompt + output / 2), of windows what a decoding request still reads: less cannot hold the
    load; whether this much can, the simulator says.
    """
    config = served_config(present, model)
    prompt, output = demand.means()
    own = max(1, round(prompt + output / 2))
    shares = bool(demand.prefix_tokens) and config.enable_prefix_caching
    per_request = prefix = 0
    for group in config.groups:
        held = _held_blocks(config, group, demand.prefix_tokens + own)
        per_request += min(held, config.blocks_for(group, own)) if shares else held
        if shares and group.kind == "full":
            prefix += config.blocks_for(group, demand.prefix_tokens)
    return math.ceil(concurrency * per_request) + prefix


def _held_blocks(config: SimulatorConfig, group: KvGroup, num_tokens: int) -> int:
    """The blocks of a decoding request of `num_tokens`: what has left a window is given back."""
    return config.blocks_for(group, num_tokens) - group.num_skipped_tokens(num_tokens) // config.block_size_of(group)


def _too_small(candidate: Candidate) -> str:
    return (
        f"By formula {candidate.users_per_copy:,.0f} requests at once need {candidate.needed_blocks:,} blocks of each copy, "
        f"and its pool has {candidate.num_blocks:,}."
    )


def _simulated(
    candidate: Candidate, present: Plan, model: ModelFacts, demand: Demand, should_stop: ShouldStop | None
) -> Candidate:
    try:
        load = serve(present, model, demand, should_stop=should_stop)
    except PlanError as error:
        return replace(candidate, state="not_simulated", reason=error.text)
    known = replace(candidate, load=load)
    told = (
        f"Simulated: {load.num_preemptions:,} preemptions on {load.num_finished:,} requests, "
        f"{load.mean_running:.1f} ran and {load.mean_waiting:.1f} waited on average, the pool {100 * load.mean_used_fraction:.0f} % full."
    )
    if load.preempted_fraction > demand.most_preempted_fraction:
        return replace(known, state="preempts", reason=told)
    if load.is_backlog_growing or load.mean_waiting > 0.1 * max(1.0, load.mean_running):
        return replace(known, state="falls_behind", reason=told)
    return replace(known, state="holds" if not load.is_cut else "not_simulated", reason=told)
