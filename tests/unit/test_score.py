"""Scoring: a row's prediction against its log, and the figures drawn from many."""

from __future__ import annotations

import pytest

from planner.score import Comparison, Scored, score_row
from planner.score_report import card_errors, coverage, markdown, quantile, relative_errors, verdicts
from planner.truth import TruthRow
from tests.score_rows import LLAMA


def _scored(**changes: object) -> Scored:
    values: dict[str, object] = {
        "row_id": "row",
        "model_id": "model",
        "family": "Family",
        "version": "0.19.0",
        "era": "era",
        "gpu": "card",
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "grade": "A",
        "group": "0.17-0.20 on H100",
        "total_gib": 80.0,
        "predicted_start": True,
        "logged_start": True,
    }
    return Scored(**{**values, **changes})  # type: ignore[arg-type]


def _pool(predicted: float, logged: float) -> Comparison:
    return Comparison(name="kv_pool", predicted=predicted, logged=logged, low=predicted - 1, high=predicted + 1)


def test_a_logged_start_is_predicted_term_by_term() -> None:
    outcome = score_row(TruthRow(values=LLAMA))

    assert outcome.reason is None
    assert outcome.group == "0.17-0.20 on H100"
    errors = {item.name: item.relative_error for item in outcome.comparisons}
    assert set(errors) == {"weights", "activation", "non_torch", "kv_pool", "tokens", "blocks", "concurrency"}
    assert max(error for error in errors.values() if error is not None) < 0.005


def test_an_unstated_release_takes_the_era_that_fits() -> None:
    row = {**LLAMA, "vllm_version": None, "gpu_memory_utilization": 0.9, "activation_peak_gib": 4.76}
    row |= {"available_kv_gib": 51.38, "non_torch_gib": 0.13, "kv_cache_tokens": None, "num_gpu_blocks": None}
    row |= {"max_concurrency": None}

    outcome = score_row(TruthRow(values=row))

    assert outcome.version == "0.11.0"
    assert outcome.group == "version not stated"


def test_a_row_without_a_model_is_listed_with_the_reason() -> None:
    outcome = score_row(TruthRow(values={**LLAMA, "model_id": None}))

    assert outcome.reason == "the row names no model"


def test_a_pool_that_no_default_explains_is_listed_with_the_reason() -> None:
    row = {**LLAMA, "gpu_memory_utilization": None, "available_kv_gib": 5.0}

    outcome = score_row(TruthRow(values=row))

    assert outcome.reason is not None
    assert "utilisation is not on record" in outcome.reason


def test_quantile_is_the_nearest_rank() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.9) == 2.0
    assert quantile([], 0.5) is None


def test_errors_skip_a_pool_that_was_given() -> None:
    rows = [_scored(comparisons=(_pool(9.0, 10.0),)), _scored(comparisons=(_pool(1.0, 10.0),), is_pool_given=True)]

    assert relative_errors(rows, "kv_pool") == [pytest.approx(0.1)]
    assert card_errors(rows) == [pytest.approx(1 / 80)]


def test_coverage_counts_logged_values_inside_the_band() -> None:
    rows = [_scored(comparisons=(_pool(10.0, 10.5),)), _scored(comparisons=(_pool(10.0, 20.0),))]

    inside, count, half_width = coverage(rows, "kv_pool")

    assert (inside, count) == (1, 2)
    assert half_width == pytest.approx((1 / 10.5 + 1 / 20) / 2)


def test_verdicts_tell_missed_failures_from_false_alarms() -> None:
    rows = [
        _scored(predicted_start=False, logged_start=False),
        _scored(predicted_start=True, logged_start=False),
        _scored(predicted_start=False, logged_start=True),
        _scored(predicted_start=True, logged_start=None),
    ]

    assert verdicts(rows) == (1, 2, 1, 1)


def test_the_page_lists_every_row_that_was_not_predicted() -> None:
    page = markdown([_scored(comparisons=(_pool(10.0, 10.0),)), _scored(row_id="odd", reason="no card")])

    assert "| odd | model | no card |" in page
    assert "1 of them predicted" in page
