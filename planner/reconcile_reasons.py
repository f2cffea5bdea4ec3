"""Why a start may differ from its plan: each reason only where its condition is seen in the log or in the plan."""

from __future__ import annotations

from dataclasses import dataclass

from planner.answer import Plan
from planner.budget import card_of
from planner.calibration import stage_of
from planner.calibration_evidence import stage_of_rank, utilization_of
from planner.facts import Estimate
from planner.measured_start import MeasuredStart, release
from planner.units import GIB, MIB
from planner.versions import Era, era_of

_RANKS_APART_BYTES = 50 * MIB
_PRINTED_STEP = 5e-4
_PLAIN_LOADERS = (None, "auto", "safetensors", "hf", "pt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason: a stable code, the term that it touches ("" for all), and a sentence with this start's numbers."""

    code: str
    text: str
    term: str = ""


def reasons_of(plan: Plan, start: MeasuredStart) -> tuple[Reason, ...]:
    """Every reason whose condition holds, those that change everything first."""
    found = (
        _version(plan, start),
        _length(plan, start),
        _split(plan, start),
        _utilization(plan, start),
        _given_pool(plan),
        _weights(plan, start),
        _compile(plan, start),
        _graphs_in_peak(start),
        _others(plan, start),
        _total(plan, start),
        _unified(plan, start),
        _ranks(start),
        _hybrid(plan, start),
    )
    return tuple(reason for reason in found if reason is not None)


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.2f} GiB"


def _outside(predicted: Estimate, measured: Estimate | None) -> int:
    """By how many bytes `measured` is above (or, negative, below) the band; 0 inside it."""
    if measured is None:
        return 0
    if measured.low_bytes > predicted.high_bytes:
        return measured.best_bytes - predicted.high_bytes
    return min(0, measured.best_bytes - predicted.low_bytes) if measured.high_bytes < predicted.low_bytes else 0


def _version(plan: Plan, start: MeasuredStart) -> Reason | None:
    theirs, ours = release(start.version), release(plan.vllm_version)
    if theirs is None or ours is None or theirs == ours:
        return None
    eras = era_of(theirs), era_of(ours)
    rules = (
        "" if eras[0] is eras[1] else f": its memory rules are those of {eras[0].label}, the plan's of {eras[1].label}"
    )
    return Reason(
        code="other-version", text=f"The log is of vLLM {start.version}, the plan of {plan.vllm_version}{rules}."
    )


def _length(plan: Plan, start: MeasuredStart) -> Reason | None:
    if start.max_model_len in (None, plan.pool.max_model_len):
        return None
    text = (
        f"The engine served max_model_len {start.max_model_len:,}, the plan {plan.pool.max_model_len:,}: "
        "requests at once are of different lengths."
    )
    return Reason(code="other-length", text=text, term="concurrency")


def _split(plan: Plan, start: MeasuredStart) -> Reason | None:
    flags = plan.request.flags
    pairs = [
        ("tensor_parallel_size", start.tensor_parallel_size, flags.tensor_parallel_size),
        ("pipeline_parallel_size", start.pipeline_parallel_size, flags.pipeline_parallel_size),
    ]
    told = [f"{name} {theirs} (plan: {ours})" for name, theirs, ours in pairs if theirs not in (None, ours)]
    return Reason(code="other-split", text=f"The engine ran with {' and '.join(told)}.") if told else None


def _utilization(plan: Plan, start: MeasuredStart) -> Reason | None:
    ours = next(float(str(item.value)) for item in plan.resolved if item.name == "gpu_memory_utilization")
    theirs = utilization_of(plan, start)
    if abs(theirs - ours) < _PRINTED_STEP:
        return None
    share = (theirs - ours) * plan.gpu_total.best_bytes
    text = f"The engine ran with gpu_memory_utilization {theirs:g}, the plan with {ours:g}: {_gib(share)} of the card."
    return Reason(code="other-utilization", text=text, term="kv_pool")


def _given_pool(plan: Plan) -> Reason | None:
    given = plan.request.flags.kv_cache_memory_bytes
    if given is None:
        return None
    text = "kv_cache_memory_bytes fixes the pool: vLLM makes no profile, and the log has no peak to compare."
    return Reason(code="given-pool", text=text, term="kv_pool")


def _weights(plan: Plan, start: MeasuredStart) -> Reason | None:
    rank = start.weakest
    if rank is None:
        return None
    planned = plan.ranks[stage_of_rank(rank, plan)].weights.load
    beyond = _outside(planned, rank.weights)
    if beyond == 0 or rank.weights is None:
        return None
    seen = _weight_causes(plan, start)
    why = " and ".join(seen) if seen else "the checkpoint or its format is not the one planned"
    text = f"Loading took {_gib(rank.weights.best_bytes)} where {_gib(planned.best_bytes)} are planned: {why}."
    return Reason(code="other-weights", text=text, term="weights")


def _weight_causes(plan: Plan, start: MeasuredStart) -> list[str]:
    """What the log shows and the plan lacks of what loading holds."""
    flags = plan.request.flags
    found = []
    if start.load_format not in _PLAIN_LOADERS:
        found.append(f"the loader {start.load_format} may keep memory of its own")
    if start.has_lora and not flags.enable_lora:
        found.append("the engine has LoRA slots, which the plan lacks")
    if start.has_draft and flags.speculative_config is None:
        found.append("the engine has a draft model, which the plan lacks")
    return found


def _compile(plan: Plan, start: MeasuredStart) -> Reason | None:
    """A compile cache that was cold or warm: only where that stage rules the peak and the log does not say which."""
    rank = start.weakest
    if rank is None or plan.request.compile_cache != "unknown":
        return None
    planned = plan.ranks[stage_of_rank(rank, plan)].activation
    if stage_of(planned) != "cold compile" or rank.activation is None:
        return None
    if rank.activation.high_bytes >= planned.best_bytes:
        return None
    text = (
        f"The plan assumes a first start that compiles ({_gib(planned.best_bytes)}); a peak of "
        f"{_gib(rank.activation.best_bytes)} is that of a start which found its compile cache."
    )
    return Reason(code="warm-compile-cache", text=text, term="activation")


def _graphs_in_peak(start: MeasuredStart) -> Reason | None:
    number = release(start.version)
    rank = start.weakest
    if number is None or rank is None or not era_of(number) >= Era.V027_031 or rank.activation_printed is None:
        return None
    if rank.graph_estimate is None:
        text = (
            f"The printed peak of {_gib(rank.activation_printed.best_bytes)} holds vLLM's estimate of graph memory, which this log "
            "does not print by itself: both are compared as one sum."
        )
    elif rank.graph_estimate.best_bytes:
        text = (
            f"The printed peak of {_gib(rank.activation_printed.best_bytes)} holds the graph estimate of "
            f"{_gib(rank.graph_estimate.best_bytes)}, taken off here; vLLM's suggested --kv-cache-memory counts graphs twice."
        )
    else:
        return None
    return Reason(code="graphs-in-peak", text=text, term="activation")


def _others(plan: Plan, start: MeasuredStart) -> Reason | None:
    """Memory that was gone before the first snapshot, beyond what a context takes."""
    if start.free_at_start is None or start.total is None:
        return None
    rank = plan.ranks[plan.bounding_rank]
    context = next(line.estimate for line in rank.lines if line.name == "context")
    held = start.total.best_bytes - start.free_at_start.best_bytes
    beyond = held - context.high_bytes - plan.request.other_processes_bytes
    if beyond <= 0:
        return None
    text = (
        f"{_gib(held)} of the card were taken before vLLM looked, {_gib(beyond)} more than its own context takes: "
        "another process was there. vLLM does not charge it to the budget unless it grows while profiling."
    )
    return Reason(code="other-processes", text=text, term="kv_pool")


def _total(plan: Plan, start: MeasuredStart) -> Reason | None:
    beyond = _outside(plan.gpu_total, start.total)
    if beyond == 0 or start.total is None:
        return None
    text = (
        f"The card has {_gib(start.total.best_bytes)} for CUDA where {plan.gpu_name} is planned with "
        f"{_gib(plan.gpu_total.best_bytes)}: another card, a slice of one, ECC or another driver."
    )
    return Reason(code="other-total", text=text, term="card_total")


def _unified(plan: Plan, start: MeasuredStart) -> Reason | None:
    rank = start.weakest
    if rank is None or rank.kv_pool is None:
        return None
    planned = plan.ranks[stage_of_rank(rank, plan)]
    if not card_of(plan.request).is_unified_memory or _outside(planned.kv_pool, rank.kv_pool) >= 0:
        return None
    text = "This card shares the system's memory: page cache and other processes that grow while vLLM profiles are charged to it."
    return Reason(code="unified-memory", text=text, term="non_torch")


def _ranks(start: MeasuredStart) -> Reason | None:
    pools = [(rank.kv_pool.best_bytes, rank.rank) for rank in start.ranks if rank.kv_pool is not None and rank.rank]
    if len(pools) < 2:
        return None
    (least, weakest), (most, strongest) = min(pools), max(pools)
    if most - least < _RANKS_APART_BYTES:
        return None
    text = (
        f"Rank {weakest} has {_gib(least)} for the cache and {strongest} {_gib(most)}: the weakest bounds all of them."
    )
    return Reason(code="weakest-rank", text=text, term="kv_pool")


def _hybrid(plan: Plan, start: MeasuredStart) -> Reason | None:
    """Tokens that differ although the pool agrees: layers of several kinds share the blocks in another way."""
    rank = start.weakest
    if rank is None or rank.kv_pool is None or start.tokens is None or len(plan.pool.groups) < 2:
        return None
    planned = plan.ranks[stage_of_rank(rank, plan)].kv_pool
    is_pool_met = _outside(planned, rank.kv_pool) == 0
    low, high = sorted((plan.pool_low.tokens, plan.pool_high.tokens))
    if not is_pool_met or low <= start.tokens <= high:
        return None
    text = (
        f"The pool agrees and the tokens do not ({start.tokens:,} against {plan.pool.tokens:,}): the cache has {len(plan.pool.groups)} "
        "groups of layers, and the hybrid manager (or its absence, as with some connectors) decides how tokens are counted."
    )
    return Reason(code="hybrid-manager", text=text, term="tokens")
