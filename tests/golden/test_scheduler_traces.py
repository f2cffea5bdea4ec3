"""What vLLM 0.33's own scheduler did on 32 random workloads, step by step; made by driving its classes directly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories import shared_file

from planner.sequence import SimulatedRequest
from planner.simulation import Simulation, step_frames
from planner.simulator_config import FULL_ATTENTION, KvGroup, SimulatorConfig
from planner.step_frames import frame_of

TRACES = sorted(shared_file("groundtruth", "scheduler_traces").glob("trace_*.json"))


def load(path: Path) -> tuple[SimulatorConfig, list[SimulatedRequest], list[dict[str, Any]]]:
    trace = json.loads(path.read_text(encoding="utf-8"))
    config = dict(trace["config"])
    window = config.pop("sliding_window")
    groups = (FULL_ATTENTION, KvGroup(kind="sliding_window", span_tokens=window)) if window else (FULL_ATTENTION,)
    requests = [
        SimulatedRequest(
            request_id=row["request_id"],
            arrival_step=row["arrival_step"],
            num_prompt_tokens=len(row["prompt_token_ids"]),
            num_output_tokens=len(row["output_token_ids"]),
            prompt_token_ids=tuple(row["prompt_token_ids"]),
            output_token_ids=tuple(row["output_token_ids"]),
            priority=row.get("priority", 0),
        )
        for row in trace["requests"]
    ]
    return SimulatorConfig(groups=groups, **config), requests, trace["steps"]


def test_all_traces_are_there():
    assert len(TRACES) >= 32


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_every_step_of_a_trace_is_reproduced(path):
    config, requests, steps = load(path)

    frames = [frame.to_mapping() for frame in step_frames(config, requests)]

    assert frames == steps


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_passing_over_quiet_steps_changes_nothing(path):
    config, requests, _ = load(path)
    quiet = Simulation(config, requests)
    plain = Simulation(config, requests, skip_quiet_steps=False)

    while not quiet.is_done:
        quiet.schedule()
        plain.schedule()
        assert frame_of(quiet.scheduler) == frame_of(plain.scheduler)
        quiet.apply_outputs()
        plain.apply_outputs()

    assert plain.is_done
