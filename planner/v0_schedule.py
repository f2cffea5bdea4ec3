"""The V0 engine (vLLM up to 0.10, its default scheduler): prefill first, preemption by recompute or by swap.

Shown for comparison and labelled V0 wherever it appears. Rules of 0.6: prompts are computed whole and in steps of
their own; a sequence needs a free block even where its last one has room; several samples of a request share blocks
and copy one on the first write; groups of several sequences are swapped to host memory, single ones recomputed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace
from typing import Literal

from planner.facts import PlanError
from planner.sequence import SimulatedRequest
from planner.units import div_ceil

PreemptionMode = Literal["swap", "recompute"]
MAX_STEPS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class V0Config:
    """A V0 engine, by its own flag names."""

    num_gpu_blocks: int
    num_cpu_blocks: int = 0  # from --swap-space
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 8192
    preemption_mode: PreemptionMode | None = None  # None: recompute single sequences, swap groups
    watermark: float = 0.01  # fraction of the pool kept free when a prompt is admitted
    beam_search: bool = False  # samples of one request are beams: some are dropped, others forked, at every step

    def __post_init__(self) -> None:
        for name in ("num_gpu_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens"):
            if getattr(self, name) < 1:
                raise PlanError(name, getattr(self, name), f"{name} must be at least 1.")
        if self.num_cpu_blocks < 0 or not 0.0 <= self.watermark < 1.0:
            text = "num_cpu_blocks must be 0 or more and watermark a fraction below 1."
            raise PlanError("num_cpu_blocks", self.num_cpu_blocks, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class V0Frame:
    """One V0 step, right after it was scheduled."""

    step: int
    is_prefill: bool
    scheduled: tuple[tuple[str, int], ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    swapped: tuple[str, ...]
    recomputed: tuple[str, ...]  # preempted in this step, to start again
    swapped_out: tuple[tuple[str, int], ...]  # preempted in this step, with the blocks moved to the host
    swapped_in: tuple[tuple[str, int], ...]
    copies: tuple[tuple[int, int], ...]  # copy-on-write: from block, to block
    block_tables: tuple[tuple[str, tuple[int, ...]], ...]  # per sequence on the card
    free_gpu_blocks: int
    free_cpu_blocks: int
    finished: tuple[str, ...] = ()


class _Pool:
    """Blocks with reference counts; the one freed last is used first."""

    def __init__(self, num_blocks: int) -> None:
        self.total = num_blocks
        self.free_list = deque(range(num_blocks))
        self.counts = [0] * num_blocks

    @property
    def num_free(self) -> int:
        return len(self.free_list)

    def take(self) -> int:
        block = self.free_list.popleft()
        self.counts[block] = 1
        return block

    def drop(self, block: int) -> None:
        self.counts[block] -= 1
        if self.counts[block] == 0:
            self.free_list.appendleft(block)


@dataclass(slots=True)
class _Group:
    """One request: a prompt and, once it was computed, one table a sample."""

    request: SimulatedRequest
    num_tokens: int  # of each of its sequences
    tables: list[list[int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.request.request_id


class V0Simulation:
    """One V0 engine serving one workload."""

    def __init__(self, config: V0Config, requests: Items[SimulatedRequest], *, seed: int = 0) -> None:
        self.config = config
        self.gpu, self.cpu = _Pool(config.num_gpu_blocks), _Pool(config.num_cpu_blocks)
        self.waiting: deque[_Group] = deque()
        self.running: deque[_Group] = deque()
        self.swapped: deque[_Group] = deque()
        self.step = -1
        self._pending = deque(sorted((self._group(request) for request in requests), key=_arrival))
        self._random = random.Random(seed)  # noqa: S311 - which beams survive, not a secret
        self._watermark = int(config.watermark * config.num_gpu_blocks)
        self._clear_step()

    def frames(self) -> Iterator[V0Frame]:
        """Each step until all requests are served."""
        while self._pending or self.waiting or self.running or self.swapped:
            if self.step >= MAX_STEPS:
                raise PlanError("max_steps", self.step, f"The V0 run did not end within {MAX_STEPS:,} steps.")
            frame = self._schedule()
            yield replace(frame, finished=tuple(self._apply_outputs()))

    def _group(self, request: SimulatedRequest) -> _Group:
        needed = div_ceil(request.num_prompt_tokens + request.num_output_tokens, self.config.block_size)
        whole = request.num_prompt_tokens + request.num_output_tokens - 1
        if request.num_prompt_tokens > min(self.config.max_num_batched_tokens, self.config.max_model_len):
            text = (
                f"Request {request.request_id}: V0 computes a prompt in one step, and this one is longer than a step."
            )
            raise PlanError("max_num_batched_tokens", request.num_prompt_tokens, text)
        watermark = int(self.config.watermark * self.config.num_gpu_blocks)
        if (
            needed * request.n + max(request.n, watermark) > self.config.num_gpu_blocks
            or request.n > self.config.max_num_seqs
        ):
            text = f"Request {request.request_id} needs {needed * request.n:,} blocks for {whole:,} tokens; the pool is too small."
            raise PlanError("num_gpu_blocks", needed, text)
        return _Group(request, request.num_prompt_tokens)

    # -- schedule -----------------------------------------------------------------------------------------

    def _schedule(self) -> V0Frame:
        self.step += 1
        self._clear_step()
        while self._pending and self._pending[0].request.arrival_step <= self.step:
            self.waiting.append(self._pending.popleft())
        if not self.swapped:
            self._schedule_prefills()
        is_prefill = bool(self._scheduled)
        if not is_prefill:
            self._schedule_running()
            if not self._recomputed and not self._swapped_out:
                self._schedule_swapped()
        return self._frame(is_prefill=is_prefill)

    def _clear_step(self) -> None:
        self._scheduled: list[tuple[_Group, int]] = []
        self._recomputed: list[str] = []
        self._swapped_out: list[tuple[str, int]] = []
        self._swapped_in: list[tuple[str, int]] = []
        self._copies: list[tuple[int, int]] = []

    def _schedule_prefills(self) -> None:
        budget = self.config.max_num_batched_tokens
        num_sequences = sum(group.request.n for group in self.running)
        while self.waiting:
            group = self.waiting[0]
            needed = div_ceil(group.num_tokens, self.config.block_size)
            fits = self.gpu.num_free - needed >= self._watermark
            if not fits or group.num_tokens > budget or num_sequences + group.request.n > self.config.max_num_seqs:
                break
            self.waiting.popleft()
            table = [self.gpu.take() for _ in range(needed)]
            for block in table:
                self.gpu.counts[block] = group.request.n
            group.tables = [table[:] for _ in range(group.request.n)]
            self.running.append(group)
            self._scheduled.append((group, group.num_tokens))
            budget -= group.num_tokens
            num_sequences += group.request.n

    def _schedule_running(self) -> None:
        queue, kept = self.running, deque[_Group]()
        while queue:
            group = queue.popleft()
            while self.gpu.num_free < len(group.tables):
                victim = queue.pop() if queue else group
                self._preempt(victim)
                if victim is group:
                    break
            else:
                self._append_slots(group)
                kept.append(group)
        self.running = kept

    def _preempt(self, victim: _Group) -> None:
        mode = self.config.preemption_mode or ("recompute" if len(victim.tables) == 1 else "swap")
        if mode == "recompute" and len(victim.tables) == 1:
            self._free(victim)
            self.waiting.appendleft(victim)
            self._recomputed.append(victim.name)
            return
        moved = self._move(victim, self.gpu, self.cpu)
        self.swapped.append(victim)
        self._swapped_out.append((victim.name, moved))

    def _schedule_swapped(self) -> None:
        num_sequences = sum(group.request.n for group in self.running)
        while self.swapped:
            group = self.swapped[0]
            blocks = {block for table in group.tables for block in table}
            if self.gpu.num_free - len(blocks) - len(group.tables) < self._watermark:
                break
            if num_sequences + group.request.n > self.config.max_num_seqs:
                break
            self.swapped.popleft()
            self._swapped_in.append((group.name, self._move(group, self.cpu, self.gpu)))
            self._append_slots(group)
            self.running.append(group)
            num_sequences += group.request.n

    def _append_slots(self, group: _Group) -> None:
        """Make room for the newest token of each sequence: a new block, or a copy of a shared last one."""
        position = group.num_tokens - 1
        for table in group.tables:
            index = position // self.config.block_size
            if index == len(table):
                table.append(self.gpu.take())
            elif self.gpu.counts[table[index]] > 1:
                source = table[index]
                self.gpu.drop(source)
                table[index] = self.gpu.take()
                self._copies.append((source, table[index]))
        self._scheduled.append((group, len(group.tables)))

    def _move(self, group: _Group, source: _Pool, target: _Pool) -> int:
        """The blocks moved from one pool to the other; what the sequences share stays shared."""
        blocks = list(dict.fromkeys(block for table in group.tables for block in table))
        if len(blocks) > target.num_free:
            text = (
                f"Request {group.name} cannot be swapped out: it needs {len(blocks):,} host blocks and "
                f"{target.num_free:,} are free. A V0 engine stops here; raise --swap-space."
            )
            raise PlanError("swap_space", target.total, text)
        moved = {}
        for block in blocks:
            new = moved[block] = target.take()
            target.counts[new] = source.counts[block]
            source.counts[block] = 1
            source.drop(block)
        group.tables = [[moved[block] for block in table] for table in group.tables]
        return len(blocks)

    def _free(self, group: _Group) -> None:
        for table in group.tables:
            for block in table:
                self.gpu.drop(block)
        group.tables = []

    # -- outputs ------------------------------------------------------------------------------------------

    def _apply_outputs(self) -> list[str]:
        finished = []
        for group, _ in self._scheduled:
            group.num_tokens += 1
            end = min(group.request.num_prompt_tokens + group.request.num_output_tokens, self.config.max_model_len)
            if group.num_tokens >= end:
                self._free(group)
                self.running.remove(group)
                finished.append(group.name)
            elif self.config.beam_search and len(group.tables) > 1:
                self._replace_a_beam(group)
        return finished

    def _replace_a_beam(self, group: _Group) -> None:
        """The worst beam ends and the best is forked: the fork shares all blocks until it writes."""
        if self._random.random() < 0.5:
            return
        worst, best = self._random.sample(range(len(group.tables)), 2)
        for block in group.tables[worst]:
            self.gpu.drop(block)
        for block in group.tables[best]:
            self.gpu.counts[block] += 1
        group.tables[worst] = group.tables[best][:]

    def _frame(self, *, is_prefill: bool) -> V0Frame:
        return V0Frame(
            step=self.step,
            is_prefill=is_prefill,
            scheduled=tuple((group.name, num_tokens) for group, num_tokens in self._scheduled),
            running=tuple(group.name for group in self.running),
            waiting=tuple(group.name for group in self.waiting),
            swapped=tuple(group.name for group in self.swapped),
            recomputed=tuple(self._recomputed),
            swapped_out=tuple(self._swapped_out),
            swapped_in=tuple(self._swapped_in),
            copies=tuple(self._copies),
            block_tables=tuple(
                (group.name if len(group.tables) == 1 else f"{sample}_{group.name}", tuple(table))
                for group in self.running
                for sample, table in enumerate(group.tables)
            ),
            free_gpu_blocks=self.gpu.num_free,
            free_cpu_blocks=self.cpu.num_free,
        )


def simulate_v0(config: V0Config, requests: Items[SimulatedRequest], *, seed: int = 0) -> tuple[V0Frame, ...]:
    """Every step of a V0 engine serving `requests`."""
    return tuple(V0Simulation(config, requests, seed=seed).frames())


def _arrival(group: _Group) -> int:
    return group.request.arrival_step
