"""Reads what the probe publishes: the newest frame without waiting, its state by name, and the same as part of a recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

import zmq

from live.kv_events import reachable_endpoint
from live.probe_frames import DEFAULT_PROBE_ENDPOINT, LARGEST_FRAME_BYTES, ProbeFrame, ProbeFrameError, decode_frame
from live.recorder import Extras
from live.scrape_address import allowed_hosts

FRAME_KIND = "probe"  # of a recording's frames
_SILENT_SECONDS = 5.0  # the probe repeats its frame every second
_QUEUED_FRAMES = 64
_MOST_FRAMES_A_POLL = 10_000

FeedState = Literal["waiting", "ok", "silent", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeStatus:
    """What is known of the probe; `text` is one sentence and empty while all is well."""

    state: FeedState
    text: str
    frame: ProbeFrame | None  # the newest, also while silent
    age_seconds: float | None  # since anything came


@dataclass(slots=True)
class ProbeReader:
    """One subscription to a probe, used by one thread. Close it, or use it in a `with`."""

    endpoint: str = DEFAULT_PROBE_ENDPOINT
    rank: int = 0
    allowed: Sequence[str] | None = None  # entries of the allow-list; None: those of the environment
    clock: Callable[[], float] = time.monotonic
    payload: bytes = field(default=b"", init=False, repr=False)  # of the newest frame
    _frame: ProbeFrame | None = field(default=None, init=False)
    _heard_at: float | None = field(default=None, init=False)
    _fault: str = field(default="", init=False)
    _socket: zmq.Socket[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def open(self) -> None:
        """Subscribes; raises `PlanError` for an endpoint that may not be read."""
        allowed = allowed_hosts() if self.allowed is None else self.allowed
        address = reachable_endpoint(self.endpoint, self.rank, allowed)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        socket = context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, _QUEUED_FRAMES)
        socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_FRAME_BYTES)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(address)
        self._socket = socket

    def close(self) -> None:
        """Ends the subscription."""
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None

    def poll(self, wait_seconds: float = 0.0) -> tuple[ProbeFrame, ...]:
        """The frames that came since the last poll, oldest first, repeats left out; waits at most so long for the first."""
        if self._socket is None:
            raise RuntimeError("the subscription is not open")
        found: list[ProbeFrame] = []
        wait_ms = int(wait_seconds * 1000)
        for _ in range(_MOST_FRAMES_A_POLL):
            if not self._socket.poll(wait_ms):
                break
            found += self._taken(self._socket.recv())
            wait_ms = 0
        return tuple(found)

    def _taken(self, payload: bytes) -> list[ProbeFrame]:
        self._heard_at = self.clock()
        if payload == self.payload:
            return []
        try:
            frame = decode_frame(payload)
        except ProbeFrameError as error:
            self._fault = str(error)
            return []
        self._fault, self._frame, self.payload = "", frame, payload
        return [frame]

    def status(self) -> ProbeStatus:
        """How it stands, with all that has come until now."""
        self.poll()
        age = None if self._heard_at is None else self.clock() - self._heard_at
        state: FeedState = "ok"
        text = self._fault
        if age is None:
            state = "waiting"
            text = f"No probe has been heard at {self.endpoint} yet; start vLLM with --scheduler-cls live.engine.probe.ProbeScheduler."
        elif age > _SILENT_SECONDS:
            state, text = (
                "silent",
                f"The probe at {self.endpoint} has been silent for {age:.0f} s; the engine has stopped.",
            )
        elif text:
            state = "broken"
        return ProbeStatus(state=state, text=text, frame=self._frame, age_seconds=age)


class ProbeBeside:
    """The probe recorded beside an engine's metrics: counts as series, and each tick's newest frame as it came."""

    def __init__(self, endpoint: str = DEFAULT_PROBE_ENDPOINT, rank: int = 0) -> None:
        self._reader = ProbeReader(endpoint=endpoint, rank=rank)
        self._reader.open()
        self._recorded = b""

    def sample(self) -> Extras:
        """What there is now; nothing while no probe is heard."""
        status = self._reader.status()
        frame = status.frame
        if frame is None or status.state == "silent":
            return Extras()
        payload = self._reader.payload
        is_new, self._recorded = payload != self._recorded, payload
        numbers = {
            "probe/num_used_blocks": frame.num_used_blocks,
            "probe/num_cached_hashes": frame.num_cached_hashes,
            "probe/num_preemptions": frame.num_preemptions,
            "probe/num_running": frame.num_running,
            "probe/num_waiting": frame.num_waiting,
            "probe/step": frame.step,
        }
        return Extras(numbers=numbers, frames=((FRAME_KIND, payload),) if is_new else ())

    def close(self) -> None:
        """Ends the subscription."""
        self._reader.close()
