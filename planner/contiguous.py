"""The allocators that paging replaced, on the same workload: one unbroken run of token slots a request.

`max_length` reserves max_model_len slots, `power_of_two` the next power of two of the whole sequence (as if its length
were guessed within a factor of two), `best_fit` exactly the whole sequence (as if it were known) in the tightest gap.
Nothing is ever moved. Requests are admitted first come, first served.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Literal

from planner.facts import PlanError
from planner.sequence import SimulatedRequest
from planner.simulator_config import SimulatorConfig

ContiguousPolicy = Literal["max_length", "power_of_two", "best_fit"]
POLICIES: tuple[ContiguousPolicy, ...] = ("max_length", "power_of_two", "best_fit")
MAX_STEPS = 1_000_000


class ExtentPool:
    """Free runs of token slots, kept by start; the tightest run that fits is taken."""

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self._free: list[tuple[int, int]] = [(0, num_tokens)]  # (start, length), no two touching
        self.free_tokens = num_tokens

    @property
    def largest_free_tokens(self) -> int:
        """The longest run that could be taken now."""
        return max((length for _, length in self._free), default=0)

    def allocate(self, num_tokens: int) -> int | None:
        """The start of a run of `num_tokens`, or None when no free run is long enough."""
        fitting = [(length, start) for start, length in self._free if length >= num_tokens]
        if not fitting:
            return None
        length, start = min(fitting)
        place = bisect_left(self._free, (start, length))
        if length == num_tokens:
            del self._free[place]
        else:
            self._free[place] = (start + num_tokens, length - num_tokens)
        self.free_tokens -= num_tokens
        return start

    def free(self, start: int, num_tokens: int) -> None:
        """Give a run back and join it with its free neighbours."""
        insort(self._free, (start, num_tokens))
        place = bisect_left(self._free, (start, num_tokens))
        if place + 1 < len(self._free) and start + num_tokens == self._free[place + 1][0]:
            num_tokens += self._free.pop(place + 1)[1]
            self._free[place] = (start, num_tokens)
        if place and sum(self._free[place - 1]) == start:
            before = self._free[place - 1]
            self._free[place - 1 : place + 1] = [(before[0], before[1] + num_tokens)]
        self.free_tokens = sum(length for _, length in self._free)


@dataclass(slots=True)
class ContiguousColumns:
    """Token slots, one number a step."""

    used_tokens: array[int] = field(default_factory=lambda: array("q"))  # hold KV
    reserved_tokens: array[int] = field(default_factory=lambda: array("q"))  # internal waste: reserved − used
    free_tokens: array[int] = field(default_factory=lambda: array("q"))
    unusable_tokens: array[int] = field(default_factory=lambda: array("q"))  # external waste: free, but too broken up
    fragmentation: array[float] = field(default_factory=lambda: array("d"))  # 1 − longest free run / free
    num_running: array[int] = field(default_factory=lambda: array("q"))
    num_waiting: array[int] = field(default_factory=lambda: array("q"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContiguousResult:
    """One allocator's run over a workload."""

    policy: ContiguousPolicy
    capacity_tokens: int
    columns: ContiguousColumns
    refused: tuple[str, ...]  # could never have been served
    num_steps: int
    peak_running: int
    num_finished: int

    @property
    def mean_used_fraction(self) -> float:
        """The share of the capacity that held KV, over the steps in which anything ran."""
        busy = [
            used for used, running in zip(self.columns.used_tokens, self.columns.num_running, strict=True) if running
        ]
        return sum(busy) / (len(busy) * self.capacity_tokens) if busy else 0.0


@dataclass(slots=True)
class _Running:
    request_id: str
    start: int
    reserved: int
    num_prompt: int
    final: int
    used: int = 0


def reserved_tokens(policy: ContiguousPolicy, whole_tokens: int, max_model_len: int) -> int:
    """The slots that `policy` sets aside for a sequence that will hold `whole_tokens`."""
    if policy == "max_length":
        return max_model_len
    if policy == "power_of_two":
        return min(1 << (whole_tokens - 1).bit_length(), max_model_len)
    return whole_tokens


def simulate_contiguous(
    config: SimulatorConfig, requests: Items[SimulatedRequest], policy: ContiguousPolicy
) -> ContiguousResult:
    """The run of `requests` under a contiguous allocator of as many token slots as the paged pool has."""
    if any(request.arrival_seconds is not None for request in requests):
        text = "The comparison with contiguous allocation needs arrivals in steps."
        raise PlanError("arrival_seconds", None, text)
    run = _ContiguousRun(config, policy)
    order = sorted(range(len(requests)), key=lambda index: (requests[index].arrival_step, index))
    pending = deque(requests[index] for index in order)
    for step in range(MAX_STEPS):
        while pending and pending[0].arrival_step <= step:
            run.arrive(pending.popleft())
        run.step()
        if not pending and not run.waiting and not run.running:
            break
    return run.result()


class _ContiguousRun:
    """The state of one run."""

    def __init__(self, config: SimulatorConfig, policy: ContiguousPolicy) -> None:
        self._config = config
        self._policy = policy
        self._capacity = config.num_usable_blocks * config.block_size
        self._pool = ExtentPool(self._capacity)
        self._columns = ContiguousColumns()
        self._refused: list[str] = []
        self._finished = 0
        self.waiting: deque[tuple[str, int, int]] = deque()  # id, prompt, whole
        self.running: list[_Running] = []

    def arrive(self, request: SimulatedRequest) -> None:
        """Queue a request's samples, or refuse what can never fit."""
        whole = min(request.num_prompt_tokens + request.num_output_tokens, self._config.max_model_len)
        needed = reserved_tokens(self._policy, whole, self._config.max_model_len)
        for sample in range(request.n):
            name = request.request_id if request.n == 1 else f"{sample}_{request.request_id}"
            if needed > self._capacity:
                self._refused.append(name)
            else:
                self.waiting.append((name, request.num_prompt_tokens, whole))

    def step(self) -> None:
        """Admit what fits, give each running sequence its tokens, write the columns, end what is done."""
        self._admit()
        budget = self._config.max_num_batched_tokens
        for running in self.running:
            wanted = running.num_prompt - running.used if running.used < running.num_prompt else 1
            given = min(wanted, budget)
            running.used += given
            budget -= given
        self._write()
        for running in [item for item in self.running if item.used >= item.final - 1]:
            self._pool.free(running.start, running.reserved)
            self.running.remove(running)
            self._finished += 1

    def result(self) -> ContiguousResult:
        """What the run came to."""
        return ContiguousResult(
            policy=self._policy,
            capacity_tokens=self._capacity,
            columns=self._columns,
            refused=tuple(self._refused),
            num_steps=len(self._columns.used_tokens),
            peak_running=max(self._columns.num_running, default=0),
            num_finished=self._finished,
        )

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self._config.max_num_seqs:
            name, num_prompt, whole = self.waiting[0]
            reserved = reserved_tokens(self._policy, whole, self._config.max_model_len)
            start = self._pool.allocate(reserved)
            if start is None:
                return
            self.waiting.popleft()
            self.running.append(_Running(name, start, reserved, num_prompt, whole))

    def _write(self) -> None:
        columns, pool = self._columns, self._pool
        largest = pool.largest_free_tokens
        columns.used_tokens.append(sum(running.used for running in self.running))
        columns.reserved_tokens.append(self._capacity - pool.free_tokens)
        columns.free_tokens.append(pool.free_tokens)
        columns.unusable_tokens.append(pool.free_tokens - largest)
        columns.fragmentation.append(1.0 - largest / pool.free_tokens if pool.free_tokens else 0.0)
        columns.num_running.append(len(self.running))
        columns.num_waiting.append(len(self.waiting))
