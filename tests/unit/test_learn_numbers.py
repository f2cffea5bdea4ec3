"""What the lessons compute agrees with the formulas that they teach."""

from __future__ import annotations

import pytest

from pages.parts import learn_numbers as numbers
from planner.folk_formulas import shared_blocks_total


@pytest.mark.parametrize(("requests", "shared"), [(1, 64), (4, 100), (8, 100), (16, 0)])
def test_simulator_counts_shared_blocks_as_the_formula_does(requests: int, shared: int) -> None:
    run = numbers.shared_run(requests, 120, shared)

    assert run.with_sharing == shared_blocks_total(requests, 120, shared, 16)
    assert run.without_sharing == requests * 8


def test_longer_limit_costs_reservation_alone() -> None:
    short, long = ({use.allocator: use for use in numbers.pool_uses(limit)} for limit in (1024, 8192))

    assert long["paged"] == short["paged"]
    assert long["max_length"].mean_running < short["max_length"].mean_running / 4


def test_smaller_pool_preempts_and_a_large_one_does_not() -> None:
    assert numbers.preempting_run(800).summary.num_preemptions > 0
    assert numbers.preempting_run(1600).summary.num_preemptions == 0


def test_v0_swaps_where_it_is_told_to() -> None:
    frames = numbers.v0_run(800, "swap")

    assert sum(len(frame.swapped_out) for frame in frames) > 0
    assert sum(len(frame.recomputed) for frame in frames) == 0


def test_rule_of_thumb_holds_for_multi_head_attention_alone() -> None:
    assert numbers.catalogue_folk(numbers.MHA).factor == 1
    assert numbers.catalogue_folk(numbers.GQA).factor == 4
    assert numbers.catalogue_folk(numbers.LARGE_GQA).factor == 8
