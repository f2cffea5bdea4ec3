"""Steps per second of our scheduler beside vLLM's own, on the same requests, machine and run."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.recorder import Recorder
from planner.sequence import SimulatedRequest
from planner.simulate import simulate
from planner.simulation import Simulation
from planner.simulator_config import SimulatorConfig
from planner.workload import ArrivalProcess, LengthDistribution, WorkloadSpec, draw_workload

CONTEXT_TOKENS, STEPS, BLOCK_SIZE = 512, 400, 16
DRIVER = Path(__file__).parent / "engine" / "drive_scheduler.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSpeed:
    """Decode steps per second with `num_running` requests; `vllm` is None where no engine was given."""

    num_running: int
    ours: float  # the scheduler alone, as vLLM's is timed
    ours_recorded: float  # with everything written down for a timeline
    vllm: float | None

    @property
    def ratio(self) -> float | None:
        """Ours over vLLM's."""
        return None if self.vllm is None else self.ours / self.vllm


def bench_simulator(engine_python: Path | None = None) -> list[SchedulerSpeed]:
    """Our speed at 64 and 256 running requests, beside vLLM's when the Python of an engine is given."""
    speeds = []
    for num_running in (64, 256):
        vllm = _time_vllm(engine_python, num_running) if engine_python is not None else None
        ours, recorded = _time_ours(num_running, is_recorded=False), _time_ours(num_running, is_recorded=True)
        speeds.append(SchedulerSpeed(num_running=num_running, ours=ours, ours_recorded=recorded, vllm=vllm))
    return speeds


def bench_large_run() -> tuple[float, int]:
    """Seconds and steps of 1,000 requests over 100,000 blocks, recorded."""
    config = SimulatorConfig(num_gpu_blocks=100_000, max_num_seqs=256, max_model_len=32_768)
    spec = WorkloadSpec(
        num_requests=1_000,
        prompt=LengthDistribution(kind="lognormal", mean_tokens=2_000, high=20_000, spread=1.0),
        output=LengthDistribution(kind="lognormal", mean_tokens=400, high=4_000),
        arrivals=ArrivalProcess(kind="poisson", rate=0.5),
        num_prefixes=4,
        prefix_tokens=512,
        max_model_len=32_768,
    )
    requests = draw_workload(spec, seed=1)
    start = time.perf_counter()
    result = simulate(config, requests)
    return time.perf_counter() - start, result.summary.num_steps


def _rows(num_running: int) -> list[dict[str, Any]]:
    return [
        {
            "request_id": f"r{number}",
            "arrival_step": 0,
            "prompt_token_ids": [number * 7 + position % 97 for position in range(CONTEXT_TOKENS)],
            "output_token_ids": [7] * (STEPS + 50),
        }
        for number in range(num_running)
    ]


def _config(num_running: int) -> dict[str, Any]:
    return {
        "num_gpu_blocks": num_running * ((CONTEXT_TOKENS + STEPS) // BLOCK_SIZE + 2) + 1,
        "block_size": BLOCK_SIZE,
        "max_num_seqs": num_running,
        "max_num_batched_tokens": 8192,
        "max_model_len": 4096,
        "enable_prefix_caching": True,
    }


def _time_ours(num_running: int, *, is_recorded: bool) -> float:
    requests = [
        SimulatedRequest(
            request_id=row["request_id"],
            num_prompt_tokens=len(row["prompt_token_ids"]),
            num_output_tokens=len(row["output_token_ids"]),
            prompt_token_ids=tuple(row["prompt_token_ids"]),
            output_token_ids=tuple(row["output_token_ids"]),
        )
        for row in _rows(num_running)
    ]
    recorder = Recorder() if is_recorded else None
    simulation = Simulation(SimulatorConfig(**_config(num_running)), requests, journal=recorder)
    if recorder is not None:
        recorder.begin(simulation.scheduler, simulation.sequences)
    marks: list[float] = []
    while len(marks) <= STEPS:
        if marks or all(sequence.computed >= sequence.num_prompt for sequence in simulation.sequences):
            marks.append(time.perf_counter())
        simulation.schedule()
        if recorder is not None:
            recorder.end_schedule()
        else:
            simulation.scheduler.pool.forget_changes()
        simulation.apply_outputs()
    return _steps_per_second(marks)


def _steps_per_second(marks: list[float]) -> float:
    """The speed over the quickest stretch of block_size steps, in which each request fills one block.

    Other work on the machine slows whole stretches down; the quickest is the one it left alone.
    """
    stretches = [marks[index + BLOCK_SIZE] - marks[index] for index in range(0, len(marks) - BLOCK_SIZE, BLOCK_SIZE)]
    return BLOCK_SIZE / min(stretches)


def _time_vllm(engine_python: Path, num_running: int) -> float:
    workload = {"config": _config(num_running), "requests": _rows(num_running), "time_steps": STEPS}
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "workload.json"), Path(folder, "answer.json")
        source.write_text(json.dumps([workload]), encoding="utf-8")
        subprocess.run([engine_python, DRIVER, source, target], check=True, capture_output=True, timeout=600)
        answer = json.loads(target.read_text(encoding="utf-8"))
    return _steps_per_second(answer["runs"][0]["marks"])


if __name__ == "__main__":
    import sys

    for speed in bench_simulator(Path(sys.argv[1]) if len(sys.argv) > 1 else None):
        sys.stdout.write(f"{speed} ratio {speed.ratio}\n")
    sys.stdout.write(f"1,000 requests, 100,000 blocks: {bench_large_run()}\n")
