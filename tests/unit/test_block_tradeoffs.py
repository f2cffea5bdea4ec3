"""What a choice about blocks costs and buys."""

from __future__ import annotations

import pytest

from planner.block_tradeoffs import block_size_points, concurrency_points, switch_point
from planner.facts import PlanError
from planner.simulator_config import FULL_ATTENTION, KvGroup, SimulatorConfig
from planner.workload import LengthDistribution, WorkloadSpec, draw_workload

ENGINE = SimulatorConfig(num_gpu_blocks=513, max_num_batched_tokens=2048, max_num_seqs=64, max_model_len=1024)
CHATS = draw_workload(
    WorkloadSpec(
        num_requests=80,
        prompt=LengthDistribution(kind="lognormal", mean_tokens=90, high=400),
        output=LengthDistribution(kind="lognormal", mean_tokens=40, high=200),
        num_prefixes=1,
        prefix_tokens=100,
    ),
    seed=2,
)


def test_larger_blocks_waste_more_and_find_less():
    points = block_size_points(ENGINE, CHATS, (16, 64, 256))

    assert [point.hit_fraction for point in points] == sorted((p.hit_fraction for p in points), reverse=True)
    assert points[0].peak_table_bytes > points[-1].peak_table_bytes
    assert points[-1].hit_fraction == 0.0  # a prefix of 100 tokens fills no block of 256


def test_paging_keeps_its_blocks_full_where_contiguous_reservation_does_not():
    one, many = concurrency_points(ENGINE, CHATS, (1, 32))

    assert one.paged_fraction > 0.9
    assert many.paged_fraction > 0.9
    assert dict(many.contiguous)["max_length"] < 0.3
    assert dict(many.contiguous)["max_length"] < dict(many.contiguous)["power_of_two"] < many.paged_fraction
    assert many.pool_fraction > one.pool_fraction


def test_prefix_caching_off_finds_nothing():
    point = switch_point(ENGINE, CHATS, "prefix_caching")

    assert point.on.summary.hit_tokens > 0
    assert point.off.summary.hit_tokens == 0


@pytest.mark.parametrize("switch", ["sliding_window", "hybrid_manager"])
def test_a_window_saves_blocks(switch):
    engine = SimulatorConfig(
        num_gpu_blocks=2001,
        max_model_len=4096,
        groups=(FULL_ATTENTION, KvGroup(kind="sliding_window", span_tokens=64)),
        max_num_batched_tokens=256,
    )
    long = draw_workload(WorkloadSpec(num_requests=4, prompt=LengthDistribution(mean_tokens=2000)))

    point = switch_point(engine, long, switch)

    share_on = point.on.summary.peak_used_blocks / engine.num_usable_blocks
    share_off = point.off.summary.peak_used_blocks / point.off.timeline.config.num_usable_blocks
    assert share_on < share_off


def test_a_model_without_a_window_has_no_such_switch():
    with pytest.raises(PlanError, match="no sliding window"):
        switch_point(ENGINE, CHATS, "sliding_window")
