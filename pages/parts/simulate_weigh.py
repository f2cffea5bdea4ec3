"""Trade-offs of one setup, each point simulated in a thread of its own run by run, and what they show in sentences.

Pure; knows no Streamlit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pages.parts import simulate_words
from pages.parts.simulate_setup import Setup
from planner.block_tradeoffs import (
    BLOCK_SIZES,
    BlockSizePoint,
    ConcurrencyPoint,
    Switch,
    SwitchPoint,
    block_size_points,
    concurrency_points,
    switch_point,
)
from planner.facts import PlanError
from planner.sequence import SimulatedRequest
from planner.simulator_config import FULL_ATTENTION, KvGroup, SimulatorConfig

MOST_REQUESTS = 300
_CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_FORSAKEN_AFTER_SECONDS = 60.0
CLAIM_CONCURRENCY, CLAIM_PAGED, CLAIM_BEFORE = 32, 0.95, 0.60
SWITCHES: tuple[Switch, ...] = ("prefix_caching", "sliding_window", "hybrid_manager")
SWITCH_WORDS = {
    "prefix_caching": "Prefix caching",
    "sliding_window": "Sliding window",
    "hybrid_manager": "Hybrid KV cache manager",
}


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    work: Callable[[], None]


class WeighJob:
    """The trade-offs of one setup under way; each list grows as its points are simulated."""

    def __init__(self, setup: Setup) -> None:
        self.config, self.window_note = _with_window(setup.config)
        self.plain_config = setup.config
        self.requests = _in_steps(setup.requests[:MOST_REQUESTS])
        self.num_left_out = len(setup.requests) - len(self.requests)
        self.block_sizes: list[BlockSizePoint] = []
        self.concurrencies: list[ConcurrencyPoint] = []
        self.switches: list[SwitchPoint] = []
        self.problem: PlanError | None = None
        self.num_done = 0
        self._is_stopping = False
        self._asked_at = time.monotonic()
        self._parts = self._all_parts()
        self._thread = threading.Thread(target=self._work, name="trade-offs", daemon=True)
        self._thread.start()

    @property
    def fraction(self) -> float:
        """How much of it is done, from 0 to 1."""
        return self.num_done / len(self._parts)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to wait for."""
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Whether the job is done after at most `seconds`."""
        self._asked_at = time.monotonic()
        self._thread.join(seconds)
        return self.is_done

    def stop(self) -> None:
        """End the job after the simulation that runs now."""
        self._is_stopping = True

    def _all_parts(self) -> list[_Part]:
        most = max(min(self.plain_config.max_num_seqs, len(self.requests)), min(64, len(self.requests)))
        limits = [limit for limit in _CONCURRENCIES if limit <= most] or [1]
        self.num_blocks_at_once = self._pool_for(limits[-1])
        sizes = [size for size in BLOCK_SIZES if self._holds_a_request(size)]
        parts = [_Part(f"blocks of {size}", lambda size=size: self._weigh_size(size)) for size in sizes]  # type: ignore[misc]  # bound now
        parts += [_Part(f"{limit} at once", lambda limit=limit: self._weigh_limit(limit)) for limit in limits]  # type: ignore[misc]  # bound now
        return parts + [_Part(SWITCH_WORDS[each], lambda each=each: self._weigh_switch(each)) for each in SWITCHES]  # type: ignore[misc]  # bound now

    def _pool_for(self, limit: int) -> int:
        """The pool's blocks, or as many as `limit` requests of the longest length need."""
        longest = max(request.num_prompt_tokens + request.num_output_tokens for request in self.requests)
        needed = limit * (-(-longest // self.plain_config.block_size)) + 1
        return max(self.plain_config.num_gpu_blocks, needed)

    def _holds_a_request(self, size: int) -> bool:
        """Whether a pool in blocks of `size` still holds the longest request and a few blocks beside it."""
        slots = self.plain_config.num_usable_blocks * self.plain_config.block_size
        longest = max(request.num_prompt_tokens + request.num_output_tokens for request in self.requests)
        groups = len(self.plain_config.groups)
        return groups * (-(-longest // size) + 1) <= slots // size

    def _weigh_size(self, size: int) -> None:
        """Hits with prefix caching, empty slots without: a shared slot holds the tokens of several requests."""
        shared = block_size_points(self._uniform(), self.requests, [size])
        alone = block_size_points(replace(self._uniform(), enable_prefix_caching=False), self.requests, [size])
        self.block_sizes.append(replace(shared[0], empty_slots_fraction=alone[0].empty_slots_fraction))

    def _weigh_limit(self, limit: int) -> None:
        at_once = [replace(request, arrival_step=0) for request in self.requests]
        pool = replace(self._uniform(), num_gpu_blocks=self.num_blocks_at_once)
        self.concurrencies += concurrency_points(pool, at_once, [limit])

    def _weigh_switch(self, switch: Switch) -> None:
        config = self.plain_config if switch == "prefix_caching" else self.config
        self.switches.append(switch_point(config, self.requests, switch))

    def _uniform(self) -> SimulatorConfig:
        """The pool under full attention alone: block sizes and contiguous runs are compared on it."""
        return replace(self.plain_config, groups=(FULL_ATTENTION,))

    def _work(self) -> None:
        for part in self._parts:
            if self._is_stopping or time.monotonic() - self._asked_at > _FORSAKEN_AFTER_SECONDS:
                return
            try:
                part.work()
            except PlanError as problem:
                self.problem = problem
            self.num_done += 1


def _in_steps(requests: Sequence[SimulatedRequest]) -> tuple[SimulatedRequest, ...]:
    """The requests with arrivals in steps; those of the clock come all at once."""
    return tuple(replace(request, arrival_seconds=None) for request in requests)


def _with_window(config: SimulatorConfig) -> tuple[SimulatorConfig, str]:
    """An engine with a window to switch, and what was assumed for it."""
    if any(group.span_tokens for group in config.groups):
        return config, ""
    span = max(config.block_size, config.max_model_len // 16)
    groups = (FULL_ATTENTION, KvGroup(kind="sliding_window", span_tokens=span))
    note = f"This model has no window: half of its layers were given one of {span:,} tokens, in the same memory."
    return replace(config, groups=groups, num_gpu_blocks=2 * config.num_usable_blocks + 1), note


def block_size_finding(points: Sequence[BlockSizePoint]) -> str:
    """What the block sizes show, in one or two sentences."""
    least, most = points[0], points[-1]
    told = (
        f"From blocks of {least.block_size} to blocks of {most.block_size} tokens, empty slots grow from "
        f"{_part(least.empty_slots_fraction)} to {_part(most.empty_slots_fraction)} of what is taken, while the block tables "
        f"shrink from {least.peak_table_bytes:,} to {most.peak_table_bytes:,} bytes."
    )
    if not any(point.hit_fraction for point in points):
        return f"{told} No prompt shares a prefix here."
    best, last = max(points, key=lambda point: point.hit_fraction), most
    return (
        f"{told} A hit ends on a block's edge: {_part(best.hit_fraction)} of the prompt tokens are found with blocks of "
        f"{best.block_size}, {_part(last.hit_fraction)} with blocks of {last.block_size}."
    )


def claims(points: Sequence[ConcurrencyPoint]) -> list[tuple[bool | None, str]]:
    """The practitioners' claim, part by part: whether these lengths show it, and by which numbers."""
    high = [point for point in points if point.mean_running >= CLAIM_CONCURRENCY]
    told: list[tuple[bool | None, str]] = []
    if high:
        worst = min(high, key=lambda point: point.paged_fraction)
        text = (
            f"Paging keeps over 95 % of the slots it takes filled above {CLAIM_CONCURRENCY} requests at once: "
            f"{_part(worst.paged_fraction)} with {worst.mean_running:.0f} at once."
        )
        told.append((worst.paged_fraction > CLAIM_PAGED, text))
    else:
        most = max(points, key=lambda point: point.mean_running)
        text = (
            f"No more than {most.mean_running:.0f} requests ran at once on average, so the claim about {CLAIM_CONCURRENCY} "
            f"and more cannot be judged here; paging kept {_part(most.paged_fraction)} filled."
        )
        told.append((None, text))
    for policy, fraction in points[-1].contiguous:
        name = simulate_words.POLICY_WORDS[policy]
        told.append((fraction < CLAIM_BEFORE, f"Before paging, under 60 %: “{name}” kept {_part(fraction)} filled."))
    low, top = points[0], points[-1]
    if abs(low.paged_fraction - top.paged_fraction) < 0.02:
        text = (
            f"It is a matter of more requests: with {low.max_num_seqs} at once paging keeps {_part(low.paged_fraction)}, "
            f"with {top.max_num_seqs} {_part(top.paged_fraction)}. Lengths and block size decide, not concurrency."
        )
        told.append((False, text))
    return told


def switch_finding(point: SwitchPoint) -> str:
    """What one switch buys on this workload, in one sentence."""
    on, off = point.on.summary, point.off.summary
    pieces = [
        _change("steps", off.num_steps, on.num_steps),
        _change("preemptions", off.num_preemptions, on.num_preemptions),
        _change("requests at once", off.peak_running, on.peak_running),
    ]
    changed = "; ".join(piece for piece in pieces if piece)
    name = SWITCH_WORDS[point.switch]
    return f"{name} on: {changed}." if changed else f"{name} changes neither steps, preemptions nor concurrency here."


def _change(name: str, off: int, on: int) -> str:
    return f"{on:,} {name} instead of {off:,}" if on != off else ""


def _part(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
