"""The accuracy that README states, held on the start-up rows that the project carries (grades A and B)."""

from __future__ import annotations

import pytest

from planner.score import Scored, score_rows
from planner.score_report import card_errors, coverage, quantile, relative_errors, verdicts
from planner.truth import CARRIED_ROWS, TruthRow, read_rows

# Failures that no rule explains yet: 4.7 GiB more than a plan has were held on two GH200.
_NOT_CAUGHT = {"fnd4-v0220-dsv4-flash-2xgh200-fail"}
_GROUPS = ("0.17-0.20 on H100", "other, version stated", "version not stated")


def _rows() -> list[TruthRow]:
    files = sorted(CARRIED_ROWS.glob("*.jsonl"))
    return [row for path in files for row in read_rows(path.read_text().splitlines(), path.name) if row.grade in "AB"]


@pytest.fixture(scope="module")
def scored() -> tuple[Scored, ...]:
    return score_rows(_rows())


def _group(scored: tuple[Scored, ...], name: str) -> list[Scored]:
    return [item for item in scored if item.group == name and item.reason is None]


def _at(values: list[float], fraction: float) -> float:
    found = quantile(values, fraction)
    assert found is not None
    return found


def test_pools_of_017_to_020_on_h100_are_within_a_thousandth(scored: tuple[Scored, ...]) -> None:
    errors = relative_errors(_group(scored, _GROUPS[0]), "kv_pool")

    assert len(errors) >= 40
    assert _at(errors, 0.5) <= 0.0015
    assert _at(errors, 0.9) <= 0.025


def test_concurrency_of_017_to_020_on_h100_is_as_close(scored: tuple[Scored, ...]) -> None:
    assert _at(relative_errors(_group(scored, _GROUPS[0]), "concurrency"), 0.5) <= 0.004


def test_activation_and_non_torch_are_as_logged(scored: tuple[Scored, ...]) -> None:
    group = _group(scored, _GROUPS[0])

    assert _at(relative_errors(group, "activation"), 0.9) <= 0.01
    assert _at(relative_errors(group, "non_torch"), 0.5) <= 0.04


def test_pools_of_other_releases_and_cards(scored: tuple[Scored, ...]) -> None:
    group = _group(scored, _GROUPS[1])

    assert _at(relative_errors(group, "kv_pool"), 0.5) <= 0.03
    assert _at(relative_errors(group, "kv_pool"), 0.9) <= 0.14  # of a fourth set, mostly small pools; 0.08 before it
    assert _at(card_errors(group), 0.9) <= 0.03


def test_concurrency_of_other_releases_and_cards(scored: tuple[Scored, ...]) -> None:
    assert _at(relative_errors(_group(scored, _GROUPS[1]), "concurrency"), 0.5) <= 0.04


def test_bands_hold_the_logged_pools(scored: tuple[Scored, ...]) -> None:
    inside, count, half_width = coverage(_group(scored, _GROUPS[0]), "kv_pool")

    assert inside >= 0.9 * count
    assert half_width <= 0.04


def test_verdicts_are_right(scored: tuple[Scored, ...]) -> None:
    caught, failed, alarms, started = verdicts(scored)

    assert failed >= 3
    missed = {item.row_id for item in scored if item.logged_start is False and item.predicted_start}
    assert missed <= _NOT_CAUGHT
    assert caught == failed - len(missed)
    assert alarms <= 0.02 * started


def test_every_row_is_predicted_or_has_a_reason(scored: tuple[Scored, ...]) -> None:
    assert len(scored) == len(_rows())
    assert all(item.reason or item.comparisons or item.logged_start is not None for item in scored)


def test_no_model_alone_carries_the_group(scored: tuple[Scored, ...]) -> None:
    group = _group(scored, _GROUPS[0])

    for model_id in {item.model_id for item in group}:
        rest = [item for item in group if item.model_id != model_id]
        assert _at(relative_errors(rest, "kv_pool"), 0.5) <= 0.0015
