"""The server itself: where it listens, what it answers, and what it allows a page to do."""

from __future__ import annotations

import socket
import urllib.request


def test_it_answers_that_it_is_well(origin: str) -> None:
    with urllib.request.urlopen(f"{origin}/healthz", timeout=10) as answer:  # noqa: S310 - our own address
        assert answer.read() == b"ok"


def test_a_page_may_load_nothing_from_elsewhere(origin: str) -> None:
    with urllib.request.urlopen(origin, timeout=10) as answer:  # noqa: S310 - our own address
        policy = answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"

    assert "default-src 'self'" in policy
    assert "connect-src 'self'" in policy
    assert "http" not in policy


def test_it_listens_on_this_machine_alone(origin: str) -> None:
    port = int(origin.rsplit(":", 1)[1])
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}

    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) == 0
    for address in others - {"127.0.0.1", "127.0.1.1"}:
        with socket.socket() as client:
            client.settimeout(2)
            assert client.connect_ex((str(address), port)) != 0
