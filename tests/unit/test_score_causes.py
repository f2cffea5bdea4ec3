"""Why a pool is off: the term that accounts for it, several together, or unexplained and said so."""

from __future__ import annotations

import pytest

from planner.score import Comparison, Scored
from planner.score_causes import cause_of


def row(*terms: Comparison, gpu: str = "L4", fitted_class: str = "") -> Scored:
    pool = Comparison(name="kv_pool", predicted=10.0, logged=8.0)
    return Scored(
        row_id="row",
        model_id="model",
        family="family",
        version="0.19.0",
        era="era",
        gpu=gpu,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        grade="A",
        group="other, version stated",
        comparisons=(pool, *terms),
        fitted_class=fitted_class,
    )


def term(name: str, predicted: float, logged: float) -> Comparison:
    return Comparison(name=name, predicted=predicted, logged=logged)


def test_one_term_that_accounts_for_the_error_is_the_cause() -> None:
    cause = cause_of(row(term("activation", 1.0, 2.8), term("weights", 5.0, 5.0)))

    assert cause.kind == "activation"
    assert dict(cause.terms)["activation"] == pytest.approx(1.8)
    assert cause.explained_fraction == pytest.approx(0.9)


def test_terms_that_account_for_it_together_are_named() -> None:
    cause = cause_of(row(term("activation", 1.0, 1.9), term("non_torch", 0.1, 1.0)))

    assert cause.kind == "several"
    assert dict(cause.terms) == {"activation": pytest.approx(0.9), "non_torch": pytest.approx(0.9)}


def test_a_term_that_is_off_the_other_way_is_no_cause() -> None:
    assert cause_of(row(term("weights", 7.0, 5.0))).kind == "unexplained"


def test_what_no_printed_term_accounts_for_is_unexplained_with_its_size() -> None:
    cause = cause_of(row(term("weights", 5.0, 5.1)))

    assert cause.kind == "unexplained"
    assert [name for name, _ in cause.terms] == ["weights"]
    assert cause.unexplained_gib == pytest.approx(1.9)


def test_a_unified_memory_is_named_as_a_possibility() -> None:
    assert cause_of(row(gpu="DGX Spark (GB10)")).suspicion == "system_memory"


def test_constants_of_one_row_are_named_as_a_possibility() -> None:
    assert cause_of(row(fitted_class="H200 TP 8 (one row)")).suspicion == "thin_constants"


def test_an_ordinary_row_is_suspected_of_nothing() -> None:
    assert cause_of(row()).suspicion == ""
