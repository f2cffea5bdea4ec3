"""The probe inside vLLM's own scheduler, driven alone: what it publishes is what the block manager holds, and what it costs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ready_engine import ready_engine

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
RATE_HZ = 5
LARGEST_FRACTION = 0.02  # of the scheduler's time at 256 running requests


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    python = ready_engine().python
    target = tmp_path_factory.mktemp("probe") / "answer.json"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KVSCOPE_PROBE_ENDPOINT": endpoint}
    command = [python, Path(__file__).with_name("drive_probe.py"), target]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("mode", "kind"), [("sync", "ProbeScheduler"), ("async", "AsyncProbeScheduler")])
def test_the_class_follows_the_engines_way_of_scheduling(answer, mode, kind):
    assert answer["fidelity"][mode]["kind"] == kind


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_frame_is_what_the_block_manager_holds(answer, mode):
    pairs = answer["fidelity"][mode]["pairs"]

    assert len(pairs) > 50
    for pair in pairs:
        assert pair["published"] == pair["truth"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_load_shared_blocks_and_preempted(answer, mode):
    truths = [pair["truth"] for pair in answer["fidelity"][mode]["pairs"]]

    assert max(max(truth["refs"].values(), default=0) for truth in truths) > 1
    assert truths[-1]["preempted"] > 0


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_engine_that_fell_idle_publishes_its_empty_tables(answer, mode):
    idle = answer["fidelity"][mode]["idle"]

    assert (idle["tables"], idle["refs"], idle["free"]) == ({}, {}, 60)
    assert idle["cached"] > 0


def test_the_probe_costs_less_than_two_percent_at_256_running_requests(answer):
    typical = answer["cost"][0]  # 512 tokens of context each

    fraction = RATE_HZ * (typical["sample_seconds"] + typical["encode_seconds"])

    assert fraction < LARGEST_FRACTION, typical


def test_longer_tables_are_sampled_less_often_rather_than_costing_more(answer):
    longer = answer["cost"][1]  # 4096 tokens of context each
    frames_per_second = answer["limited"]["samples"] / answer["limited"]["seconds"]

    encoding = frames_per_second * longer["encode_seconds"]

    assert answer["limited"]["sampled_fraction"] + encoding < LARGEST_FRACTION


def test_an_unknown_release_is_refused_in_one_line(answer):
    text = answer["refusal"]

    assert "0.99.1" in text
    assert "\n" not in text
