"""Metrics in JSON: answers of Prometheus' API, prom2json, VictoriaMetrics' export; anything else by its strings."""

import json

import pytest

from live.json_samples import from_json
from live.metrics import read_metrics

METRIC = {"__name__": "vllm:num_requests_running", "engine": "0", "model_name": 'a"b\\c\nd'}


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ({"metric": METRIC, "value": [1753795326.5, "3"]}, 3),
        ({"metric": METRIC, "values": [[1753795311.5, "9"], [1753795326.5, "3"]]}, 3),
        ({"metric": METRIC, "values": [9.0, 3.5], "timestamps": [1, 2]}, 3.5),
        ({"name": METRIC["__name__"], "metrics": [{"labels": {"model_name": 'a"b\\c\nd'}, "value": "3"}]}, 3),
    ],
)
def test_a_row_is_a_sample(row, value):
    (engine,) = read_metrics(json.dumps([row]), 0).engines

    assert engine.num_requests_running == value
    assert engine.identity.model_name == 'a"b\\c\nd'


@pytest.mark.parametrize(
    "row",
    [
        {"metric": METRIC},
        {"metric": METRIC, "value": None},
        {"metric": METRIC, "value": True},
        {"metric": METRIC, "value": [1753795326.5]},
        {"metric": METRIC, "values": []},
        {"metric": {"__name__": 3}, "value": [1, "3"]},
        {"metric": METRIC, "value": [1, "three"]},
        {"name": "vllm:num_requests_running", "metrics": [None, {"value": []}]},
    ],
)
def test_a_row_without_a_value_is_none(row):
    assert all(engine.num_requests_running is None for engine in read_metrics(json.dumps(row), 0).engines)


def test_what_is_no_json_stays():
    assert from_json("{ not") == "{ not"
    assert from_json("[" * 100_000) == "[" * 100_000


def test_a_text_in_a_document_is_read():
    text = 'vllm:num_requests_running{model_name="m"} 3.0\n'

    (engine,) = read_metrics(json.dumps({"pods": [{"name": "a", "metrics": text}]}), 0).engines

    assert engine.num_requests_running == 3


def test_half_a_sign_is_no_text():
    row = '{"metric": {"__name__": "vllm:num_requests_running", "model_name": "a\\ud800b"}, "value": [1, "3"]}'

    (engine,) = read_metrics(row, 0).engines

    assert engine.identity.model_name == "a?b"
