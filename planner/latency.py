"""What each request of a simulated run waits for: its first token, and the time from one token to the next."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from planner.sequence import Sequence
from planner.simulation import Simulation
from planner.step_outputs import Scheduled

_TICKS_A_SECOND = 100_000  # waits are told apart down to 10 microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Two percentiles of a wait; `num_samples` 0: nothing was seen."""

    p50_seconds: float = 0.0
    p99_seconds: float = 0.0
    num_samples: int = 0


NOTHING_SEEN = Percentiles()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """`first_token`: from sending a request to its first token, queue and prefill; `between_tokens`: of all tokens after."""

    first_token: Percentiles = NOTHING_SEEN
    between_tokens: Percentiles = NOTHING_SEEN


NOT_MEASURED = Latency()


class LatencyMeter:
    """Watches one run. Where `users` send their next request when the last is served, they are told apart by order."""

    def __init__(self, simulation: Simulation, users: int | None) -> None:
        self._simulation = simulation
        self._is_staged = simulation.scheduler.config.pipeline_parallel_size > 1
        self._users = users
        self._sent_at = _arrivals(simulation, users)
        self._num_sent = len(self._sent_at)
        self._no_first_token: dict[int, Sequence] = {}
        self._last_token_at: dict[int, float] = {}  # with stages of all that decode, else of preempted ones
        self._in_flight: deque[list[Scheduled]] = deque()
        self._num_decoded = 0  # sequences that this step gives a further token
        self._first: tuple[Counter[int], Counter[int]] = (Counter(), Counter())  # of all, of the steady state
        self._between: tuple[Counter[int], Counter[int]] = (Counter(), Counter())

    def note_schedule(self) -> None:
        """Look at the batch that was just scheduled."""
        scheduler, first = self._simulation.scheduler, self._no_first_token
        not_decoded = 0
        for scheduled in scheduler.batch:
            sequence = scheduled.sequence
            if sequence.num_tokens == sequence.num_prompt:
                first[sequence.ordinal] = sequence
            is_back = scheduled.samples and sequence.ordinal in self._last_token_at
            not_decoded += not scheduled.samples or sequence.ordinal in first or is_back
        self._num_decoded = max(0, len(scheduler.running) - not_decoded)
        for sequence in scheduler.preempted:
            if sequence.ordinal not in first:
                self._last_token_at.setdefault(sequence.ordinal, self._simulation.now_seconds)
        self._in_flight.append(scheduler.batch)

    def note_outputs(self, step_began: float, *, is_steady: bool) -> None:
        """Look at what came back; `step_began` is the clock before the step's time was added."""
        simulation = self._simulation
        has_returned = simulation.scheduler.batches_in_flight() < len(self._in_flight)
        batch = self._in_flight.popleft() if has_returned else []
        is_async = simulation.scheduler.config.async_scheduling
        at = step_began if is_async else simulation.now_seconds  # async: what came back is the batch before
        self._between_tokens(batch, at, simulation.now_seconds - step_began, is_steady=is_steady)
        for ordinal in [
            each for each, sequence in self._no_first_token.items() if sequence.num_tokens > sequence.num_prompt
        ]:
            del self._no_first_token[ordinal]
            self._note(self._first, at - self._sent_at.get(ordinal, at), 1, is_steady and ordinal >= (self._users or 0))
        for sequence in simulation.finished:
            self._last_token_at.pop(sequence.ordinal, None)
            if self._users is not None:
                self._sent_at[self._num_sent] = at
                self._num_sent += 1

    def _between_tokens(self, batch: list[Scheduled], at: float, step_seconds: float, *, is_steady: bool) -> None:
        if not self._is_staged:
            self._note(self._between, step_seconds, self._num_decoded, is_steady)
        for scheduled in batch:
            ordinal = scheduled.sequence.ordinal
            if not scheduled.samples:
                continue
            last = self._last_token_at.pop(ordinal, None)
            if last is not None:
                self._note(self._between, at - last, 1, is_steady)
            if self._is_staged:
                self._last_token_at[ordinal] = at

    def _note(self, waits: tuple[Counter[int], Counter[int]], seconds: float, weight: int, is_steady: bool) -> None:
        tick = max(0, round(seconds * _TICKS_A_SECOND))
        waits[0][tick] += weight
        if is_steady:
            waits[1][tick] += weight

    def result(self) -> Latency:
        """What was seen in the steady state; in the whole run where there was none."""
        return Latency(
            first_token=percentiles(self._first[1] or self._first[0]),
            between_tokens=percentiles(self._between[1] or self._between[0]),
        )


def _arrivals(simulation: Simulation, users: int | None) -> dict[int, float]:
    if users is not None:
        return dict.fromkeys(range(min(users, len(simulation.sequences))), 0.0)
    return {sequence.ordinal: sequence.request.arrival_seconds or 0.0 for sequence in simulation.sequences}


def percentiles(waits: Mapping[int, int]) -> Percentiles:
    """The least wait that half, and 99 of 100, of the samples do not exceed; `waits` counts ticks."""
    total = sum(waits.values())
    if not total:
        return NOTHING_SEEN
    found, seen = {}, 0
    wanted = deque((fraction, math.ceil(fraction * total)) for fraction in (0.5, 0.99))
    for tick in sorted(waits):
        seen += waits[tick]
        while wanted and seen >= wanted[0][1]:
            found[wanted.popleft()[0]] = tick / _TICKS_A_SECOND
    return Percentiles(p50_seconds=found[0.5], p99_seconds=found[0.99], num_samples=total)
