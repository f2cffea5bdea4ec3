"""What requests wait for: worked out by hand on an engine whose steps all take a second."""

from __future__ import annotations

from collections import Counter

import pytest

from planner.latency import LatencyMeter, Percentiles, percentiles
from planner.sequence import SimulatedRequest
from planner.simulation import Simulation, SimulationOptions
from planner.simulator_config import SimulatorConfig
from planner.step_time import FixedStepTime, Pipeline, Roofline


def request(name: str, *, at: float = 0.0, prompt: int = 10, output: int = 4) -> SimulatedRequest:
    return SimulatedRequest(
        request_id=name, arrival_seconds=at, num_prompt_tokens=prompt, num_output_tokens=output
    )  # fmt: skip


def measured(config: SimulatorConfig, requests: list[SimulatedRequest], *, users: int | None = None, times=None):
    simulation = Simulation(config, requests, SimulationOptions(step_seconds=times or FixedStepTime(1.0)))
    meter = LatencyMeter(simulation, users)
    while not simulation.is_done:
        simulation.schedule()
        began = simulation.now_seconds
        meter.note_schedule()
        simulation.apply_outputs()
        meter.note_outputs(began, is_steady=True)
    return meter.result()


def config(**changes: object) -> SimulatorConfig:
    return SimulatorConfig(**({"num_gpu_blocks": 65, "max_model_len": 512} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_request_alone_has_its_first_token_after_one_step_and_then_one_a_step(is_async: bool) -> None:
    found = measured(config(async_scheduling=is_async), [request("a")])

    assert found.first_token == Percentiles(p50_seconds=1.0, p99_seconds=1.0, num_samples=1)
    assert (found.between_tokens.p50_seconds, found.between_tokens.p99_seconds) == (1.0, 1.0)


def test_a_prompt_in_chunks_waits_for_all_of_them() -> None:
    found = measured(config(max_num_batched_tokens=4), [request("a", prompt=10)])

    assert found.first_token.p50_seconds == 3.0


def test_who_waits_in_the_queue_waits_for_the_first_token() -> None:
    found = measured(config(max_num_seqs=1), [request("a", output=4), request("b", output=4)])

    assert (found.first_token.p50_seconds, found.first_token.p99_seconds) == (1.0, 5.0)


def test_users_send_the_next_request_when_the_last_is_served() -> None:
    found = measured(config(max_num_seqs=1), [request(name) for name in "abc"], users=1)

    assert found.first_token == Percentiles(
        p50_seconds=1.0, p99_seconds=1.0, num_samples=2
    )  # the start is no steady state


def test_arrivals_count_from_when_they_came() -> None:
    found = measured(config(), [request("a", output=8), request("b", at=2.5)])

    assert (found.first_token.p50_seconds, found.first_token.p99_seconds) == (1.0, 1.5)


def test_a_preempted_request_waits_long_for_its_next_token() -> None:
    tight = config(num_gpu_blocks=6, block_size=4, enable_prefix_caching=False)

    found = measured(tight, [request("a", prompt=7, output=8), request("b", prompt=7, output=8)])

    assert found.between_tokens.p50_seconds == 1.0
    assert found.between_tokens.p99_seconds > 2.0


def test_between_stages_a_token_takes_the_sum_of_their_times() -> None:
    stage = Roofline(
        weight_bytes=500, kv_bytes_per_token=0, flops_per_token=0.0, bytes_per_second=1000.0, flops_per_second=1.0,
        overhead_seconds=0.0,
    )  # fmt: skip
    times = Pipeline(stages=(stage, stage)).clock()

    found = measured(config(pipeline_parallel_size=2), [request("a")], times=times)

    assert found.first_token.p50_seconds == 1.0
    assert (found.between_tokens.p50_seconds, found.between_tokens.num_samples) == (1.0, 3)


def test_percentiles_are_the_least_that_enough_samples_do_not_exceed() -> None:
    found = percentiles(Counter({100_000: 98, 200_000: 1, 900_000: 1}))

    assert found == Percentiles(p50_seconds=1.0, p99_seconds=2.0, num_samples=100)
    assert percentiles({}) == Percentiles()
