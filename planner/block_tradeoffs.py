"""What a choice about blocks costs and buys on one workload; every point is a simulation of its own."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, replace
from typing import Literal

from planner.contiguous import POLICIES, ContiguousPolicy, simulate_contiguous
from planner.facts import PlanError
from planner.sequence import SimulatedRequest
from planner.simulate import SimulationResult, simulate
from planner.simulator_config import FULL_ATTENTION, SimulatorConfig

BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)  # tokens
Switch = Literal["prefix_caching", "sliding_window", "hybrid_manager"]
_TABLE_ENTRY_BYTES = 4  # one int32 a block in the engine's table


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSizePoint:
    """One block size in a pool of the same memory."""

    block_size: int
    empty_slots_fraction: float  # of the slots in used blocks: internal waste
    peak_table_bytes: int  # of all block tables at once
    hit_fraction: float  # of the tokens asked for, found in the cache: hits end on block boundaries
    num_preemptions: int
    num_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyPoint:
    """At most `max_num_seqs` at once. Fractions are means over the steps in which anything ran."""

    max_num_seqs: int
    mean_running: float
    paged_fraction: float  # of the slots in used blocks that hold a token: how full paging keeps what it takes
    pool_fraction: float  # of the whole pool that holds a token
    contiguous: tuple[tuple[ContiguousPolicy, float], ...]  # of the reserved slots that hold a token


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPoint:
    """One switch on and off."""

    switch: Switch
    on: SimulationResult
    off: SimulationResult


def block_size_points(
    config: SimulatorConfig, requests: Items[SimulatedRequest], sizes: Items[int] = BLOCK_SIZES
) -> tuple[BlockSizePoint, ...]:
    """The workload under each block size, in a pool of as many token slots."""
    slots = config.num_usable_blocks * config.block_size
    points = []
    for size in sizes:
        engine = replace(config, block_size=size, num_gpu_blocks=slots // size + 1)
        result = simulate(engine, requests)
        columns, summary = result.timeline.columns, result.summary
        used = sum(engine.num_usable_blocks - free for free in columns.free_blocks)
        point = BlockSizePoint(
            block_size=size,
            empty_slots_fraction=max(0.0, 1.0 - sum(columns.held_tokens) / (used * size)) if used else 0.0,
            peak_table_bytes=summary.peak_used_blocks * _TABLE_ENTRY_BYTES,
            hit_fraction=summary.hit_tokens / summary.queried_tokens if summary.queried_tokens else 0.0,
            num_preemptions=summary.num_preemptions,
            num_steps=summary.num_steps,
        )
        points.append(point)
    return tuple(points)


def concurrency_points(
    config: SimulatorConfig, requests: Items[SimulatedRequest], concurrencies: Items[int]
) -> tuple[ConcurrencyPoint, ...]:
    """Paged and contiguous use of memory as more requests may run at once; prefix sharing is off to compare slots."""
    return tuple(_concurrency_point(config, requests, limit) for limit in concurrencies)


def switch_point(config: SimulatorConfig, requests: Items[SimulatedRequest], switch: Switch) -> SwitchPoint:
    """The workload with `switch` on and off."""
    on, off = _switched(config, switch)
    return SwitchPoint(switch=switch, on=simulate(on, requests), off=simulate(off, requests))


def _concurrency_point(config: SimulatorConfig, requests: Items[SimulatedRequest], limit: int) -> ConcurrencyPoint:
    engine = replace(config, max_num_seqs=limit, enable_prefix_caching=False)
    columns = simulate(engine, requests).timeline.columns
    busy = [step for step, running in enumerate(columns.num_running) if running]
    held = sum(columns.held_tokens[step] for step in busy)
    used = sum(engine.num_usable_blocks - columns.free_blocks[step] for step in busy) * engine.block_size
    pool = len(busy) * engine.num_usable_blocks * engine.block_size
    return ConcurrencyPoint(
        max_num_seqs=limit,
        mean_running=sum(columns.num_running) / len(busy) if busy else 0.0,
        paged_fraction=held / used if used else 0.0,
        pool_fraction=held / pool if pool else 0.0,
        contiguous=tuple((policy, _kept_fraction(engine, requests, policy)) for policy in POLICIES),
    )


def _kept_fraction(config: SimulatorConfig, requests: Items[SimulatedRequest], policy: ContiguousPolicy) -> float:
    columns = simulate_contiguous(config, requests, policy).columns
    reserved = sum(columns.reserved_tokens)
    return sum(columns.used_tokens) / reserved if reserved else 0.0


def _switched(config: SimulatorConfig, switch: Switch) -> tuple[SimulatorConfig, SimulatorConfig]:
    if switch == "prefix_caching":
        return replace(config, enable_prefix_caching=True), replace(config, enable_prefix_caching=False)
    if all(group.span_tokens is None for group in config.groups):
        text = "This model has no sliding window to switch off."
        raise PlanError("groups", len(config.groups), text)
    whole = replace(config, groups=tuple(FULL_ATTENTION if group.span_tokens else group for group in config.groups))
    if switch == "sliding_window":
        return config, whole
    # without the hybrid manager every layer keeps all tokens, in one table over pages as large as all groups' together
    joined = replace(whole, groups=(FULL_ATTENTION,), num_gpu_blocks=config.num_usable_blocks // len(config.groups) + 1)
    return config, joined
