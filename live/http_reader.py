"""Bounded GET requests to checked addresses: 2 seconds and 5 MB (by default) at most, no redirect to another host, no proxy.

Failures are named states, not exceptions. A token is sent to the asked server only, and nothing keeps or shows it.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urljoin

import httpcore  # the layer below httpx: there the address and a deadline over all reads can be set

from live.scrape_address import (
    Resolver,
    ServerAddress,
    allowed_hosts,
    checked_addresses,
    parse_address,
    resolve,
    resolve_in_time,
)
from planner.facts import PlanError

LONGEST_SECONDS = 2.0
LARGEST_ANSWER_BYTES = 5 * 1000 * 1000
_MOST_REDIRECTS = 2
_MOST_PER_SECOND = 25  # requests to one server

ReadState = Literal[
    "ok", "refused", "timed_out", "too_large", "redirected", "http_error", "broken", "unknown_host", "too_often"
]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """What a server answered; `text` says in one sentence what is wrong, and is empty for `ok`."""

    state: ReadState
    content: bytes = b""
    status: int | None = None
    text: str = ""


@dataclass(slots=True)
class _Deadline:
    """What one answer may cost: time and bytes."""

    clock: Clock
    end: float
    largest_bytes: int = LARGEST_ANSWER_BYTES

    def left(self) -> float:
        """Seconds left; raises where none are."""
        left = self.end - self.clock()
        if left <= 0:
            raise httpcore.ReadTimeout
        return left


class _TimedStream(httpcore.NetworkStream):
    """A connection of which every read and write ends by one deadline, however slowly the other side drips."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: _Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - the deadline rules
        return self._stream.read(max_bytes, self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002 - the deadline rules
        self._stream.write(buffer, self._deadline.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002 - the deadline rules
    ) -> httpcore.NetworkStream:
        return _TimedStream(self._stream.start_tls(ssl_context, server_hostname, self._deadline.left()), self._deadline)

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


class _CheckedBackend(httpcore.NetworkBackend):
    """Connects to the addresses that were checked, whatever the host's name resolves to by now."""

    def __init__(self, addresses: Sequence[str], deadline: _Deadline) -> None:
        self._addresses, self._deadline, self._backend = addresses, deadline, httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,  # noqa: ARG002 - the name was resolved and checked before
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the deadline rules
        local_address: str | None = None,  # noqa: ARG002 - none is ever asked for
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError("no address")
        for address in self._addresses:
            try:
                stream = self._backend.connect_tcp(address, port, self._deadline.left(), None, socket_options)
            except httpcore.ConnectError as error:
                failure = error
            else:
                return _TimedStream(stream, self._deadline)
        raise failure


def _failure(error: Exception, server: ServerAddress) -> HttpAnswer:
    if isinstance(error, (httpcore.TimeoutException, TimeoutError)):
        text = f"{server.shown} did not answer within {LONGEST_SECONDS:g} seconds."
        return HttpAnswer(state="timed_out", text=text)
    if isinstance(error, httpcore.ConnectError):
        text = f"Nothing answers at {server.shown}; start the engine there, or check host and port."
        return HttpAnswer(state="refused", text=text)
    text = f"{server.shown} does not answer as an HTTP server should; check the port and http against https."
    return HttpAnswer(state="broken", text=text)


@dataclass(slots=True)
class HttpReader:
    """Reads paths of servers. It holds the rate limit's memory and, for one process, the token (never printed)."""

    allowed: Sequence[str] | None = None  # entries of the allow-list; None: those of the environment
    token: str | None = field(default=None, repr=False)
    resolver: Resolver = resolve
    clock: Clock = time.monotonic
    _recent: dict[tuple[str, int], deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_MOST_PER_SECOND)), repr=False
    )
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def check(self, server: ServerAddress) -> None:
        """Raises `PlanError` where the server's address may not be read."""
        try:
            self._addresses(server, LONGEST_SECONDS)
        except (OSError, TimeoutError):
            return

    def _addresses(self, server: ServerAddress, seconds: float) -> tuple[str, ...]:
        allowed = allowed_hosts() if self.allowed is None else self.allowed
        try:
            found = resolve_in_time(server.host, server.port, seconds, self.resolver)
        except (OSError, TimeoutError):
            checked_addresses(server, (), allowed)  # an unknown host that may not be read is refused, not reported
            raise
        return checked_addresses(server, found, allowed)

    def _is_too_often(self, server: ServerAddress) -> bool:
        with self._lock:
            times, now = self._recent[server.host, server.port], self.clock()
            is_full = len(times) == _MOST_PER_SECOND and now - times[0] < 1.0
            if not is_full:
                times.append(now)
            if len(self._recent) > 1000:
                self._recent.clear()
            return is_full

    def get(
        self,
        server: ServerAddress,
        path: str,
        *,
        seconds: float = LONGEST_SECONDS,
        largest_bytes: int = LARGEST_ANSWER_BYTES,
    ) -> HttpAnswer:
        """The answer to a GET of `path` below the server's root; raises `PlanError` for an address that may not be read."""
        end = self.clock() + min(seconds, LONGEST_SECONDS)
        deadline = _Deadline(clock=self.clock, end=end, largest_bytes=largest_bytes)
        url, token = f"{server.shown}{path}", self.token
        for _ in range(_MOST_REDIRECTS + 1):
            answer, location = self._one(server, url, token, deadline)
            if location is None:
                return answer
            url = urljoin(url, location)
            try:
                target = parse_address(url.split("?", maxsplit=1)[0])
            except PlanError:
                return answer
            if target.host != server.host:
                return answer
            token = token if (target.port, target.scheme) == (server.port, server.scheme) else None
            server = ServerAddress(scheme=target.scheme, host=target.host, port=target.port)
        return answer

    def _one(
        self, server: ServerAddress, url: str, token: str | None, deadline: _Deadline
    ) -> tuple[HttpAnswer, str | None]:
        """One request: the answer and, for a redirect, where to."""
        if self._is_too_often(server):
            text = f"More than {_MOST_PER_SECOND} requests a second went to {server.shown}; this one was not sent."
            return HttpAnswer(state="too_often", text=text), None
        try:
            addresses = self._addresses(server, deadline.left())
            return _request(url, addresses, token, deadline, server)
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, TimeoutError) as error:
            return _failure(error, server), None
        except (OSError, UnicodeError) as error:
            if isinstance(error, ssl.SSLError):
                return _failure(error, server), None
            text = f"The host {server.host} is not known here; check its name."
            return HttpAnswer(state="unknown_host", text=text), None


def _request(
    url: str, addresses: Sequence[str], token: str | None, deadline: _Deadline, server: ServerAddress
) -> tuple[HttpAnswer, str | None]:
    headers = [
        ("Accept", "text/plain, application/json;q=0.9"),
        ("Accept-Encoding", "identity"),
        ("User-Agent", "kvscope"),
    ]
    if token:
        headers.append(("Authorization", f"Bearer {token}"))
    backend = _CheckedBackend(addresses, deadline)
    context = ssl.create_default_context() if server.scheme == "https" else None
    with (
        httpcore.ConnectionPool(ssl_context=context, network_backend=backend) as pool,
        pool.stream("GET", url, headers=headers) as response,
    ):
        answered = {name.lower(): value for name, value in response.headers}
        if response.status in {301, 302, 303, 307, 308}:
            text = f"{server.shown} sends to another address, which is not followed; give the final one."
            location = answered.get(b"location", b"").decode("latin-1")
            return HttpAnswer(state="redirected", status=response.status, text=text), location or None
        return _body(response, answered.get(b"content-length", b""), server, deadline.largest_bytes), None


def _body(response: httpcore.Response, announced: bytes, server: ServerAddress, largest_bytes: int) -> HttpAnswer:
    limit = f"{largest_bytes // 1_000_000} MB"
    too_large = HttpAnswer(
        state="too_large",
        status=response.status,
        text=f"{server.shown} answers with more than {limit}; it is not read.",
    )
    if announced.isdigit() and int(announced[:20]) > largest_bytes:
        return too_large
    content = bytearray()
    for chunk in response.iter_stream():
        content += chunk
        if len(content) > largest_bytes:
            return too_large
    if response.status != 200:
        text = f"{server.shown} answers with HTTP status {response.status}."
        return HttpAnswer(state="http_error", status=response.status, text=text)
    return HttpAnswer(state="ok", status=response.status, content=bytes(content))
