"""What to change when a plan does not start: single changes, each tried by planning again, smallest first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from planner.answer import Advice, Plan
from planner.facts import PlanError
from planner.flags import all_flags
from planner.inventory import ModelFacts
from planner.quantization_choice import online_fp8
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB, div_ceil
from planner.versions import parse_version

Planner = Callable[[PlanRequest, ModelFacts], Plan]

LARGEST_ADVISED_HUNDREDTHS = 97  # of gpu_memory_utilization
LARGEST_ADVISED_RANKS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One change of one flag; `cost` orders attempts by how much they take from the user."""

    flag: str
    value: object
    cost: float
    text: str


def advise(failing: Plan, model: ModelFacts, plan: Planner) -> tuple[Advice, ...]:
    """Single changes with which `failing` starts, least costly first; empty when none alone is enough."""
    scales = (_lengths, _sequences, _batched_tokens, _utilizations, _offload)
    found = [_least(tuple(scale(failing)), failing.request, model, plan) for scale in scales]
    cards = (_least((attempt,), failing.request, model, plan) for attempt in _cards(failing))
    found.append(next((pair for pair in cards if pair is not None), None))
    alone = (*_switches(failing, model), *_refused_flags(failing, model), *_fixed_pools(failing))
    found += [_least((attempt,), failing.request, model, plan) for attempt in alone]
    starting = [pair for pair in found if pair is not None]
    return tuple(advice for _, advice in sorted(starting, key=lambda pair: pair[0]))


def _least(
    attempts: tuple[_Attempt, ...], request: PlanRequest, model: ModelFacts, plan: Planner
) -> tuple[float, Advice] | None:
    """The first of `attempts`, which grow in force, that starts: nothing when even the last does not."""
    if not attempts:
        return None
    low, high = 0, len(attempts) - 1
    best = _try(request, attempts[high], model, plan)
    if best is None:
        return None
    while low < high:
        middle = (low + high) // 2
        changed = _try(request, attempts[middle], model, plan)
        if changed is None:
            low = middle + 1
        else:
            high, best = middle, changed
    return attempts[high].cost, _advice(attempts[high], best)


def _try(request: PlanRequest, attempt: _Attempt, model: ModelFacts, plan: Planner) -> Plan | None:
    if attempt.value is not None and not all_flags()[attempt.flag.replace("_", "-")].is_in(
        parse_version(request.vllm_version)
    ):
        return None
    change: dict[str, Any] = {attempt.flag: attempt.value}  # Any: the value fits its flag by construction
    flags = replace(request.flags, **change)
    try:
        changed = plan(replace(request, flags=flags), model)
    except PlanError:  # the change itself is not allowed for this model: no advice
        return None
    return changed if changed.will_start else None


def _advice(attempt: _Attempt, changed: Plan) -> Advice:
    pool = changed.pool
    effect = (
        f"starts: {max(0, changed.ranks[changed.bounding_rank].kv_pool.best_bytes) / GIB:.2f} GiB of KV cache, "
        f"{pool.tokens:,} tokens, {pool.max_concurrency:.2f} requests of {pool.max_model_len:,} tokens"
    )
    return Advice(change=attempt.text, effect=effect, flag=attempt.flag, value=attempt.value)


def _halves(start: int, floor: int) -> Iterator[int]:
    """Powers of two below `start`, down to `floor`."""
    value = 1 << (start - 1).bit_length() >> 1
    while value >= floor:
        yield value
        value //= 2


def _lengths(failing: Plan) -> Iterator[_Attempt]:
    fitting = failing.pool.estimated_max_model_len
    if not 0 < fitting < failing.pool.max_model_len:
        return
    kept = fitting / failing.pool.max_model_len
    for length in (fitting // 1024 * 1024, fitting):
        if length > 0:
            yield _Attempt(
                flag="max_model_len",
                value=length,
                cost=2.0 - kept if kept > 0.5 else 3.0,
                text=f"--max-model-len {length} (instead of {failing.pool.max_model_len:,})",
            )


def _sequences(failing: Plan) -> Iterator[_Attempt]:
    current = _resolved_int(failing, "max_num_seqs")
    for value in _halves(current, 1):
        cost = 1.2 if value >= 64 else 2.2
        yield _Attempt(
            flag="max_num_seqs", value=value, cost=cost, text=f"--max-num-seqs {value} (instead of {current:,})"
        )


def _batched_tokens(failing: Plan) -> Iterator[_Attempt]:
    current = _resolved_int(failing, "max_num_batched_tokens")
    floor = max(256, _resolved_int(failing, "max_num_seqs"))
    for value in _halves(current, floor):
        text = f"--max-num-batched-tokens {value} (instead of {current:,})"
        yield _Attempt(flag="max_num_batched_tokens", value=value, cost=1.4 if value >= 2048 else 2.3, text=text)


def _utilizations(failing: Plan) -> Iterator[_Attempt]:
    """Upwards while the pool is too small; down to what is free when less memory is free than asked for."""
    current = next(float(str(item.value)) for item in failing.resolved if item.name == "gpu_memory_utilization")
    if (failing.vllm_error or "").startswith("Free memory on device"):
        hundredths = [_free_hundredths(failing)]
    else:
        hundredths = list(range(math.floor(current * 100) + 1, LARGEST_ADVISED_HUNDREDTHS + 1))
    for value in hundredths:
        if value > 0:
            utilization = value / 100
            cost = 1.0 + abs(utilization - current) * 10
            text = f"--gpu-memory-utilization {utilization} (instead of {current})"
            yield _Attempt(flag="gpu_memory_utilization", value=utilization, cost=cost, text=text)


def _free_hundredths(failing: Plan) -> int:
    """The largest utilisation, in hundredths, whose share of the card is free at start on every rank."""
    total = failing.gpu_total.best_bytes
    taken = max(
        sum(line.estimate.best_bytes for line in rank.lines if line.name in ("other_processes", "context"))
        for rank in failing.ranks
    )
    return (total - taken) * 100 // total


def _cards(failing: Plan) -> Iterator[_Attempt]:
    flags = failing.request.flags
    size = flags.tensor_parallel_size * 2
    while size <= LARGEST_ADVISED_RANKS:
        text = f"--tensor-parallel-size {size} ({size * flags.pipeline_parallel_size} cards)"
        yield _Attempt(flag="tensor_parallel_size", value=size, cost=4.0 + size / 16, text=text)
        size *= 2


def _offload(failing: Plan) -> Iterator[_Attempt]:
    rank = failing.ranks[failing.bounding_rank]
    short = max(failing.pool.needed_bytes - rank.kv_pool.best_bytes, -rank.kv_pool.best_bytes, 0)
    first = math.ceil(short / GIB) + 1
    for gib in (first, first * 2):
        if gib * GIB < rank.weights.load.best_bytes:
            text = f"--cpu-offload-gb {gib} (these weights then cross the bus at every step)"
            yield _Attempt(flag="cpu_offload_gb", value=float(gib), cost=6.0, text=text)


def _switches(failing: Plan, model: ModelFacts) -> Iterator[_Attempt]:
    """Changes that stand beside each other rather than on a scale."""
    flags: EngineFlags = failing.request.flags
    if not flags.enforce_eager:
        yield _Attempt(
            flag="enforce_eager", value=True, cost=2.6, text="--enforce-eager (no CUDA graphs: slower decoding)"
        )
    if flags.kv_cache_dtype == "auto":
        yield _Attempt(
            flag="kv_cache_dtype", value="fp8", cost=1.8, text="--kv-cache-dtype fp8 (half the KV bytes; check quality)"
        )
    if flags.quantization is None and model.quantization is None:
        yield _quantized(failing, 3.4)
    if flags.disable_hybrid_kv_cache_manager:
        text = "without --disable-hybrid-kv-cache-manager (sliding windows then cost only their window)"
        yield _Attempt(flag="disable_hybrid_kv_cache_manager", value=None, cost=0.9, text=text)
    if model.is_multimodal and not flags.language_model_only:
        text = "--language-model-only (no images or audio: their encoder and its profile go)"
        yield _Attempt(flag="language_model_only", value=True, cost=2.8, text=text)


def _quantized(failing: Plan, cost: float) -> _Attempt:
    method = online_fp8(parse_version(failing.vllm_version))
    text = f"--quantization {method} (weights quantised while loading; check quality)"
    return _Attempt(flag="quantization", value=method, cost=cost, text=text)


def _refused_flags(failing: Plan, model: ModelFacts) -> Iterator[_Attempt]:
    """What takes the place of a flag that the card, the checkpoint or the release refuses."""
    flags = failing.request.flags
    refused = {finding.field for finding in failing.findings if finding.severity == "refusal"}
    if "dtype" in refused:
        yield _Attempt(flag="dtype", value="half", cost=0.5, text="--dtype half (this card has no bfloat16)")
    if "kv_cache_dtype" in refused and flags.kv_cache_dtype != "auto":
        text = f"without --kv-cache-dtype {flags.kv_cache_dtype} (the cache then has the model's dtype)"
        yield _Attempt(flag="kv_cache_dtype", value="auto", cost=0.5, text=text)
    if "quantization" in refused and flags.quantization is not None:
        if model.quantization is None:
            yield _quantized(failing, 0.5)
        text = f"without --quantization {flags.quantization} (the checkpoint as it is)"
        yield _Attempt(flag="quantization", value=None, cost=0.6, text=text)


def _fixed_pools(failing: Plan) -> Iterator[_Attempt]:
    """A pool fixed by the user, in whole GiB: as large as loads beside the rest, or as one request needs."""
    flags = failing.request.flags
    if flags.num_gpu_blocks_override is not None:
        text = "without --num-gpu-blocks-override (as many blocks as the memory holds)"
        yield _Attempt(flag="num_gpu_blocks_override", value=None, cost=0.7, text=text)
    given = flags.kv_cache_memory_bytes
    if given is None:
        return
    spare = min(line.estimate.best_bytes for rank in failing.ranks for line in rank.lines if line.name == "unreserved")
    gib = (
        (given + spare) // GIB if spare < 0 else div_ceil(failing.pool.needed_bytes + failing.pool.bytes_per_block, GIB)
    )
    if gib > 0:
        text = f"--kv-cache-memory-bytes {gib * GIB} ({gib} GiB instead of {given / GIB:.2f})"
        yield _Attempt(flag="kv_cache_memory_bytes", value=gib * GIB, cost=0.8, text=text)


def _resolved_int(plan: Plan, name: str) -> int:
    return next(int(str(item.value)) for item in plan.resolved if item.name == name)
