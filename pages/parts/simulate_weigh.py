"""Trade-offs of one setup, each point simulated in a thread of its own run by run, and what they show in sentences.

Pure; knows no Streamlit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pages.parts import simulate_words
from pages.parts.language import mark, t
from pages.parts.said import said
from pages.parts.side_job import SideJob
from pages.parts.simulate_setup import Setup
from pages.parts.words import listed_long
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
CLAIM_CONCURRENCY, CLAIM_PAGED, CLAIM_BEFORE = 32, 0.95, 0.60
SWITCHES: tuple[Switch, ...] = ("prefix_caching", "sliding_window", "hybrid_manager")
SWITCH_WORDS = {
    "prefix_caching": mark("Prefix caching"),
    "sliding_window": mark("Sliding window"),
    "hybrid_manager": mark("Hybrid KV cache manager"),
}


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    work: Callable[[], None]


class WeighJob(SideJob):
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
        self._parts = self._all_parts()
        self._begin("trade-offs")

    @property
    def fraction(self) -> float:
        """How much of it is done, from 0 to 1."""
        return self.num_done / len(self._parts)

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
            if self.should_stop():
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
    note = t(
        "This model has no window: half of its layers were given one of {span} tokens, in the same memory.",
        span=f"{span:,}",
    )
    return replace(config, groups=groups, num_gpu_blocks=2 * config.num_usable_blocks + 1), note


def block_size_finding(points: Sequence[BlockSizePoint]) -> str:
    """What the block sizes show, in one or two sentences."""
    least, most = points[0], points[-1]
    told = t(
        "From blocks of {block_size} to blocks of {block_size_2} tokens, empty slots grow from {empty_slots_fraction} "
        "to {empty_slots_fraction_2} of what is taken, while the block tables shrink from {peak_table_bytes} to "
        "{peak_table_bytes_2} bytes.",
        block_size=least.block_size,
        block_size_2=most.block_size,
        empty_slots_fraction=_part(least.empty_slots_fraction),
        empty_slots_fraction_2=_part(most.empty_slots_fraction),
        peak_table_bytes=f"{least.peak_table_bytes:,}",
        peak_table_bytes_2=f"{most.peak_table_bytes:,}",
    )
    if not any(point.hit_fraction for point in points):
        return t("{told} No prompt shares a prefix here.", told=told)
    best, last = max(points, key=lambda point: point.hit_fraction), most
    return t(
        "{told} A hit ends on a block's edge: {hit_fraction} of the prompt tokens are found with blocks of "
        "{block_size}, {hit_fraction_2} with blocks of {block_size_2}.",
        told=told,
        hit_fraction=_part(best.hit_fraction),
        block_size=best.block_size,
        hit_fraction_2=_part(last.hit_fraction),
        block_size_2=last.block_size,
    )


def claims(points: Sequence[ConcurrencyPoint]) -> list[tuple[bool | None, str]]:
    """The practitioners' claim, part by part: whether these lengths show it, and by which numbers."""
    high = [point for point in points if point.mean_running >= CLAIM_CONCURRENCY]
    told: list[tuple[bool | None, str]] = []
    if high:
        worst = min(high, key=lambda point: point.paged_fraction)
        text = t(
            "Paging keeps over 95 % of the slots it takes filled above {limit} requests at once: {share} with "
            "{running} at once.",
            limit=CLAIM_CONCURRENCY,
            share=_part(worst.paged_fraction),
            running=f"{worst.mean_running:.0f}",
        )
        told.append((worst.paged_fraction > CLAIM_PAGED, text))
    else:
        most = max(points, key=lambda point: point.mean_running)
        text = t(
            "No more than {running} requests ran at once on average, so the claim about {limit} and more cannot be "
            "judged here; paging kept {share} filled.",
            running=f"{most.mean_running:.0f}",
            limit=CLAIM_CONCURRENCY,
            share=_part(most.paged_fraction),
        )
        told.append((None, text))
    for policy, fraction in points[-1].contiguous:
        name = said(simulate_words.POLICY_WORDS[policy])
        told.append(
            (
                fraction < CLAIM_BEFORE,
                t("Before paging, under 60 %: “{name}” kept {fraction} filled.", name=name, fraction=_part(fraction)),
            )
        )
    low, top = points[0], points[-1]
    if abs(low.paged_fraction - top.paged_fraction) < 0.02:
        text = t(
            "It is a matter of more requests: with {max_num_seqs} at once paging keeps {share}, with {max_num_seqs_2} "
            "{share_2}. Lengths and block size decide, not concurrency.",
            max_num_seqs=low.max_num_seqs,
            share=_part(low.paged_fraction),
            max_num_seqs_2=top.max_num_seqs,
            share_2=_part(top.paged_fraction),
        )
        told.append((False, text))
    return told


def switch_finding(point: SwitchPoint) -> str:
    """What one switch buys on this workload, in one sentence."""
    on, off = point.on.summary, point.off.summary
    pieces = [
        _change(t("steps"), off.num_steps, on.num_steps),
        _change(t("preemptions"), off.num_preemptions, on.num_preemptions),
        _change(t("requests at once"), off.peak_running, on.peak_running),
    ]
    changed = listed_long(piece for piece in pieces if piece)
    name = said(SWITCH_WORDS[point.switch])
    return (
        t("{name} on: {changed}.", name=name, changed=changed)
        if changed
        else t("{name} changes neither steps, preemptions nor concurrency here.", name=name)
    )


def _change(name: str, off: int, on: int) -> str:
    return t("{on} {name} instead of {off}", on=f"{on:,}", name=name, off=f"{off:,}") if on != off else ""


def _part(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
