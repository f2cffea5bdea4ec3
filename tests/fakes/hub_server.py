"""A small server that speaks the Hub's API on 127.0.0.1, well or badly, for the real huggingface_hub client."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

OPENS_GATED = "hf_good"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
Fault = Literal["slow", "drip", "error_500", "truncated", "ignore_range", "redirect", "no_record", "rate_limit", "drop"]


def safetensors_bytes(tensors: dict[str, tuple[str, list[int], int]], data: bytes = b"") -> bytes:
    """A safetensors file of `tensors` (name -> dtype, shape, bytes) whose data part is `data`."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape, num_bytes) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + num_bytes]}
        offset += num_bytes
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + data


@dataclass
class FakeRepo:
    """One repository. `faults` maps a file name ("" for the API record) to what goes wrong with it."""

    files: dict[str, bytes]
    gated: bool = False
    private: bool = False
    disabled: bool = False
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main",)
    faults: dict[str, Fault] = field(default_factory=dict)
    cdn: str = ""  # the address redirects go to; "" means this server
    record: bytes | None = None  # what the API answers instead of the true record
    stated_lengths: dict[str, int] = field(default_factory=dict)


@dataclass
class SeenRequest:
    path: str
    authorization: str | None
    range: str | None


class HubServer:
    """The server: `repos` by id, `requests` as they came, `opens_with` the token that opens gated repositories."""

    def __init__(self) -> None:
        self.repos: dict[str, FakeRepo] = {}
        self.requests: list[SeenRequest] = []
        self.opens_with = OPENS_GATED
        self.slow_seconds = 3.0
        self.is_stopped = False
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.is_stopped = True  # kept connections must not answer on
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_arguments: object) -> None:
                return None

            def do_GET(self) -> None:
                if hub.is_stopped:
                    self.close_connection = True
                    return
                seen = SeenRequest(self.path, self.headers.get("Authorization"), self.headers.get("Range"))
                hub.requests.append(seen)
                _Answer(hub, self).give(unquote(urlsplit(self.path).path))

        return Handler


class _Answer:
    """Answers one request."""

    def __init__(self, hub: HubServer, request: BaseHTTPRequestHandler) -> None:
        self.hub = hub
        self.request = request

    def give(self, path: str) -> None:
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self.record("/".join(parts[2:4]), "/".join(parts[5:]) if parts[4:5] == ["revision"] else "main")
        elif parts[0] == "cdn":
            self.file(self.hub.repos["/".join(parts[1:3])], "/".join(parts[3:]), is_cdn=True)
        elif len(parts) > 4 and parts[2] == "resolve":
            self.resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self.refuse(404)

    def record(self, model_id: str, revision: str) -> None:
        repo = self.hub.repos.get(model_id)
        if repo is None:
            self.refuse(404, "RepoNotFound")
        elif repo.private and not self.has_token():
            self.refuse(401)
        elif repo.disabled:
            self.refuse(403, message="Access to this resource is disabled.")
        elif revision not in {*repo.revisions, repo.commit}:
            self.refuse(404, "RevisionNotFound")
        elif not self.fault(repo, ""):
            siblings = [{"rfilename": name} for name in repo.files]
            record = {"id": model_id, "sha": repo.commit, "siblings": siblings, "private": repo.private}
            body = json.dumps({**record, "gated": "manual" if repo.gated else False}).encode()
            self.send(200, repo.record or body, stated=repo.stated_lengths.get(""), drips=repo.faults.get("") == "drip")

    def has_token(self) -> bool:
        return self.request.headers.get("Authorization") == f"Bearer {self.hub.opens_with}"

    def resolve(self, model_id: str, revision: str, name: str) -> None:
        repo = self.hub.repos.get(model_id)
        if repo is None:
            self.refuse(404, "RepoNotFound")
        elif repo.gated and not self.has_token():
            self.refuse(403 if self.request.headers.get("Authorization") else 401, "GatedRepo")
        elif revision != repo.commit:
            self.refuse(404, "RevisionNotFound")
        elif repo.faults.get(name) == "redirect":
            self.request.send_response(302)
            self.request.send_header("Location", f"{repo.cdn}/cdn/{model_id}/{name}")
            self.request.send_header("Content-Length", "0")
            self.request.end_headers()
        else:
            self.file(repo, name)

    def fault(self, repo: FakeRepo, name: str) -> bool:
        kind = repo.faults.get(name)
        if kind == "slow":
            time.sleep(self.hub.slow_seconds)
            return False
        if kind == "error_500":
            self.refuse(500)
        elif kind == "rate_limit":
            self.refuse(429)
        elif kind == "no_record":
            self.send(200, b"<html>a wall</html>")
        elif kind == "drop":
            self.request.close_connection = True
            self.request.connection.close()
        return kind in {"error_500", "no_record", "rate_limit", "drop"}

    def file(self, repo: FakeRepo, name: str, *, is_cdn: bool = False) -> None:
        content = repo.files.get(name)
        if content is None:
            self.refuse(404, "EntryNotFound")
            return
        kind = repo.faults.get(name)
        if not is_cdn and self.fault(repo, name):
            return
        wanted = self.request.headers.get("Range")
        if wanted and kind != "ignore_range":
            first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
            self.send(206, content[first : last + 1], stated=repo.stated_lengths.get(name), drips=kind == "drip")
        else:
            stated = repo.stated_lengths.get(name, len(content) + 1000 if kind == "truncated" else None)
            self.send(200, content, stated=stated, drips=kind == "drip")

    def send(self, status: int, body: bytes, *, stated: int | None = None, drips: bool = False) -> None:
        self.request.send_response(status)
        self.request.send_header("Content-Type", "application/json")
        self.request.send_header("Content-Length", str(len(body) if stated is None else stated))
        self.request.end_headers()
        if stated is not None:
            self.request.close_connection = True
        try:
            for piece in [body[at : at + 1] for at in range(len(body))] if drips else [body]:
                self.request.wfile.write(piece)
                time.sleep(0.05 if drips else 0)
        except OSError:
            self.request.close_connection = True

    def refuse(self, status: int, code: str = "", message: str = "") -> None:
        self.request.send_response(status)
        if code:
            self.request.send_header("X-Error-Code", code)
        if message:
            self.request.send_header("X-Error-Message", message)
        self.request.send_header("Content-Length", "2")
        self.request.end_headers()
        self.request.wfile.write(b"{}")


@contextmanager
def running_hub() -> Iterator[HubServer]:
    """A started server, stopped at the end."""
    hub = HubServer()
    hub.start()
    try:
        yield hub
    finally:
        hub.stop()
