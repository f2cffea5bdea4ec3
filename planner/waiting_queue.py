"""The waiting sequences in the order they will be admitted: first come first served, or by priority."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from planner.sequence import Sequence
from planner.simulator_config import SchedulingPolicy

Rank = tuple[int, int, str, int]


class WaitingQueue(Protocol):
    """What both queues can do."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sequence]:
        """The sequences, next one first."""

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""

    def add_front(self, sequence: Sequence) -> None:
        """Queue a preempted or skipped sequence before all others, if the policy knows a front."""

    def first(self) -> Sequence:
        """The next sequence."""

    def pop(self) -> Sequence:
        """Take the next sequence out."""

    def remove(self, sequence: Sequence) -> None:
        """Take this sequence out."""


def rank(sequence: Sequence) -> Rank:
    """What orders sequences under the priority policy: lower is served first."""
    return (sequence.priority, sequence.arrival, sequence.request_id, sequence.ordinal)


class ArrivalQueue:
    """First come, first served; a preempted sequence goes to the front."""

    def __init__(self) -> None:
        self._queue: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._queue)

    def add(self, sequence: Sequence) -> None:
        self._queue.append(sequence)

    def add_front(self, sequence: Sequence) -> None:
        self._queue.appendleft(sequence)

    def first(self) -> Sequence:
        return self._queue[0]

    def pop(self) -> Sequence:
        return self._queue.popleft()

    def remove(self, sequence: Sequence) -> None:
        self._queue.remove(sequence)


class PriorityQueue:
    """The lowest `priority` first, then the earliest arrival."""

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, Sequence]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for _, sequence in sorted(self._heap, key=lambda entry: entry[0]))

    def add(self, sequence: Sequence) -> None:
        heapq.heappush(self._heap, (rank(sequence), sequence))

    def add_front(self, sequence: Sequence) -> None:
        self.add(sequence)

    def first(self) -> Sequence:
        return self._heap[0][1]

    def pop(self) -> Sequence:
        return heapq.heappop(self._heap)[1]

    def remove(self, sequence: Sequence) -> None:
        self._heap = [entry for entry in self._heap if entry[1] is not sequence]
        heapq.heapify(self._heap)


def make_queue(policy: SchedulingPolicy) -> WaitingQueue:
    """An empty queue for `policy`."""
    return PriorityQueue() if policy == "priority" else ArrivalQueue()
