"""Many plans at once: a table over utilisation and length for each tensor-parallel size and KV dtype, as arrays.

Every cell equals `budget.plan` on the same flags; what does not change along an axis is computed once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner import kv_cache, weights
from planner.budget import card_of, charged_terms
from planner.calibration import Calibration
from planner.calibration_use import Use, choose
from planner.defaults import Resolved, resolve
from planner.facts import PlanError
from planner.inventory import ModelFacts
from planner.request import EngineFlags, PlanRequest

Bytes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSlice:
    """One tensor-parallel size and KV dtype; arrays are indexed `[utilisation]` or `[utilisation, length]`.

    `refusal` says why vLLM does not accept the combination; the arrays are then empty.
    """

    tensor_parallel_size: int
    kv_cache_dtype: str
    refusal: str | None
    utilizations: tuple[float, ...] = ()
    max_model_lens: tuple[int, ...] = ()
    pool_bytes: Bytes  # of the stage with the smallest pool
    num_blocks: Bytes
    max_concurrency: NDArray[np.float64]
    fits: NDArray[np.bool_]


def sweep(  # noqa: PLR0913 - three axes, the question's two halves and the constants to answer with
    request: PlanRequest,
    model: ModelFacts,
    *,
    utilizations: tuple[float, ...],
    max_model_lens: tuple[int, ...],
    variants: tuple[tuple[int, str], ...],
    calibration: Calibration | None = None,
) -> tuple[SweepSlice, ...]:
    """One slice per `(tensor_parallel_size, kv_cache_dtype)` of `variants`, each over every utilisation and length."""
    use = choose(request, card_of(request), calibration)
    return tuple(
        _slice(
            _varied(request, variant, utilizations[0], max(max_model_lens)), model, use, (utilizations, max_model_lens)
        )
        for variant in variants
    )


def _varied(request: PlanRequest, variant: tuple[int, str], utilization: float, max_model_len: int) -> PlanRequest:
    tp, kv_cache_dtype = variant
    flags = replace(
        request.flags,
        tensor_parallel_size=tp,
        kv_cache_dtype=kv_cache_dtype,
        max_model_len=max_model_len,
        gpu_memory_utilization=utilization,
    )
    return replace(request, flags=flags)


def _slice(
    request: PlanRequest, model: ModelFacts, use: Use, axes: tuple[tuple[float, ...], tuple[int, ...]]
) -> SweepSlice:
    flags = request.flags
    utilizations, max_model_lens = axes
    try:
        resolved = resolve(request, model, use.gpu)
        available = _available_bytes(model, resolved, utilizations, use)  # where a size that TP cannot cut shows
    except PlanError as error:
        return _refused(flags, error.text)
    refusal = next((finding.text for finding in resolved.findings if finding.severity == "refusal"), None)
    if refusal is not None:
        return _refused(flags, refusal)
    layout = kv_cache.layout(model, resolved)
    num_blocks = _num_blocks(layout, available)
    concurrency = np.array(
        [[kv_cache.max_concurrency(layout, 1, length) for length in max_model_lens]], dtype=np.float64
    )
    return SweepSlice(
        tensor_parallel_size=flags.tensor_parallel_size,
        kv_cache_dtype=flags.kv_cache_dtype,
        refusal=None,
        utilizations=utilizations,
        max_model_lens=max_model_lens,
        pool_bytes=available.min(axis=0),
        num_blocks=num_blocks,
        max_concurrency=num_blocks[:, None] * concurrency,
        fits=_fits(layout, available, num_blocks, max_model_lens),
    )


def _refused(flags: EngineFlags, text: str) -> SweepSlice:
    nothing = np.zeros(0, dtype=np.int64)
    return SweepSlice(
        tensor_parallel_size=flags.tensor_parallel_size,
        kv_cache_dtype=flags.kv_cache_dtype,
        refusal=text,
        pool_bytes=nothing,
        num_blocks=nothing,
        max_concurrency=np.zeros((0, 0)),
        fits=np.zeros((0, 0), dtype=np.bool_),
    )


def _available_bytes(model: ModelFacts, resolved: Resolved, utilizations: tuple[float, ...], use: Use) -> Bytes:
    """The pool's bytes `[stage, utilisation]`."""
    total = resolved.gpu.total.best_bytes
    requested = np.array([math.ceil(total * utilization) for utilization in utilizations], dtype=np.int64)
    given = resolved.flags.kv_cache_memory_bytes
    if given is not None:
        return np.full((resolved.pp, len(utilizations)), given, dtype=np.int64)
    parts = [_charged_bytes(model, resolved, stage, use) for stage in range(resolved.pp)]
    return requested[None, :] - np.array(parts, dtype=np.int64)[:, None]


def _charged_bytes(model: ModelFacts, resolved: Resolved, stage: int, use: Use) -> int:
    activation, non_torch, graphs, _ = charged_terms(model, resolved, stage, use)
    parts = (weights.rank_weights(model, resolved, stage).load, activation, non_torch, graphs)
    return sum(part.best_bytes for part in parts)


def _num_blocks(layout: kv_cache.KvLayout, available: Bytes) -> Bytes:
    override = layout.options.num_gpu_blocks_override
    if override is not None:
        return np.full(available.shape[1], override, dtype=np.int64)
    sizes = np.array(layout.bytes_per_block, dtype=np.int64)
    keeping = sizes > 0
    if not keeping.any():
        return np.ones(available.shape[1], dtype=np.int64)
    blocks: Bytes = np.maximum(available[keeping] // sizes[keeping][:, None], 0).min(axis=0)
    return blocks


def _fits(
    layout: kv_cache.KvLayout, available: Bytes, num_blocks: Bytes, lengths: tuple[int, ...]
) -> NDArray[np.bool_]:
    rules = layout.options.rules
    shape = (available.shape[1], len(lengths))
    if not layout.groups:
        return np.ones(shape, dtype=np.bool_)
    if rules.is_v0:
        held: NDArray[np.bool_] = np.array(lengths)[None, :] <= (num_blocks * layout.block_size)[:, None]
        return held
    fits = np.ones(shape, dtype=np.bool_)
    reserved = 1 if rules.counts_null_block else 0
    is_override_checked = layout.options.num_gpu_blocks_override is not None and rules.override_limits_fit
    for stage, size in enumerate(layout.bytes_per_block):
        if not size:
            continue
        check = (num_blocks * size if is_override_checked else available[stage]) - reserved * size
        needed = np.array([kv_cache.needed_bytes(layout, stage, length) for length in lengths])
        fits &= (check[:, None] > 0) & (needed[None, :] <= check[:, None])
    return fits
