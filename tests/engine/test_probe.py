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


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_frame_tells_of_the_steps_since_the_one_before(answer, mode):
    seen, told = answer["high_water"][mode]["seen"], answer["high_water"][mode]["told"]

    assert len(seen) == len(told) > 10
    assert [row["settled"] for row in told] == [row["settled"] for row in seen]
    assert [sorted(row["preempted"]) for row in told] == [sorted(row["preempted"]) for row in seen]
    for ours, theirs in zip(told, seen, strict=True):
        # within a step that preempts, the pool was full before it gave blocks back
        assert ours["least"] == (0 if theirs["preempted"] else theirs["least"])
    assert 0 < sum(bool(row["preempted"]) for row in seen) < len(seen)


def test_the_probe_costs_less_than_two_percent_at_256_running_requests(answer):
    typical = answer["cost"][0]  # 512 tokens of context each

    fraction = RATE_HZ * (typical["sample_seconds"] + typical["encode_seconds"])

    assert fraction < LARGEST_FRACTION, typical


def test_longer_tables_are_sampled_less_often_rather_than_costing_more(answer):
    longer = answer["cost"][1]  # 4096 tokens of context each
    frames_per_second = answer["limited"]["samples"] / answer["limited"]["seconds"]

    encoding = frames_per_second * longer["encode_seconds"]

    assert answer["limited"]["sampled_fraction"] + encoding < LARGEST_FRACTION


def test_nothing_of_vllms_own_is_shadowed_but_what_is_meant_to_be(answer):
    assert answer["overridden"] == ["_preempt_request", "schedule", "shutdown", "update_from_output"]


def test_an_unknown_release_is_refused_in_one_line(answer):
    text = answer["refusal"]

    assert "0.99.1" in text
    assert "\n" not in text
