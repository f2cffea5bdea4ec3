"""Loads that make no sense are refused at their field; those that do give the requests they describe."""

from __future__ import annotations

from typing import Any

import pytest
from demands import demand, lengths

from planner.demand import requests_for
from planner.facts import PlanError


@pytest.mark.parametrize(
    ("percentiles", "field"),
    [
        ((4000, 2000, 600), "prompt_p95"),
        ((600, 2000, 1999), "prompt_p99"),
        ((0, 2000, 4000), "prompt_p50"),
        ((-5, 2000, 4000), "prompt_p50"),
        ((600, 2000, 10**12), "prompt_p99"),
        ((600.5, 2000, 4000), "prompt_p50"),
    ],
)
def test_absurd_percentiles_are_refused_at_their_field(percentiles: tuple[Any, Any, Any], field: str) -> None:
    with pytest.raises(PlanError) as caught:
        lengths("prompt", *percentiles)

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"users": 0}, "users"),
        ({"users": -3}, "users"),
        ({"users": 10**12}, "users"),
        ({"users": None}, "users"),
        ({"users": None, "requests_per_second": 0.0}, "requests_per_second"),
        ({"users": None, "requests_per_second": -1.0}, "requests_per_second"),
        ({"users": None, "requests_per_second": float("nan")}, "requests_per_second"),
        ({"most_preempted_fraction": float("nan")}, "most_preempted_fraction"),
        ({"most_preempted_fraction": float("inf")}, "most_preempted_fraction"),
        ({"users": None, "requests_per_second": 1e12}, "requests_per_second"),
        ({"requests_per_second": 2.0}, "users"),
        ({"prefix_tokens": -1}, "prefix_tokens"),
        ({"prefix_tokens": 10**12}, "prefix_tokens"),
        ({"most_preempted_fraction": 1.5}, "most_preempted_fraction"),
    ],
)
def test_absurd_loads_are_refused_at_their_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(PlanError) as caught:
        demand(**changes)

    assert caught.value.field == field


def test_drawn_requests_have_the_percentiles_and_nothing_above_p99() -> None:
    drawn = sorted(request.num_prompt_tokens for request in demand().draw(4000, seed=3))

    assert drawn[2000] == pytest.approx(600, rel=0.08)
    assert drawn[3800] == pytest.approx(2000, rel=0.12)
    assert drawn[-1] == 4000


def test_a_shared_prefix_comes_on_top_and_is_shared() -> None:
    drawn = demand(prefix_tokens=1000).draw(50, seed=1)

    assert min(request.num_prompt_tokens for request in drawn) > 1000
    assert {request.shared_pieces[0].num_tokens for request in drawn} == {1000}


def test_the_longest_request_holds_prefix_prompt_and_output_at_p99() -> None:
    assert demand(prefix_tokens=1000).longest_tokens == 1000 + 4000 + 1200


def test_copies_share_the_load_and_users_are_rounded_up() -> None:
    assert demand(users=10).for_replicas(3).users == 4
    assert demand(users=None, requests_per_second=6.0).for_replicas(3).requests_per_second == pytest.approx(2.0)


def test_a_run_is_long_enough_for_a_steady_state_and_short_enough_to_wait_for() -> None:
    assert [requests_for(number) for number in (1, 100, 1e9)] == [60, 400, 4000]
