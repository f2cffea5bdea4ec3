"""What a running engine says of its pool, set against a plan: each difference explained by a cause, or named unexplained.

A cause is believed only where it makes the number right: the plan is made again with the engine's own flags, version and
length, and what still differs is tried against data parallelism, the hybrid manager and the other ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from live.plan_causes import Cause, cause_of_length, cause_of_version, flag_causes, with_causes
from live.samples import EngineSample, ServedModel
from planner.answer import KvPool, Plan
from planner.facts import PlanError
from planner.request import PlanRequest

RowState = Literal["equal", "in_band", "explained", "unexplained", "not_exported"]
Replan = Callable[[PlanRequest], Plan]

_RANK_TOLERANCE = (
    0.01  # another rank's pool is scaled from its bytes and layers, which leaves out what is not per layer
)


_PARALLEL_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedNumber:
    """One number of the engine beside the plan's; `text` says why they differ, or what is not known."""

    name: str
    actual: float | None
    predicted: float
    low: float
    high: float
    state: RowState
    text: str = ""
    adjusted: float | None = None  # of the plan with the engine's own settings, where that is another

    @property
    def error_fraction(self) -> float | None:
        """(predicted − actual) / actual; None where the engine does not say."""
        return None if not self.actual else (self.predicted - self.actual) / self.actual


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanComparison:
    """The comparison. `causes` are settings that differ; `adjusted` is the plan with the engine's settings, where it was made."""

    numbers: tuple[ComparedNumber, ...]
    causes: tuple[Cause, ...]
    adjusted: Plan | None = None

    @property
    def unexplained(self) -> tuple[ComparedNumber, ...]:
        """The numbers no cause makes right."""
        return tuple(number for number in self.numbers if number.state == "unexplained")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What is known of the engine beside its sample: `num_engines` are those of one server that share its front end."""

    vllm_version: str | None = None
    models: tuple[ServedModel, ...] = ()
    num_engines: int = 1
    server_info: str | None = None  # /server_info's text, of a server in development mode


_POOL_NUMBERS: tuple[tuple[str, Callable[[KvPool], float]], ...] = (
    ("block_size", lambda pool: pool.block_size),
    ("num_gpu_blocks", lambda pool: pool.num_blocks),
    ("kv_cache_tokens", lambda pool: pool.tokens),
    ("max_concurrency", lambda pool: pool.max_concurrency),
)


def served_length(sample: EngineSample, models: Sequence[ServedModel]) -> int | None:
    """max_model_len as /v1/models says it for the sample's model, or for the only one served."""
    bases = [model for model in models if model.parent is None]
    named = [model for model in bases if model.model_id == sample.identity.model_name]
    chosen = named or (bases if len(bases) == 1 else [])
    return chosen[0].max_model_len if chosen else None


def _is_near(name: str, actual: float, plan: Plan) -> bool:
    read = dict(_POOL_NUMBERS)[name]
    low, high = sorted((read(plan.pool_low), read(plan.pool_high)))
    best = read(plan.pool)
    slack = 1e-6 * abs(best)
    return min(low, best) - slack <= actual <= max(high, best) + slack


def _replanned(request: PlanRequest, replan: Replan | None) -> Plan | None:
    if replan is None:
        return None
    try:
        return replan(request)
    except PlanError:
        return None


def _data_parallel(name: str, actual: float, plan: Plan, facts: EngineFacts) -> str | None:
    count = facts.num_engines
    if name != "num_gpu_blocks" or count < 2 or not _is_near(name, actual / count, plan):
        return None
    return f"The front end adds up the blocks of its {count} data-parallel engines: {actual / count:,.0f} each, as planned."


def _other_rank(name: str, actual: float, plan: Plan) -> str | None:
    """Whether the pool is the one another pipeline stage would have."""
    if name != "num_gpu_blocks" or len(plan.ranks) < 2:
        return None
    bounding = plan.ranks[plan.bounding_rank]
    for rank in plan.ranks:
        if rank is bounding or not bounding.kv_pool.best_bytes or not rank.num_layers:
            continue
        share = rank.kv_pool.best_bytes * bounding.num_layers / (bounding.kv_pool.best_bytes * rank.num_layers)
        if abs(plan.pool.num_blocks * share - actual) <= _RANK_TOLERANCE * actual:
            return (
                f"It is the pool that rank {rank.pp_rank} alone would have; the plan takes rank {bounding.pp_rank}'s, "
                "which has less."
            )
    return None


def _hybrid(name: str, actual: float, plan: Plan, replan: Replan | None) -> str | None:
    """Whether the other state of the hybrid KV cache manager gives the number."""
    flags = plan.request.flags
    is_off = bool(flags.disable_hybrid_kv_cache_manager)
    request = replace(plan.request, flags=replace(flags, disable_hybrid_kv_cache_manager=not is_off))
    other = _replanned(request, replan)
    if other is None or len(other.pool.groups) == len(plan.pool.groups) or not _is_near(name, actual, other):
        return None
    state = "on" if is_off else "off"
    return (
        f"The engine runs with its hybrid KV cache manager {state} (a connector or KV events can turn it off): "
        f"{len(other.pool.groups)} group(s) instead of {len(plan.pool.groups)}."
    )


def _other_parallel(name: str, actual: float, plan: Plan, replan: Replan | None) -> str | None:
    """Whether another tensor_parallel_size, which no metric exports, gives the number."""
    flags = plan.request.flags
    for size in _PARALLEL_SIZES:
        if size == flags.tensor_parallel_size:
            continue
        other = _replanned(replace(plan.request, flags=replace(flags, tensor_parallel_size=size)), replan)
        if other is not None and _is_near(name, actual, other):
            return (
                f"It is the pool of tensor_parallel_size={size}; the plan has {flags.tensor_parallel_size}, and no metric "
                "exports which it is."
            )
    return None


def _structure(name: str, actual: float, plan: Plan, facts: EngineFacts, replan: Replan | None) -> str | None:
    """The explanation that no setting of cache_config_info shows."""
    return (
        _data_parallel(name, actual, plan, facts)
        or _hybrid(name, actual, plan, replan)
        or _other_rank(name, actual, plan)
        or _other_parallel(name, actual, plan, replan)
    )


def _row(name: str, actual: float | None, plan: Plan, state: RowState, text: str = "") -> ComparedNumber:
    read = dict(_POOL_NUMBERS)[name]
    low, high = sorted((read(plan.pool_low), read(plan.pool_high)))
    return ComparedNumber(
        name=name, actual=actual, predicted=read(plan.pool), low=low, high=high, state=state, text=text
    )


def _with_adjusted(number: ComparedNumber, adjusted: Plan | None) -> ComparedNumber:
    return number if adjusted is None else replace(number, adjusted=dict(_POOL_NUMBERS)[number.name](adjusted.pool))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    plan: Plan
    adjusted: Plan | None
    causes: tuple[Cause, ...]
    facts: EngineFacts
    replan: Replan | None

    def number(self, name: str, actual: float | None) -> ComparedNumber:
        """The row of one number."""
        if actual is None:
            text = "Not exported by this version, or not in this text."
            return _row(name, None, self.plan, "not_exported", text)
        predicted = dict(_POOL_NUMBERS)[name](self.plan.pool)
        if abs(actual - predicted) <= 1e-9 * abs(predicted):
            return _row(name, actual, self.plan, "equal")
        if _is_near(name, actual, self.plan):
            return _row(name, actual, self.plan, "in_band", "Within the plan's 90 % band.")
        if self.adjusted is not None and _is_near(name, actual, self.adjusted):
            return _row(name, actual, self.plan, "explained", " ".join(cause.text for cause in self.causes))
        nearest = self.adjusted or self.plan
        structure = _structure(name, actual, nearest, self.facts, self.replan)
        if structure is not None:
            text = " ".join([*(cause.text for cause in self.causes if self.adjusted), structure])
            return _row(name, actual, self.plan, "explained", text)
        return _row(name, actual, self.plan, "unexplained", self._unexplained(name, actual, nearest))

    def _unexplained(self, name: str, actual: float, nearest: Plan) -> str:
        planned = dict(_POOL_NUMBERS)[name](nearest.pool)
        tried = " with the engine's own settings" if self.adjusted is not None else ""
        named = "".join(f" {cause.text}" for cause in self.causes)
        share = f" ({(planned - actual) / actual:+.1%})" if actual else ""
        return f"Unexplained: the plan{tried} gives {planned:,.6g} and the engine {actual:,.6g}{share}.{named}"


def compare_with_plan(
    sample: EngineSample, plan: Plan, facts: EngineFacts | None = None, replan: Replan | None = None
) -> PlanComparison:
    """The engine's pool beside `plan`; `replan` makes the plan of another request for the same model and card."""
    facts = facts or EngineFacts()
    config = sample.cache_config
    causes = [*cause_of_version(facts.vllm_version, plan), *cause_of_length(served_length(sample, facts.models), plan)]
    if config is not None:
        causes += flag_causes(config, plan)
    adjusted = _replanned(with_causes(plan.request, causes), replan) if causes else None
    comparison = _Comparison(plan=plan, adjusted=adjusted, causes=tuple(causes), facts=facts, replan=replan)
    found = (comparison.number(name, getattr(config, name, None)) for name, _ in _POOL_NUMBERS)
    numbers = tuple(_with_adjusted(number, adjusted) for number in found)
    return PlanComparison(numbers=numbers, causes=tuple(causes), adjusted=adjusted)
