"""Our scheduler against vLLM's own, on workloads that nobody has seen before; all run in one child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from random_workloads import draw, to_simulator

from planner.simulation import step_frames

pytestmark = pytest.mark.engine
NUM_WORKLOADS = 100
# new workloads each run; KVSCOPE_ORACLE_SEED repeats a run
FIRST_SEED = int(os.environ.get("KVSCOPE_ORACLE_SEED", int(time.time()) % 1_000_000 * 1000))
DRIVER = Path(__file__).with_name("drive_scheduler.py")


def engine_python() -> Path:
    """The Python of an environment with vLLM: KVSCOPE_ENGINE, or the one in the user's cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = Path(os.environ.get("KVSCOPE_ENGINE", cache / "kvscope" / "engine-0.32.0"))
    python = folder / "bin" / "python"
    if not python.exists():
        message = f"no environment with vLLM at {folder}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return python


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Workloads with what vLLM did on each, and its release."""
    folder = tmp_path_factory.mktemp("oracle")
    python = engine_python()
    workloads = [draw(FIRST_SEED + number) for number in range(NUM_WORKLOADS)]
    source, target = folder / "workloads.json", folder / "steps.json"
    source.write_text(json.dumps(workloads), encoding="utf-8")
    done = subprocess.run([python, DRIVER, source, target], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(target.read_text(encoding="utf-8"))
    release = tuple(int(part) for part in answer["vllm_version"].split(".")[:2])
    return workloads, answer["runs"], release


def test_both_policies_and_both_kinds_of_scheduling_are_drawn(runs):
    configs = [workload["config"] for workload in runs[0]]

    assert {config["scheduling_policy"] for config in configs} == {"fcfs", "priority"}
    assert {config["async_scheduling"] for config in configs} == {True, False}


@pytest.mark.parametrize("number", range(NUM_WORKLOADS))
def test_every_step_equals_the_engine(runs, number):
    workloads, answers, release = runs
    config, requests = to_simulator(workloads[number], release)

    frames = [frame.to_mapping() for frame in step_frames(config, requests)]

    assert frames == answers[number], f"seed {FIRST_SEED + number}"
