"""A server that answers /v1/completions as vLLM does, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def completions_server(fails: str = "") -> Iterator[tuple[str, list[dict]]]:
    """Its address and the bodies it got, each with its request's id; the request `fails` is answered with 503."""
    bodies: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body["request_id"] = self.headers["X-Request-Id"]
            bodies.append(body)
            status = 503 if body["request_id"] == fails else 200
            answer = json.dumps({"usage": {"completion_tokens": body["max_tokens"]}}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        server.server_close()
