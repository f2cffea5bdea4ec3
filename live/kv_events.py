"""A subscription to one publisher of KV events: ordered batches, gaps noticed and filled from the replay endpoint.

Used by one thread. What could not be filled is counted as lost, and a publisher that starts anew is named; what the events
mean for the cache is `cached_blocks`' part.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import zmq

from live.kv_event_frames import FrameError, KvEventBatch, decode_batch
from live.scrape_address import ServerAddress, allowed_hosts, checked_addresses, resolve_in_time
from planner.facts import PlanError

_ENDPOINT = re.compile(r"tcp://(\*|\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})")
_REPLAY_SECONDS = 1.0
_LARGEST_MESSAGE_BYTES = 64 * 2**20
_HIGH_WATER_MARK = 100_000  # messages, as the publisher's
_MOST_BATCHES_A_POLL = 5_000
_END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEventEndpoints:
    """Where a publisher is: as in its `--kv-events-config`, for data-parallel rank 0; `rank` adds to the ports."""

    endpoint: str = "tcp://127.0.0.1:5557"
    replay_endpoint: str | None = None
    topic: str = ""
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEventPoll:
    """What came since the last poll, in order. `num_lost` batches are gone for good; `is_restart`: forget what was before."""

    batches: tuple[KvEventBatch, ...] = ()
    num_lost: int = 0
    num_replayed: int = 0
    num_broken: int = 0
    is_restart: bool = False


def reachable_endpoint(text: str, rank: int, allowed: Sequence[str]) -> str:
    """The address to connect to for a publisher's endpoint: `*` is this machine; raises `PlanError` for what may not be read."""
    match = _ENDPOINT.fullmatch(text.strip())
    port = int(match[2]) + rank if match else 0
    if match is None or not 0 < port < 2**16:
        raise PlanError("endpoint", text, "An endpoint of KV events is written like tcp://127.0.0.1:5557.")
    host = {"*": "127.0.0.1", "localhost": "127.0.0.1"}.get(match[1], match[1].strip("[]"))
    server = ServerAddress(scheme="http", host=host, port=port)
    try:
        found = resolve_in_time(host, port, _REPLAY_SECONDS)
    except (OSError, TimeoutError):
        found = ()
    addresses = checked_addresses(server, found, allowed)
    if not addresses:
        raise PlanError("endpoint", text, f"The host {host} is not known here; check its name.")
    address = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    return f"tcp://{address}:{port}"


@dataclass(slots=True)
class KvEventReader:
    """One subscription. Close it, or use it in a `with`."""

    endpoints: KvEventEndpoints
    allowed: Sequence[str] | None = None
    clock: Callable[[], float] = time.monotonic
    _context: zmq.Context[zmq.Socket[bytes]] = field(default_factory=zmq.Context.instance)
    _subscription: zmq.Socket[bytes] | None = None
    _expected: int | None = None  # the sequence number that comes next; None before the first batch
    _last_time_seconds: float = 0.0

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def open(self) -> None:
        """Subscribes; raises `PlanError` for an endpoint that may not be read."""
        address = self._reachable(self.endpoints.endpoint)
        subscription = self._socket(zmq.SUB)
        subscription.setsockopt(zmq.SUBSCRIBE, self.endpoints.topic.encode())
        subscription.connect(address)
        self._subscription = subscription

    def close(self) -> None:
        """Ends the subscription."""
        if self._subscription is not None:
            self._subscription.close(linger=0)
            self._subscription = None

    def _reachable(self, endpoint: str) -> str:
        allowed = allowed_hosts() if self.allowed is None else self.allowed
        return reachable_endpoint(endpoint, self.endpoints.rank, allowed)

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, _HIGH_WATER_MARK)
        socket.setsockopt(zmq.MAXMSGSIZE, _LARGEST_MESSAGE_BYTES)
        socket.setsockopt(zmq.IPV6, 1)
        return socket

    def poll(self, wait_seconds: float = 0.0) -> KvEventPoll:
        """The batches that came, waiting at most `wait_seconds` for the first; gaps before them are filled or counted."""
        if self._subscription is None:
            raise RuntimeError("the subscription is not open")
        messages: list[list[bytes]] = []
        wait_ms = int(wait_seconds * 1000)
        while len(messages) < _MOST_BATCHES_A_POLL and self._subscription.poll(wait_ms):
            messages.append(self._subscription.recv_multipart())
            wait_ms = 0
        return self._ordered(messages)

    def _ordered(self, messages: Sequence[Sequence[bytes]]) -> KvEventPoll:
        batches: list[KvEventBatch] = []
        lost = replayed = broken = 0
        is_restart = False
        for message in messages:
            batch = _decoded(message)
            if batch is None:
                broken += 1
                continue
            if self._is_restart(batch):
                batches, is_restart, self._expected = [], True, 0
            if self._expected is not None and batch.sequence < self._expected:
                continue  # a replay was ahead of the subscription
            missed = self._missed(batch.sequence)
            replayed += len(missed)
            lost += batch.sequence - (self._expected or 0) - len(missed)
            batches += [*missed, batch]
            self._expected, self._last_time_seconds = batch.sequence + 1, batch.time_seconds
        return KvEventPoll(
            batches=tuple(batches), num_lost=lost, num_replayed=replayed, num_broken=broken, is_restart=is_restart
        )

    def _is_restart(self, batch: KvEventBatch) -> bool:
        """A smaller number with a later time is a new publisher's; with an earlier time, a batch that was replayed before."""
        return (
            self._expected is not None
            and batch.sequence < self._expected
            and batch.time_seconds > self._last_time_seconds
        )

    def _missed(self, sequence: int) -> list[KvEventBatch]:
        """The batches before `sequence` that are still in the publisher's buffer."""
        first = self._expected or 0
        if sequence <= first or self.endpoints.replay_endpoint is None:
            return []
        return [batch for batch in self._replay(first, sequence) if first <= batch.sequence < sequence]

    def _replay(self, first: int, end: int) -> list[KvEventBatch]:
        request = self._socket(zmq.DEALER)
        found: dict[int, KvEventBatch] = {}
        deadline = self.clock() + _REPLAY_SECONDS
        try:
            request.connect(self._reachable(self.endpoints.replay_endpoint or ""))
            request.send_multipart([b"", first.to_bytes(8, "big")])
            while (left := deadline - self.clock()) > 0 and request.poll(int(left * 1000) + 1):
                message = request.recv_multipart()  # empty, topic (from 0.3x on), number, payload
                if len(message) < 3 or message[-2] == _END_OF_REPLAY:
                    break
                batch = _decoded(message)
                if batch is not None:
                    found[batch.sequence] = batch
                if batch is not None and batch.sequence >= end - 1:
                    break
        finally:
            request.close(linger=0)
        return [found[number] for number in sorted(found)]


def _decoded(message: Sequence[bytes]) -> KvEventBatch | None:
    """The batch of a multipart message (…, number of 8 bytes, payload); None for anything else."""
    if len(message) < 2 or len(message[-2]) != 8:
        return None
    try:
        return decode_batch(int.from_bytes(message[-2], "big"), message[-1])
    except FrameError:
        return None
