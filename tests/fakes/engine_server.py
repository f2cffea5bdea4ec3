"""A small HTTP server that answers as told: a vLLM's endpoints, and every way to answer badly."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Route = Callable[[BaseHTTPRequestHandler], None]


def text(body: str | bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> Route:
    """Answers with `body`."""
    content = body.encode() if isinstance(body, str) else body

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | (headers or {})).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def redirect(location: str) -> Route:
    return text("", status=307, headers={"Location": location})


def endless(handler: BaseHTTPRequestHandler) -> None:
    """A body without end, as fast as it is read."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(2000):
        handler.wfile.write(b"vllm:num_requests_running 1.0\n" * 1000)


def dripping_body(handler: BaseHTTPRequestHandler) -> None:
    """A byte now and then: each read succeeds, the answer never ends."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b"#")
        handler.wfile.flush()
        time.sleep(0.1)


def dripping_headers(handler: BaseHTTPRequestHandler) -> None:
    for _ in range(100):
        handler.wfile.write(b"H")
        handler.wfile.flush()
        time.sleep(0.1)


def no_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x00\x01 this is no HTTP\r\n\r\n")


class EngineServer(ThreadingHTTPServer):
    """`seen` holds each request as (method, path, headers)."""

    daemon_threads = True

    def __init__(self, routes: dict[str, Route]) -> None:
        self.routes = routes
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away early is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: EngineServer

    def do_GET(self) -> None:
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        self.server.routes.get(self.path.split("?")[0], text("not found", status=404))(self)

    do_POST = do_GET  # noqa: N815 - the base class looks it up by this name

    def log_message(self, *_arguments: object) -> None:
        return


@contextmanager
def engine_server(routes: dict[str, Route]) -> Iterator[EngineServer]:
    server = EngineServer(routes)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
