"""A reconciliation's words and figure: signs, units, bands, what is missing."""

from __future__ import annotations

import pytest

from pages.parts import calibrate_charts, calibrate_words
from planner.measured_start import MeasuredRank, MeasuredStart, printed_gib
from planner.model_catalog import catalogue_documents
from planner.planning import answer
from planner.reconcile import ComparedTerm, Identity, Reconciliation, reconcile
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB


def term(predicted: float, measured: float, unit: str = "bytes", half: float = 0.0) -> ComparedTerm:
    return ComparedTerm(
        name="kv_pool",
        unit=unit,  # type: ignore[arg-type]  # one of the units, from the tables below
        predicted=predicted,
        low=predicted - half,
        high=predicted + half,
        measured=measured,
        measured_low=measured,
        measured_high=measured,
    )


@pytest.fixture(scope="module")
def found() -> Reconciliation:
    flags = EngineFlags(max_model_len=8192, gpu_memory_utilization=0.95)
    request = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="H100 80GB SXM", vllm_version="0.19.0", flags=flags)
    plan, _ = answer(request, catalogue_documents("Qwen/Qwen3-8B"))

    def gib(value: float) -> object:
        return printed_gib(value, "a test's start")

    ranks = tuple(
        MeasuredRank(rank=f"TP{place}", weights=gib(15.27), non_torch=gib(0.75), kv_pool=gib(pool))  # type: ignore[arg-type]
        for place, pool in enumerate((57.0, 56.5))
    )
    return reconcile(plan, MeasuredStart(source="a.log", version="0.19.0", model_name="Qwen/Qwen3-8B", ranks=ranks))


@pytest.mark.parametrize(
    ("each", "error", "percent"),
    [
        (term(10 * GIB, 10.5 * GIB), "+0.50 GiB", "+5.0 %"),
        (term(10 * GIB, 9.5 * GIB), "−0.50 GiB", "−5.0 %"),
        (term(10 * GIB, 10 * GIB - 1), "0.00 GiB", "0.0 %"),
        (term(1000, 900, "tokens"), "−100", "−10.0 %"),
        (term(50.0, 50.25, "requests"), "+0.25", "+0.5 %"),
        (term(0.0, GIB), "+1.00 GiB", "–"),
    ],
)
def test_an_error_has_its_sign_and_a_zero_has_none(each: ComparedTerm, error: str, percent: str) -> None:
    assert calibrate_words.error(each) == error
    assert calibrate_words.error_percent(each) == percent


def test_a_band_is_said_in_its_unit() -> None:
    assert calibrate_words.span(term(2 * GIB, 0, half=GIB / 2)) == "1.50 to 2.50 GiB"
    assert calibrate_words.span(term(1000, 0, "tokens", half=10)) == "990 to 1,010"
    assert calibrate_words.span(term(1000, 0, "tokens")) == "exact"


def test_the_line_that_was_read_names_model_release_and_pool(found: Reconciliation) -> None:
    line = calibrate_words.read_line(found)

    assert line.startswith("Read: Qwen3-8B, vLLM 0.19.0, TP 1.")
    assert "measured 56.50 GiB" in line
    assert "outside the band" in line


def test_rows_name_the_rank_where_there_are_several(found: Reconciliation) -> None:
    names = [row["Term"] for row in calibrate_words.term_rows(found)]

    assert names[:3] == ["Weights · TP1", "Outside PyTorch · TP1", "KV cache pool · TP1"]


def test_an_identity_says_what_is_missing_or_left(found: Reconciliation) -> None:
    missing = calibrate_words.identity_line(found.identity)
    left = calibrate_words.identity_line(Identity(formula="a = b", difference_bytes=GIB))

    assert "does not print activation peak" in missing
    assert "1.00 GiB are left" in left


def test_the_figure_has_a_dot_a_term_on_the_side_where_it_lies(found: Reconciliation) -> None:
    figure = calibrate_charts.error_figure(found)

    inside, outside = figure.data
    assert list(inside.y) == ["Weights"]
    assert list(outside.y) == ["Outside PyTorch", "KV cache pool"]
    assert outside.x[0] == pytest.approx(0.5, abs=0.01)
    assert outside.x[1] < -0.9
    assert len([shape for shape in figure.layout.shapes if shape.line.width > 5]) == 3


def test_the_alternative_text_tells_each_error(found: Reconciliation) -> None:
    assert "KV cache pool −1.0" in calibrate_charts.error_alt(found)
