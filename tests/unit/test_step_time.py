"""The time of a step on a card."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import make_gpu

from planner.facts import PlanError
from planner.sequence import SimulatedRequest
from planner.simulate import simulate
from planner.simulation import SimulationOptions
from planner.simulator_config import SimulatorConfig
from planner.step_time import Roofline

GPU = make_gpu(bandwidth_bytes_per_second=3_350_000_000_000, bf16_flops_per_second=989_000_000_000_000)


def roofline(gpu=GPU):
    return Roofline.of_card(gpu, weight_bytes=16_000_000_000, kv_bytes_per_token=131_072, num_parameters=8_000_000_000)


def test_a_decode_step_reads_the_weights_once():
    seconds = roofline().seconds(1, 0)

    assert seconds == pytest.approx(16e9 / (0.8 * 3.35e12) + 0.002)


def test_context_makes_a_decode_step_longer():
    assert roofline().seconds(64, 64 * 4096) > 1.5 * roofline().seconds(64, 0)


def test_a_token_alone_reads_only_its_experts_and_many_read_all():
    mixture = replace(roofline(), expert_bytes=12_000_000_000, expert_fraction=8 / 128)

    assert mixture.seconds(1, 0) == pytest.approx((4e9 + 12e9 * 8 / 128) / (0.8 * 3.35e12) + 0.002)
    assert mixture.seconds(128, 0) == pytest.approx(roofline().seconds(128, 0), rel=0.001)


def test_recomputing_a_token_takes_its_flops():
    assert roofline().recompute_seconds_per_token == pytest.approx(16e9 / (0.5 * 989e12))


def test_a_run_by_the_roofline_takes_time():
    config = SimulatorConfig(num_gpu_blocks=64, max_model_len=512)
    requests = [SimulatedRequest(request_id="a", arrival_seconds=0.0, num_prompt_tokens=100, num_output_tokens=10)]

    result = simulate(config, requests, SimulationOptions(step_seconds=roofline()))

    assert result.summary.seconds == pytest.approx(10 * roofline().seconds(1, 112), rel=0.2)
    assert list(result.timeline.columns.start_seconds) == sorted(result.timeline.columns.start_seconds)


def test_a_card_of_unknown_speed_is_refused():
    with pytest.raises(PlanError, match="fixed time"):
        roofline(make_gpu())


def test_a_roofline_needs_a_bandwidth():
    with pytest.raises(PlanError):
        Roofline(weight_bytes=1, kv_bytes_per_token=1, flops_per_token=1.0, bytes_per_second=0.0, flops_per_second=1.0)
