"""The thread that encodes the probe's frames and sends them on a loopback socket; the newest frame replaces one not yet sent."""

from __future__ import annotations

import ipaddress
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import zmq

from live.probe_frames import LARGEST_FRAME_BYTES, ProbeFrame, encode_frame, joined_frames

_IDLE_SECONDS = 0.05  # the engine is called idle when it has had nothing to do for so long
_REPEAT_SECONDS = 1.0  # a frame is sent again so often, for readers that come late
_QUEUED_FRAMES = 8  # per reader, then frames are dropped
_TCP = re.compile(r"tcp://(?P<host>\[[0-9a-fA-F:]+\]|[\w.-]+):(?P<port>\d{1,5})")

_log = logging.getLogger("vllm.kvscope.probe")


def endpoint_of_rank(endpoint: str, rank: int) -> str:
    """Where data-parallel rank `rank` publishes; an endpoint that others could reach raises `ValueError`."""
    match = _TCP.fullmatch(endpoint)
    if match is None or not _is_loopback(match["host"]):
        raise ValueError(
            f"KVScope's probe publishes on this host only: give tcp://127.0.0.1:PORT, not {endpoint!r:.80}."
        )
    port = int(match["port"]) + rank
    if not 0 < port < 2**16:
        raise ValueError(f"Port {port} of KVScope's probe does not exist; choose one from 1 to 65535.")
    return f"tcp://{match['host']}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class ProbePublisher:
    """Sends what `offer` hands it, and what `idle_frame` yields when nothing was offered for a while."""

    def __init__(self, endpoint: str, idle_frame: Callable[[float], ProbeFrame | None]) -> None:
        self._endpoint = endpoint
        self._idle_frame = idle_frame
        self._lock = threading.Lock()
        self._offered: ProbeFrame | None = None
        self._num_dropped = 0
        self._wake = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="kvscope-probe", daemon=True)
        self._thread.start()

    def offer(self, frame: ProbeFrame) -> None:
        """Have `frame` sent; one that still waits is dropped for it, and what it told of its stretch is told by `frame`."""
        with self._lock:
            if self._offered is not None:
                self._num_dropped += 1
                frame = joined_frames(self._offered, frame)
            self._offered = frame
        self._wake.set()

    def close(self) -> None:
        """Stop the thread and free the port."""
        self._is_closed = True
        self._wake.set()
        self._thread.join(2.0)

    def _run(self) -> None:
        context = zmq.Context()
        socket = context.socket(zmq.PUB)
        try:
            socket.setsockopt(zmq.SNDHWM, _QUEUED_FRAMES)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.IPV6, int("[" in self._endpoint))
            socket.bind(self._endpoint)
            self._serve(socket)
        except zmq.ZMQError as error:
            # the engine serves on without it
            _log.error("KVScope's probe cannot publish at %s (%s); choose another port.", self._endpoint, error)
        finally:
            socket.close()
            context.term()

    def _serve(self, socket: zmq.Socket[Any]) -> None:
        payload, sent_at = b"", 0.0
        while not self._is_closed:
            self._wake.wait(_IDLE_SECONDS)
            self._wake.clear()
            frame = self._take() or self._idle_frame(_IDLE_SECONDS)
            if frame is not None:
                payload = _bounded(frame)
            elif not payload or time.monotonic() - sent_at < _REPEAT_SECONDS:
                continue
            sent_at = time.monotonic()
            try:
                socket.send(payload, zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._num_dropped += 1

    def _take(self) -> ProbeFrame | None:
        with self._lock:
            frame, self._offered = self._offered, None
        return None if frame is None else replace(frame, num_dropped=self._num_dropped)


def _bounded(frame: ProbeFrame) -> bytes:
    """The frame's bytes, without what makes it too large for its readers."""
    payload = encode_frame(frame)
    if len(payload) > LARGEST_FRAME_BYTES:
        payload = encode_frame(replace(frame, cached=None))
    if len(payload) > LARGEST_FRAME_BYTES:
        payload = encode_frame(replace(frame, cached=None, requests=(), num_requests_left_out=len(frame.requests)))
    return payload
