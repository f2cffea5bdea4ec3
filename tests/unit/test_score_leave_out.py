"""Leaving a model out: a pool is shifted by what the other models of its class leave unexplained, never by its own rows."""

from __future__ import annotations

import pytest

from planner.score import Comparison, Scored
from planner.score_leave_out import leave_one_model_out
from planner.score_report import leave_one_out_tables
from tests.score_rows import scored


def _scored(
    model: str, predicted: float, logged: float, fitted_class: str = "one card", weights: float = 0.0
) -> Scored:
    pool = Comparison(name="kv_pool", predicted=predicted, logged=logged, low=predicted - 1, high=predicted + 1)
    load = Comparison(name="weights", predicted=10 + weights, logged=10.0)
    return scored(f"{model}-{predicted}", model, pool, load, fitted_class=fitted_class)


def _pools(rows: list[Scored]) -> dict[str, Comparison]:
    return {item.row_id: pool for item in leave_one_model_out(rows) if (pool := item.find("kv_pool")) is not None}


def test_a_pool_moves_by_the_median_of_the_other_models() -> None:
    rows = [_scored("a", 5.0, 5.0), _scored("b", 6.0, 5.8), _scored("c", 7.0, 6.6)]

    pool = _pools(rows)["a-5.0"]

    assert pool.predicted == pytest.approx(5.0 - 0.3)


def test_scattered_models_widen_the_refitted_band_in_quadrature() -> None:
    rows = [_scored("a", 5.0, 5.0), _scored("b", 6.0, 5.8), _scored("c", 7.0, 6.6)]

    pool = _pools(rows)["a-5.0"]

    # b and c lie 0.1 beside their median: 0.1 * 1.4826 * 1.645 * 1.2533 / sqrt(2) = 0.2161
    assert pool.low == pytest.approx(4.7 - (1 + 0.2161**2) ** 0.5, abs=1e-4)
    assert pool.high == pytest.approx(4.7 + (1 + 0.2161**2) ** 0.5, abs=1e-4)


def test_models_that_agree_leave_the_band_as_wide_as_it_was() -> None:
    rows = [_scored("a", 5.0, 5.0), _scored("b", 6.0, 5.8), _scored("c", 7.0, 6.8)]

    pool = _pools(rows)["a-5.0"]

    assert (pool.low, pool.high) == pytest.approx((3.8, 5.8))


def test_what_one_model_alone_teaches_is_doubted_by_all_that_it_moves() -> None:
    rows = [_scored("a", 5.0, 5.0), _scored("b", 6.0, 5.25)]

    pool = _pools(rows)["a-5.0"]

    assert (pool.low, pool.high) == pytest.approx((4.25 - 1.25, 4.25 + 1.25))


def test_one_outlier_does_not_widen_what_many_agree_on() -> None:
    rows = [_scored("a", 5.0, 5.0), _scored("b", 6.0, 6.0), _scored("c", 7.0, 7.0), _scored("d", 60.0, 49.0)]

    pool = _pools(rows)["a-5.0"]

    assert (pool.low, pool.high) == pytest.approx((4.0, 6.0))


def test_rows_of_the_same_model_count_once_and_never_for_themselves() -> None:
    rows = [_scored("a", 5.0, 4.0), _scored("a", 8.0, 7.0), _scored("b", 6.0, 5.8), _scored("b", 9.0, 8.8)]

    pools = _pools(rows)

    assert pools["a-5.0"].predicted == pytest.approx(4.8)
    assert pools["b-6.0"].predicted == pytest.approx(5.0)


def test_a_weights_error_is_no_part_of_what_is_fitted() -> None:
    # b's pool is 0.5 too small because its weights were predicted 0.5 too large
    rows = [_scored("a", 5.0, 5.0), _scored("b", 6.0, 6.5, weights=0.5)]

    assert _pools(rows)["a-5.0"].predicted == pytest.approx(5.0)


def test_a_class_of_one_model_is_left_out() -> None:
    rows = [_scored("a", 5.0, 5.0), _scored("b", 6.0, 6.0, fitted_class="eight cards")]

    assert _pools(rows) == {}


def test_the_table_names_rows_models_errors_and_the_band() -> None:
    rows = [_scored("a", 5.0, 5.0), _scored("b", 6.0, 6.0)]

    table = leave_one_out_tables(rows)

    assert "| other, version stated | 2 | 2 | 0.00 % | 0.00 % | 0.00 % | 100.00 % |" in table
    assert "| version not stated | 0 | 0 | – | – | – | – | – |" in table
