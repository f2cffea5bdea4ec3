"""Steps of vLLM 0.33's own scheduler under rarer rules: async scheduling, drafts, EAGLE's block, retention, local chunks.

Made with `tests/engine/drive_scheduler.py` on vLLM 0.33's sources from workloads of `tests/engine/random_workloads.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))

from random_workloads import to_simulator

from planner.simulate import simulate
from planner.simulation import step_frames

LINES = Path(__file__).with_name("scheduler_rare_rules.jsonl").read_text(encoding="utf-8").splitlines()
CASES = {case["name"]: case for case in map(json.loads, LINES)}


@pytest.mark.parametrize("name", CASES)
def test_every_step_is_reproduced(name):
    config, requests = to_simulator(CASES[name]["workload"], (0, 33))

    frames = [frame.to_mapping() for frame in step_frames(config, requests)]

    assert frames == CASES[name]["steps"]


@pytest.mark.parametrize("name", CASES)
def test_the_timeline_shows_the_same_steps(name):
    config, requests = to_simulator(CASES[name]["workload"], (0, 33))

    timeline = simulate(config, requests).timeline

    assert [timeline.frame(step).to_mapping() for step in range(timeline.num_steps)] == CASES[name]["steps"]
