"""A Prometheus server as a source, against a fake of its HTTP API and, where it is installed, against the real one."""

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from fakes import engine_server as fake
from fakes.real_prometheus import free_port, need_prometheus, real_prometheus

from live.http_reader import HttpReader
from live.prometheus_server import History, PrometheusServer, Span, selector
from live.samples import EngineIdentity
from live.scrape_address import parse_address
from planner.facts import PlanError

A = {"model_name": "M", "engine": "0", "instance": "a:8000", "job": "vllm"}
B = A | {"instance": "b:8000"}
SPAN = Span(start_unix_seconds=100, end_unix_seconds=104, step_seconds=2)


def row(name: str, labels: dict[str, str], *points: tuple[float, str]) -> dict:
    metric = {"__name__": name, **labels}
    pairs = [[moment, text] for moment, text in points]
    return {"metric": metric, "values": pairs, "value": pairs[0]}


def success(*rows: object) -> fake.Route:
    return fake.text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(rows)}}))


HISTORY = success(
    row("vllm:kv_cache_usage_perc", A, (100, "0.1"), (102, "0.2"), (104, "NaN")),
    row("vllm:num_preemptions_total", A, (100, "5"), (104, "1")),
    row(
        "vllm:cache_config_info",
        {k: v for k, v in A.items() if k != "model_name"} | {"num_gpu_blocks": "7"},
        (100, "1"),
    ),
    row("vllm:gpu_cache_usage_perc", {k: v for k, v in B.items() if k != "engine"}, (102, "0.5")),
)
ENGINE_A = EngineIdentity(model_name="M", engine="0", replica="instance=a:8000,job=vllm")
ENGINE_B = EngineIdentity(model_name="M", engine=None, replica="instance=b:8000,job=vllm")


@contextmanager
def served(routes: dict[str, fake.Route], **labels: str) -> Iterator[tuple[PrometheusServer, fake.EngineServer]]:
    with fake.engine_server(routes) as server:
        yield PrometheusServer(address=parse_address(server.url), labels=labels), server


def test_a_history_is_each_engines_samples_in_time():
    with served({"/api/v1/query_range": HISTORY}) as (prometheus, _):
        history = prometheus.history(SPAN)

    first, second = history.engines
    assert [sample.identity for sample in (first[0], second[0])] == [ENGINE_A, ENGINE_B]
    assert [(one.time_unix_ns // 10**9, one.kv_usage_fraction, one.num_preemptions) for one in first] == [
        (100, 0.1, 5),
        (102, 0.2, None),
        (104, None, 1),
    ]
    assert [one.cache_config and one.cache_config.num_gpu_blocks for one in first] == [7, None, None]
    assert [(one.time_unix_ns // 10**9, one.kv_usage_fraction) for one in second] == [(102, 0.5)]
    assert [finding.code for finding in history.findings] == ["metric-not-finite"]


def test_the_query_asks_for_the_span_and_the_chosen_engines():
    with served({"/api/v1/query_range": HISTORY}, job='v"llm') as (prometheus, server):
        prometheus.history(SPAN)

    asked = parse_qs(urlsplit(server.seen[0][1]).query)
    assert (asked["start"], asked["end"], asked["step"]) == (["100.000"], ["104.000"], ["2"])
    assert 'job="v\\"llm"' in asked["query"][0]
    assert "kv_cache_usage_perc" in asked["query"][0]


def test_a_snapshot_is_all_engines_at_one_moment():
    rows = success(
        row("vllm:num_requests_running", A, (100, "3")),
        row("vllm:num_requests_running", B, (100, "4")),
        row("vllm:request_prompt_tokens_bucket", A | {"le": "+Inf"}, (100, "9")),
        row("vllm:request_prompt_tokens_bucket", A | {"le": "10.0"}, (100, "4")),
        row("vllm:request_prompt_tokens_sum", A, (100, "90")),
        row("vllm:request_prompt_tokens_count", A, (100, "9")),
        row("vllm:request_prompt_tokens_created", A, (100, "1.7e9")),
    )
    with served({"/api/v1/query": rows}) as (prometheus, _):
        reading = prometheus.snapshot(100)
        known = prometheus.engines()

    assert [sample.num_requests_running for sample in reading.snapshot.engines] == [3, 4]
    prompts = reading.snapshot.engines[0].histogram("vllm:request_prompt_tokens")
    assert (prompts.upper_bounds, prompts.counts, prompts.sum, prompts.count) == ((10, math.inf), (4, 9), 90, 9)
    assert reading.snapshot.engines[1].histograms == ()
    assert [identity.replica for identity in known] == ["instance=a:8000,job=vllm", "instance=b:8000,job=vllm"]


def test_a_history_has_the_lengths_of_requests_at_each_moment():
    rows = success(
        row("vllm:num_requests_running", A, (100, "3"), (102, "3")),
        row("vllm:request_generation_tokens_bucket", A | {"le": "10.0"}, (100, "1"), (102, "2")),
        row("vllm:request_generation_tokens_bucket", A | {"le": "+Inf"}, (100, "1"), (102, "5")),
        row("vllm:request_generation_tokens_sum", A, (100, "8"), (102, "80")),
        row("vllm:request_generation_tokens_count", A, (100, "1"), (102, "5")),
    )
    with served({"/api/v1/query_range": rows}) as (prometheus, server):
        ((first, second),) = prometheus.history(SPAN).engines

    told = [(one.counts, one.sum, one.count) for sample in (first, second) for one in sample.histograms]
    assert told == [((1, 1), 8, 1), ((2, 5), 80, 5)]
    queries = [parse_qs(urlsplit(path).query)["query"][0] for _, path, *_ in server.seen]
    assert ["_bucket" in query for query in queries] == [False, True]


def test_buckets_that_are_too_many_are_left_out_and_said():
    few = success(row("vllm:num_requests_running", A, (100, "3")))

    def route(handler):
        (fake.endless if "_bucket" in handler.path else few)(handler)

    with served({"/api/v1/query_range": route}) as (prometheus, _):
        history = prometheus.history(SPAN)

    assert [one.num_requests_running for one in history.engines[0]] == [3]
    assert [finding.code for finding in history.findings] == ["histogram-buckets-left-out"]


def test_the_early_prefix_counters_unit_comes_from_the_metadata():
    name = "vllm:gpu_prefix_cache_queries_total"
    help_text = json.dumps({"status": "success", "data": {name: [{"help": "in terms of number of queried blocks."}]}})
    routes = {"/api/v1/query": success(row(name, A, (100, "3"))), "/api/v1/metadata": fake.text(help_text)}
    with served(routes) as (prometheus, _):
        (known,) = prometheus.snapshot(100).snapshot.engines
    with served(routes | {"/api/v1/metadata": fake.text("[]")}) as (prometheus, _):
        (unknown,) = prometheus.snapshot(100).snapshot.engines

    assert (known.prefix_cache_queries_blocks, known.prefix_cache_queries_tokens) == (3, None)
    assert (unknown.prefix_cache_queries_blocks, unknown.prefix_cache_queries_tokens) == (None, None)


@pytest.mark.parametrize(
    ("route", "state", "word"),
    [
        (fake.text("<html>"), "broken", "HTTP API"),
        (fake.text('{"status": "error"}'), "broken", "HTTP API"),
        (fake.text('{"status": "success", "data": {"result": {}}}'), "broken", "HTTP API"),
        (success(), "not_vllm", "with these labels"),
        (fake.text("", status=400), "http_error", "400"),
        (fake.endless, "too_large", "longer step"),
    ],
)
def test_what_cannot_be_read_is_a_named_state(route, state, word):
    with served({"/api/v1/query_range": route, "/api/v1/query": route}, job="vllm") as (prometheus, _):
        history, reading = prometheus.history(SPAN), prometheus.snapshot(100)
        known = prometheus.engines()

    assert (history.state, reading.state, known) == (state, state, ())
    assert word in history.text
    assert word in reading.text


def test_odd_rows_are_left_out():
    rows = success(
        "junk",
        {"metric": 3},
        {"metric": {"__name__": "vllm:num_requests_running"}, "values": "none"},
        row("vllm:num_requests_running", A, (100, "many"), (math.inf, "3"), (102, "4")),
    )
    with served({"/api/v1/query_range": rows}) as (prometheus, _):
        history = prometheus.history(SPAN)

    assert [one.num_requests_running for samples in history.engines for one in samples] == [4]


@pytest.mark.parametrize(("start", "end", "step"), [(0, 10, 0), (10, 0, 1), (0, 10_000, 1), (0, 1, math.nan)])
def test_a_span_that_is_no_span_or_too_fine_is_refused(start, end, step):
    with pytest.raises(PlanError):
        Span(start_unix_seconds=start, end_unix_seconds=end, step_seconds=step)


def test_a_label_that_is_none_is_refused():
    with pytest.raises(PlanError, match="label"):
        selector("vllm:.+", {'a="b"} or up{x': "c"})


# -- the real server ------------------------------------------------------------------------------------------------------


def until_scraped(prometheus: PrometheusServer, moments: int) -> History:
    """Asks until the history has that many samples of an engine."""
    started = time.time()
    history = History(state="broken")
    while time.time() < started + 30:
        span = Span(start_unix_seconds=started, end_unix_seconds=time.time(), step_seconds=0.5)
        history = prometheus.history(span)
        if history.engines and len(history.engines[0]) >= moments:
            break
        time.sleep(0.3)
    return history


def test_the_real_server_gives_what_the_engine_exports(tmp_path):
    need_prometheus()
    metrics = (
        "# TYPE vllm:num_preemptions counter\n"
        'vllm:num_preemptions_total{engine="0",model_name="M"} 5.0\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="M"} 0.25\n'
        'vllm:kv_cache_usage_perc{engine="1",model_name="M"} 0.75\n'
        'vllm:cache_config_info{engine="0",num_gpu_blocks="100",block_size="16"} 1.0\n'
        "# TYPE vllm:request_prompt_tokens histogram\n"
        'vllm:request_prompt_tokens_bucket{engine="0",le="10.0",model_name="M"} 4.0\n'
        'vllm:request_prompt_tokens_bucket{engine="0",le="+Inf",model_name="M"} 9.0\n'
        'vllm:request_prompt_tokens_count{engine="0",model_name="M"} 9.0\n'
        'vllm:request_prompt_tokens_sum{engine="0",model_name="M"} 90.0\n'
    )
    answer = fake.text(metrics, headers={"Content-Type": "text/plain; version=0.0.4"})
    with fake.engine_server({"/metrics": answer}) as engine:
        target = f"127.0.0.1:{engine.server_port}"
        with real_prometheus(tmp_path, target) as address:
            prometheus = PrometheusServer(address=parse_address(address), labels={"job": "vllm"})
            history = until_scraped(prometheus, 3)
            reading = prometheus.snapshot()

    first, second = reading.snapshot.engines
    assert history.state == "ok"
    assert {one.kv_usage_fraction for one in history.engines[0]} == {0.25}
    assert (first.identity.engine, first.identity.replica) == ("0", f"instance={target},job=vllm")
    assert (first.kv_usage_fraction, first.num_preemptions, first.cache_config.num_gpu_blocks) == (0.25, 5, 100)
    assert (second.kv_usage_fraction, second.cache_config) == (0.75, None)
    for sample in (first, history.engines[0][-1]):
        prompts = sample.histogram("vllm:request_prompt_tokens")
        assert (prompts.upper_bounds, prompts.counts, prompts.sum) == ((10, math.inf), (4, 9), 90)


def test_a_silent_server_is_a_named_state():
    prometheus = PrometheusServer(address=parse_address(f"http://127.0.0.1:{free_port()}"), reader=HttpReader())

    assert prometheus.snapshot().state == "refused"
