"""The simulator's curve of a known load at a measured pace, and its error."""

from __future__ import annotations

import numpy as np
import pytest

from live.expected_curve import CurveError, Pace, curve_error, expected_curve, measured_pace, seconds_since
from planner.sequence import SimulatedRequest
from planner.simulator_config import SimulatorConfig

CONFIG = SimulatorConfig(num_gpu_blocks=11, block_size=16, max_num_seqs=4, max_num_batched_tokens=64)


def request(name: str, arrival_seconds: float, prompt: int, output: int) -> SimulatedRequest:
    return SimulatedRequest(
        request_id=name, arrival_seconds=arrival_seconds, num_prompt_tokens=prompt, num_output_tokens=output
    )


def test_a_running_request_gains_a_token_a_step() -> None:
    since = np.arange(11.0)
    running = np.full(11, 4.0)

    pace = measured_pace(since, running, 200.0 * np.arange(11))  # 4 requests, 200 tokens a second

    assert pace.at_seconds[0] == 0.0
    assert set(pace.step_seconds) == {0.02}


def test_a_sample_that_is_missing_costs_only_itself() -> None:
    running, tokens = np.full(11, 4.0), 200.0 * np.arange(11)
    running[3] = tokens[6] = np.nan

    assert set(measured_pace(np.arange(11.0), running, tokens).step_seconds) == {0.02}


def test_an_idle_stretch_has_no_pace() -> None:
    running = np.array([0.0, 0.0, 0.0, 2.0, 2.0])

    pace = measured_pace(np.arange(5.0), running, np.array([0.0, 0.0, 0.0, 50.0, 150.0]))

    assert pace.at_seconds == (2.0, 3.0)
    assert pace.step_seconds == (0.02, 0.02)


def test_steps_that_are_counted_go_before_tokens_while_the_engine_is_busy() -> None:
    running = np.array([4.0, 4.0, 4.0, 0.0])
    tokens = np.array([0.0, 100.0, 200.0, 250.0])  # fewer than a token a step: some steps compute prompts again
    steps = np.array([0.0, 50.0, 100.0, 110.0])

    pace = measured_pace(np.arange(4.0), running, tokens, steps)

    assert pace.step_seconds == (0.02, 0.02, 0.04)


def test_as_many_steps_fit_into_a_stretch_as_the_engine_took_in_it() -> None:
    pace = Pace(at_seconds=(0.0, 1.0, 2.0), step_seconds=(0.1, 0.02, 0.1))
    curve = expected_curve(CONFIG, (request("a", 0.0, 32, 64),), pace)

    begun = [np.sum(curve.at_seconds < moment - 1e-6) for moment in (1.0, 2.0)]
    assert begun == [10, 60]


def test_one_sample_has_no_pace() -> None:
    assert measured_pace(np.zeros(1), np.ones(1), np.ones(1)) == Pace(at_seconds=(), step_seconds=())


def test_a_restart_or_an_empty_window_has_no_pace_either() -> None:
    assert measured_pace(np.zeros(0), np.zeros(0), np.zeros(0)) == Pace(at_seconds=(), step_seconds=())
    assert measured_pace(np.arange(2.0), np.ones(2), np.array([90.0, 3.0])) == Pace(at_seconds=(), step_seconds=())


def test_the_curve_holds_what_the_pool_does_and_is_empty_while_idle() -> None:
    pace = Pace(at_seconds=(0.0,), step_seconds=(0.1,))

    curve = expected_curve(CONFIG, (request("a", 1.0, 32, 5), request("b", 9.0, 16, 2)), pace)

    usage = curve.usage_at(np.array([-1.0, 0.5, 1.05, 1.45, 5.0, 9.05, 20.0]))
    assert np.isnan(usage[0])
    assert usage[1:].tolist() == pytest.approx([0.0, 0.2, 0.3, 0.0, 0.1, 0.0])


def test_a_slower_engine_holds_its_blocks_longer() -> None:
    load = (request("a", 0.0, 32, 10),)

    fast, slow = (expected_curve(CONFIG, load, Pace(at_seconds=(0.0,), step_seconds=(step,))) for step in (0.1, 0.5))

    moment = np.array([2.0])
    assert fast.usage_at(moment)[0] == 0.0
    assert slow.usage_at(moment)[0] > 0.0


def test_a_pool_too_small_preempts() -> None:
    load = tuple(request(f"r{number}", 0.0, 40, 60) for number in range(4))

    assert expected_curve(CONFIG, load, Pace(at_seconds=(), step_seconds=())).num_preemptions > 0


def test_the_error_counts_only_what_both_know() -> None:
    expected, actual = np.array([0.5, 0.5, np.nan, 0.2]), np.array([0.4, np.nan, 0.1, 0.5])

    assert curve_error(expected, actual) == CurveError(
        mean_absolute_fraction=pytest.approx(0.2), largest_absolute_fraction=pytest.approx(0.3), num_points=2
    )
    assert curve_error(expected, np.full(4, np.nan)) is None


def test_an_idle_pool_makes_no_error_smaller() -> None:
    expected, actual = np.array([0.0, 0.0, 0.5, 0.0]), np.array([0.0, 0.0, 0.4, 0.2])

    error = curve_error(expected, actual)

    assert error is not None
    assert (error.num_points, error.mean_absolute_fraction) == (2, pytest.approx(0.15))


def test_seconds_count_from_the_loads_start() -> None:
    assert seconds_since(np.array([500, 2500]), 1500).tolist() == [-1.0, 1.0]
