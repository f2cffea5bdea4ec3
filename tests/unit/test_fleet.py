"""An engine of a Prometheus server as a source: its address, its past, the present after it, and what can go wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from fakes import engine_server as fake
from fakes.metrics_server import MetricsServer, metrics_server, metrics_text
from fakes.real_prometheus import free_port, need_prometheus, real_prometheus

from live.fleet import (
    NOT_SCRAPED,
    SERVER_DOWN,
    FleetEngine,
    FleetSource,
    any_source,
    fleet,
    fleet_engine,
    fleet_source,
    write_past,
)
from live.http_source import HttpSource
from live.monitor import Monitor
from live.recording import Recording
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.scrape_address import parse_address
from live.store import About, Store
from live.watched import SourceError
from planner.facts import PlanError

A = {"model_name": "M", "engine": "0", "instance": "a:8000", "job": "vllm"}
IDENTITY = EngineIdentity(model_name="M", engine="0", replica="instance=a:8000,job=vllm")


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def row(labels: dict[str, str], *points: tuple[float, str]) -> dict:
    pairs = [list(point) for point in points]
    metric = {"__name__": "vllm:num_requests_running", **labels}
    return {"metric": metric, "values": pairs, "value": pairs[0]}


def success(*rows: object) -> fake.Route:
    return fake.text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(rows)}}))


@contextmanager
def source_of(routes: dict[str, fake.Route]) -> Iterator[tuple[FleetSource, fake.EngineServer]]:
    with fake.engine_server(routes) as server:
        engine = FleetEngine(server=parse_address(server.url), identity=IDENTITY)
        yield FleetSource(engine), server


@pytest.mark.parametrize(
    "identity",
    [
        IDENTITY,
        EngineIdentity(model_name="org/name with blank&=#", engine=None, replica="instance=[::1]:8000,pod=ü"),
        EngineIdentity(model_name=None, engine="3", replica=None),
    ],
)
def test_an_address_names_the_engine_and_comes_back(identity: EngineIdentity):
    engine = FleetEngine(server=parse_address("http://127.0.0.1:9090/prom"), identity=identity)

    assert fleet_engine(engine.address) == engine
    assert " " not in engine.address


def test_its_labels_narrow_the_query():
    assert FleetEngine(server=parse_address("localhost:9090"), identity=IDENTITY).labels == {
        "instance": "a:8000",
        "job": "vllm",
    }
    odd = EngineIdentity(model_name="M", replica="instance=a,b:8000")
    assert FleetEngine(server=parse_address("localhost:9090"), identity=odd).labels == {}


@pytest.mark.parametrize("text", ["http://localhost:9090", "prometheus:http://localhost:9090", "prometheus:x#pod=1"])
def test_what_names_no_engine_is_refused(text: str):
    with pytest.raises(PlanError, match="choose one"):
        fleet_engine(text)


def test_another_host_is_refused_by_the_same_rule():
    address = FleetEngine(server=parse_address("http://192.0.2.7:9090"), identity=IDENTITY).address

    with pytest.raises(PlanError, match="KVSCOPE_ALLOW_SCRAPE"):
        fleet_source(address)


def test_an_address_says_which_kind_of_source_it_is():
    fleet_address = FleetEngine(server=parse_address("http://127.0.0.1:9090"), identity=IDENTITY).address

    assert isinstance(any_source(fleet_address), FleetSource)
    assert isinstance(any_source("http://127.0.0.1:8000"), HttpSource)


def test_only_its_own_sample_is_read():
    rows = success(row(A, (100, "3")), row(A | {"engine": "1"}, (100, "9")))
    with source_of({"/api/v1/query": rows}) as (source, server):
        snapshot = source.read()

    assert [(each.identity, each.num_requests_running) for each in snapshot.engines] == [(IDENTITY, 3)]
    assert 'instance="a:8000"' in parse_qs(urlsplit(server.seen[0][1]).query)["query"][0]


@pytest.mark.parametrize(
    ("route", "state"),
    [
        (success(), NOT_SCRAPED),
        (success(row(A | {"engine": "1"}, (100, "9"))), NOT_SCRAPED),
        (fake.text("<html>"), "broken"),
        (fake.text("", status=503), "http_error"),
    ],
)
def test_what_cannot_be_read_is_a_named_state(route: fake.Route, state: str):
    with source_of({"/api/v1/query": route}) as (source, _), pytest.raises(SourceError) as raised:
        source.read()

    assert (raised.value.kind, bool(raised.value.text)) == (state, True)


def test_a_server_that_is_gone_says_nothing_of_the_engine():
    engine = FleetEngine(server=parse_address(f"http://127.0.0.1:{free_port()}"), identity=IDENTITY)

    with pytest.raises(SourceError, match="may be well") as raised:
        FleetSource(engine).read()

    assert raised.value.kind == SERVER_DOWN


def test_a_long_past_is_asked_for_in_parts():
    with source_of({"/api/v1/query_range": success(row(A, (100, "3")))}) as (source, server):
        list(source.past(2500.0, 1.0, now=lambda: 10_000.4))

    asked = [parse_qs(urlsplit(path).query) for _, path, _ in server.seen][::2]  # each once more for its buckets
    assert [(each["start"], each["end"]) for each in asked] == [
        (["7500.000"], ["8499.000"]),
        (["8500.000"], ["9499.000"]),
        (["9500.000"], ["10000.000"]),
    ]


def snapshot(second: int, preemptions: float) -> EngineSnapshot:
    sample = EngineSample(time_unix_ns=second * 10**9, identity=IDENTITY, num_preemptions=preemptions)
    return EngineSnapshot(time_unix_ns=second * 10**9, source="x", engines=(sample,))


def test_a_past_is_written_with_its_gaps_and_restarts(tmp_path: Path):
    store = Store.create(tmp_path / "run.kvscope", About(source="x", interval_ms=5000))
    count = write_past([snapshot(100, 4), snapshot(105, 5), snapshot(105, 5), snapshot(130, 1)], store, 5.0)
    store.close()

    with closing(Recording.open(tmp_path / "run.kvscope")) as recording:
        assert (count, recording.times().tolist()) == (3, [100_000, 105_000, 130_000])
        assert [(gap.start_ms, gap.end_ms, gap.state) for gap in recording.gaps()] == [(110_000, 130_000, NOT_SCRAPED)]
        assert [mark.kind for mark in recording.marks()] == ["restarted"]


def test_labels_that_are_none_are_refused():
    with pytest.raises(PlanError, match="job=vllm"):
        fleet("http://127.0.0.1:1", "vllm")


def test_a_server_that_is_not_there_is_one_sentence_and_leaves_no_file(tmp_path: Path):
    server = f"http://127.0.0.1:{free_port()}"
    address = FleetEngine(server=parse_address(server), identity=IDENTITY).address
    monitor = Monitor(tmp_path)

    with pytest.raises(PlanError, match="Nothing answers"):
        fleet(server)
    with pytest.raises(PlanError, match="Nothing answers"):
        monitor.watch_fleet(address, 60.0, 5.0)

    assert (monitor.recorders(), list(tmp_path.iterdir())) == ((), [])


def test_a_real_server_gives_the_past_and_the_present_goes_on(tmp_path: Path):
    need_prometheus()
    monitor = Monitor(tmp_path / "recordings")
    with metrics_server() as first, metrics_server() as second:
        first.text, second.text = metrics_text(model="M", usage=0.25), metrics_text(model="N", usage=0.5)
        with real_prometheus(tmp_path, *(_target(each) for each in (first, second))) as address:
            until(lambda: len(_known(address)) == 2)
            time.sleep(3.0)
            engine = next(each for each in fleet(address, "job=vllm") if each.identity.model_name == "M")
            started_ms = int(time.time() * 1000)
            recorder = monitor.watch_fleet(engine.address, 3600.0, 0.5)
            assert monitor.watch_fleet(engine.address, 3600.0, 0.5) is recorder
            try:
                first.text = metrics_text(model="M", usage=0.75)
                until(lambda: _usage(recorder.status().snapshot) == 0.75)
                first.stop()
                until(lambda: recorder.status().state == NOT_SCRAPED)
                window = recorder.window(seconds=3600.0)
            finally:
                monitor.stop()
            again = Monitor(tmp_path / "recordings")
            again.start()
            resumed = [each.address for each in again.recorders()]
            again.stop()

    usage = window.series(f"M#0@{engine.identity.replica}/kv_usage_fraction")
    before = usage[window.time_ms < started_ms]
    assert len(before) >= 5
    assert set(before) == {0.25}
    assert usage[-1] == 0.75
    assert resumed == [engine.address]


def _target(server: MetricsServer) -> str:
    return f"127.0.0.1:{server.port}"


def _known(address: str) -> tuple[FleetEngine, ...]:
    try:
        return fleet(address)
    except PlanError:
        return ()


def _usage(snapshot: EngineSnapshot | None) -> float | None:
    return None if snapshot is None else snapshot.engines[0].kv_usage_fraction
