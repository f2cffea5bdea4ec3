"""Bounded reading against a real server on loopback that answers in every bad way."""

import time

import pytest
from fakes import engine_server as fake

from live.http_reader import HttpReader
from live.scrape_address import ServerAddress, parse_address
from planner.facts import PlanError

HELLO = fake.text("hello")


def local(port: int) -> ServerAddress:
    return ServerAddress(scheme="http", host="127.0.0.1", port=port)


def test_a_good_answer_is_read_whole():
    with fake.engine_server({"/metrics": HELLO}) as server:
        answer = HttpReader().get(parse_address(server.url), "/metrics")

    assert (answer.state, answer.status, answer.content, answer.text) == ("ok", 200, b"hello", "")


@pytest.mark.parametrize("route", [fake.dripping_body, fake.dripping_headers, lambda _handler: time.sleep(4)])
def test_a_slow_answer_ends_after_two_seconds(route):
    with fake.engine_server({"/metrics": route}) as server:
        started = time.monotonic()
        answer = HttpReader().get(parse_address(server.url), "/metrics")
        took = time.monotonic() - started

    assert answer.state == "timed_out"
    assert "2 seconds" in answer.text
    assert took < 3.0


@pytest.mark.parametrize("route", [fake.endless, fake.text("x", headers={"Content-Length": str(50_000_000)})])
def test_an_answer_over_five_megabytes_is_not_kept(route):
    with fake.engine_server({"/metrics": route}) as server:
        answer = HttpReader().get(parse_address(server.url), "/metrics")

    assert (answer.state, answer.content) == ("too_large", b"")


def test_an_error_status_is_named():
    with fake.engine_server({}) as server:
        answer = HttpReader().get(parse_address(server.url), "/metrics")

    assert (answer.state, answer.status) == ("http_error", 404)


def test_what_is_no_http_is_named():
    with fake.engine_server({"/metrics": fake.no_http}) as server:
        answer = HttpReader().get(parse_address(server.url), "/metrics")

    assert answer.state == "broken"


def test_a_closed_port_is_refused_with_a_remedy():
    with fake.engine_server({}) as server:
        port = server.server_port

    answer = HttpReader().get(local(port), "/metrics")

    assert answer.state == "refused"
    assert "start the engine" in answer.text


def test_https_against_a_plain_port_is_named():
    with fake.engine_server({"/metrics": HELLO}) as server:
        answer = HttpReader().get(parse_address(server.url.replace("http", "https")), "/metrics")

    assert answer.state in {"refused", "broken"}


def test_a_redirect_on_the_same_host_is_followed():
    with fake.engine_server({"/metrics": fake.redirect("/metrics/"), "/metrics/": HELLO}) as server:
        answer = HttpReader().get(parse_address(server.url), "/metrics")

    assert answer.content == b"hello"


@pytest.mark.parametrize("location", ["http://localhost:1/x", "http://10.0.0.7/", "file:///etc/passwd", "//evil/x"])
def test_a_redirect_to_another_host_is_not_followed(location):
    with fake.engine_server({"/metrics": fake.redirect(location)}) as server:
        answer = HttpReader().get(parse_address(server.url), "/metrics")

    assert answer.state == "redirected"


def test_a_redirect_in_a_circle_ends():
    with fake.engine_server({"/metrics": fake.redirect("/metrics")}) as server:
        answer = HttpReader().get(parse_address(server.url), "/metrics")
        asked = len(server.seen)

    assert (answer.state, asked) == ("redirected", 3)


def test_the_token_goes_to_the_asked_server_and_no_other_port():
    with (
        fake.engine_server({"/x": HELLO}) as other,
        fake.engine_server({"/x": fake.redirect(f"{other.url}/x")}) as server,
    ):
        reader = HttpReader(token="sesame")  # noqa: S106 - a made-up one
        answer = reader.get(parse_address(server.url), "/x")

    assert answer.content == b"hello"
    assert server.seen[0][2]["Authorization"] == "Bearer sesame"
    assert "Authorization" not in other.seen[0][2]
    assert "sesame" not in repr(reader)


def test_another_host_is_refused_before_any_connection():
    reader = HttpReader(allowed=(), resolver=lambda _host, _port: ["10.0.0.7"])

    with pytest.raises(PlanError, match="KVSCOPE_ALLOW_SCRAPE"):
        reader.get(parse_address("http://gpu1:8000"), "/metrics")


def test_an_unknown_host_that_is_not_allowed_is_refused():
    def unknown(_host, _port):
        raise OSError

    reader = HttpReader(allowed=(), resolver=unknown)

    with pytest.raises(PlanError, match="KVSCOPE_ALLOW_SCRAPE=gpu1"):
        reader.check(parse_address("http://gpu1:8000"))


def test_an_unknown_host_that_is_allowed_is_a_state():
    def unknown(_host, _port):
        raise OSError

    reader = HttpReader(allowed=("gpu1:8000",), resolver=unknown)
    server = parse_address("http://gpu1:8000")
    reader.check(server)

    assert reader.get(server, "/metrics").state == "unknown_host"


def test_the_connection_goes_to_the_address_that_was_checked():
    with fake.engine_server({"/metrics": HELLO}) as server:
        reader = HttpReader(allowed=("gpu1",), resolver=lambda _host, _port: ["127.0.0.1"])
        answer = reader.get(parse_address(f"http://gpu1:{server.server_port}"), "/metrics")

    assert answer.content == b"hello"
    assert server.seen[0][2]["Host"].startswith("gpu1")


def test_the_second_address_is_tried_where_the_first_refuses():
    with fake.engine_server({"/metrics": HELLO}) as server:
        reader = HttpReader(resolver=lambda _host, _port: ["::1", "127.0.0.1"])
        answer = reader.get(parse_address(f"http://localhost:{server.server_port}"), "/metrics")

    assert answer.state == "ok"


def test_no_proxy_of_the_environment_is_used(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with fake.engine_server({"/metrics": HELLO}) as server:
        answer = HttpReader().get(parse_address(server.url), "/metrics")

    assert answer.state == "ok"


def test_too_many_requests_a_second_are_not_sent():
    with fake.engine_server({"/metrics": HELLO}) as server:
        reader = HttpReader(clock=lambda: 1.0)
        states = [reader.get(parse_address(server.url), "/metrics").state for _ in range(27)]

    assert states == ["ok"] * 25 + ["too_often"] * 2
    assert len(server.seen) == 25
