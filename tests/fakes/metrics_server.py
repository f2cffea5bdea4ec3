"""An HTTP server on 127.0.0.1 that plays an engine's /metrics well or badly: it stalls, drips, floods, talks garbage, restarts."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Play = Literal["well", "stall", "drip", "flood", "garbage", "error_500", "empty", "other_service", "cut", "redirect"]

OTHER_SERVICE = "# TYPE node_load1 gauge\nnode_load1 0.5\n"


def metrics_text(
    *,
    model: str = "tiny-llama",
    usage: float = 0.25,
    running: int = 3,
    preemptions: int = 0,
    tokens: int = 1000,
    started: float = 1_760_000_000.0,
) -> str:
    """A short text as vLLM exports it."""
    labels = f'{{engine="0",model_name="{model}"}}'
    rows = [
        ("vllm:kv_cache_usage_perc", "gauge", labels, usage),
        ("vllm:num_requests_running", "gauge", labels, running),
        ("vllm:num_requests_waiting", "gauge", labels, 0),
        ("vllm:num_preemptions_total", "counter", labels, preemptions),
        ("vllm:generation_tokens_total", "counter", labels, tokens),
        ("process_start_time_seconds", "gauge", "", started),
    ]
    lines = [
        f"# HELP {name} A number.\n# TYPE {name.removesuffix('_total')} {kind}\n{name}{where} {value}\n"
        for name, kind, where, value in rows
    ]
    return "".join(lines)


class MetricsServer:
    """The server. `play` says how /metrics behaves, `text` what it says; `stop` and `start` keep the port."""

    def __init__(self, port: int = 0) -> None:
        self.text = metrics_text()
        self.play: Play = "well"
        self.version = "0.32.0"
        self.model = "tiny-llama"
        self.requests: list[str] = []
        self._released = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self.port = port
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, on the port of before where there is one."""
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.requests.append(self.path)
                fake.answer(self)

            def log_message(self, *_: Any) -> None:
                return None

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True
            block_on_close = False

        self._released.clear()
        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening, as an engine that ended."""
        if self._server is not None:
            self._released.set()
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """One answer."""
        if handler.path == "/metrics":
            getattr(self, f"_{self.play}")(handler)
        elif handler.path == "/version":
            self._send(handler, json.dumps({"version": self.version}).encode())
        elif handler.path == "/v1/models":
            entry = {"id": self.model, "root": self.model, "max_model_len": 4096}
            self._send(handler, json.dumps({"object": "list", "data": [entry]}).encode())
        else:
            self._send(handler, b"{}", 404)

    def _send(self, handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, length: int | None = None) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        self._write(handler, body)

    @staticmethod
    def _write(handler: BaseHTTPRequestHandler, body: bytes) -> bool:
        try:
            handler.wfile.write(body)
            handler.wfile.flush()
        except OSError:
            return False
        return True

    def _open_ended(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.end_headers()

    def _well(self, handler: BaseHTTPRequestHandler) -> None:
        self._send(handler, self.text.encode())

    def _stall(self, _handler: BaseHTTPRequestHandler) -> None:
        self._released.wait(30)

    def _drip(self, handler: BaseHTTPRequestHandler) -> None:
        self._open_ended(handler)
        while not self._released.is_set() and self._write(handler, b"# a comment without end\n"):
            time.sleep(0.05)

    def _flood(self, handler: BaseHTTPRequestHandler) -> None:
        self._open_ended(handler)
        line = b'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5\n' * 1000
        for _ in range(50_000_000 // len(line)):
            if not self._write(handler, line):
                return

    def _garbage(self, handler: BaseHTTPRequestHandler) -> None:
        self._send(handler, bytes(range(256)) * 40)

    def _error_500(self, handler: BaseHTTPRequestHandler) -> None:
        self._send(handler, b"Internal Server Error", 500)

    def _empty(self, handler: BaseHTTPRequestHandler) -> None:
        self._send(handler, b"")

    def _other_service(self, handler: BaseHTTPRequestHandler) -> None:
        self._send(handler, OTHER_SERVICE.encode())

    def _cut(self, handler: BaseHTTPRequestHandler) -> None:
        body = self.text.encode()
        self._send(handler, body[: len(body) // 2], length=len(body))
        handler.connection.shutdown(socket.SHUT_RDWR)

    def _redirect(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", "http://192.0.2.1/metrics")
        handler.send_header("Content-Length", "0")
        handler.end_headers()


@contextmanager
def metrics_server() -> Iterator[MetricsServer]:
    """A server that listens until the block ends."""
    server = MetricsServer()
    try:
        yield server
    finally:
        server.stop()
