"""Reads what the probe publishes: the newest frame without waiting, its state by name, and the same as part of a recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import zmq

from live.kv_events import reachable_endpoint
from live.probe_frames import (
    DEFAULT_PROBE_ENDPOINT,
    LARGEST_FRAME_BYTES,
    ProbeFrame,
    ProbeFrameError,
    decode_frame,
    encode_frame,
    unpack_blocks,
)
from live.recorder import Extras
from live.scrape_address import allowed_hosts

FRAME_KIND = "probe"  # of a recording's frames
_SILENT_SECONDS = 5.0  # the probe repeats its frame every second
_QUEUED_FRAMES = 64
_MOST_FRAMES_A_POLL = 10_000
_MOST_PREEMPTED_IDS = 1024
_RECONNECT_MILLISECONDS = 1000
_SMALL_FRAME_BYTES = 65_536  # larger ones are recorded more seldom
_RECORDED_BYTES_PER_SECOND = 65_536.0

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
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MILLISECONDS)
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
        return self.standing()

    def standing(self) -> ProbeStatus:
        """How it stood at the last poll."""
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


def needed_blocks(frame: ProbeFrame) -> int | None:
    """The blocks that the running requests' lengths come to, a shared one counted once; None where groups differ or some are left out.

    Σ ⌈computed tokens / block size⌉ − Σ (holders − 1).
    """
    if frame.num_groups != 1 or frame.num_requests_left_out:
        return None
    alone = sum(-(-request.num_computed_tokens // frame.block_size) for request in frame.requests)
    return max(0, alone - sum(count - 1 for count in unpack_blocks(frame.shared_counts)))


def frame_kind(rank: int) -> str:
    """The kind under which a recording keeps the frames of one data-parallel rank."""
    return FRAME_KIND if rank == 0 else f"{FRAME_KIND}/{rank}"


class ProbeBeside:
    """The probe recorded beside an engine's metrics: counts as series, and each tick's newest frame with all that was preempted.

    A frame of a large pool is recorded every few seconds rather than every tick, so that tables do not crowd out numbers.
    """

    def __init__(
        self,
        endpoint: str = DEFAULT_PROBE_ENDPOINT,
        rank: int = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = ProbeReader(endpoint=endpoint, rank=rank)
        self._reader.open()
        self._kind, self._clock = frame_kind(rank), clock
        self._recorded, self._text = b"", ""
        self._due = 0.0
        self._preempted: dict[str, None] = {}  # an ordered set, since the frame recorded last
        self._peak_used = 0  # blocks, since the frame recorded last

    def sample(self) -> Extras:
        """What there is now; nothing while no probe is heard."""
        passed = self._reader.poll()
        for each in passed:
            self._preempted.update(dict.fromkeys(each.preempted_ids))
            self._peak_used = max(self._peak_used, each.peak_used_blocks)
        status = self._reader.standing()
        frame, self._text = status.frame, status.text
        if frame is None or status.state == "silent":
            return Extras()
        peak = max(frame.num_used_blocks, *(each.peak_used_blocks for each in passed), 0)
        return Extras(numbers=self._numbers(frame, peak), frames=self._frames(frame))

    def _frames(self, frame: ProbeFrame) -> tuple[tuple[str, bytes], ...]:
        payload, now = self._reader.payload, self._clock()
        if payload == self._recorded or now < self._due:
            return ()
        self._recorded = payload
        whole = self._of_stretch(frame)
        if len(payload) > _SMALL_FRAME_BYTES:
            self._due = now + len(payload) / _RECORDED_BYTES_PER_SECOND
        return ((self._kind, payload if whole == frame else encode_frame(whole)),)

    def _of_stretch(self, frame: ProbeFrame) -> ProbeFrame:
        """`frame` with all that was preempted, and the most that was in use, since the frame recorded last."""
        self._preempted.update(dict.fromkeys(frame.preempted_ids))
        ids = tuple(self._preempted)[-_MOST_PREEMPTED_IDS:]
        peak = max(self._peak_used, frame.peak_used_blocks)
        least = None if frame.least_free_blocks is None else frame.num_gpu_blocks - 1 - peak
        self._preempted.clear()
        self._peak_used = 0
        return replace(frame, preempted_ids=ids, least_free_blocks=least)

    def _numbers(self, frame: ProbeFrame, peak_used_blocks: int) -> dict[str, float]:
        needed = needed_blocks(frame)
        known = {} if needed is None else {f"{self._kind}/num_needed_blocks": float(needed)}
        return known | {
            f"{self._kind}/num_used_blocks": frame.num_used_blocks,
            f"{self._kind}/peak_used_blocks": peak_used_blocks,  # since the tick before
            f"{self._kind}/num_cached_hashes": frame.num_cached_hashes,
            f"{self._kind}/num_preemptions": frame.num_preemptions,
            f"{self._kind}/num_running": frame.num_running,
            f"{self._kind}/num_waiting": frame.num_waiting,
            f"{self._kind}/step": frame.step,
        }

    @property
    def text(self) -> str:
        """What is wrong with the probe in one sentence, as of the last tick; empty while all is well."""
        return self._text

    def close(self) -> None:
        """Ends the subscription."""
        self._reader.close()
