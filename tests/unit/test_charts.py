"""Figures as values: what is drawn where, with which words."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from pages.parts import charts, words
from planner.answer import Plan
from planner.units import GIB

ROOT = Path(__file__).parents[2]


def _bars(figure: object) -> list[tuple[str, float, float]]:
    """(row, start, length) of every bar, in GiB."""
    return [
        (row, start, length)
        for trace in figure.data  # type: ignore[attr-defined]
        for row, start, length in zip(trace.y, trace.base, trace.x, strict=True)
    ]


def test_each_bar_starts_where_the_one_before_ended(fitting_plan: Plan) -> None:
    bars = sorted(_bars(charts.budget_waterfall(fitting_plan.ranks[0])), key=lambda bar: (bar[1], bar[2]))

    ends = [start + length for _, start, length in bars]
    assert [start for _, start, _ in bars] == pytest.approx([0, *ends[:-1]])
    assert ends[-1] == pytest.approx(80)


def test_a_part_that_holds_nothing_is_not_drawn(fitting_plan: Plan) -> None:
    rows = [row for row, _, _ in _bars(charts.budget_waterfall(fitting_plan.ranks[0]))]

    assert not any("Other processes" in row for row in rows)
    assert any("CUDA context" in row for row in rows)


def test_parts_inside_the_budget_come_first(fitting_plan: Plan) -> None:
    names = [line.name for line in charts.ordered_lines(fitting_plan.ranks[0])]

    assert names == ["weights", "activation", "non_torch", "cuda_graphs", "kv_pool", "context", "unreserved"]


def test_bands_are_drawn_at_the_end_of_a_bar(fitting_plan: Plan) -> None:
    trace = charts.budget_waterfall(fitting_plan.ranks[0]).data[words.colour_index("activation")]

    assert tuple(trace.error_x.array) == (0.5,)
    assert tuple(trace.error_x.arrayminus) == (0.5,)


def test_missing_memory_is_hatched_and_says_so(failing_plan: Plan) -> None:
    rank = failing_plan.ranks[0]
    trace = charts.budget_waterfall(rank).data[words.colour_index("kv_pool")]

    assert tuple(trace.x) == (-3.0,)
    assert tuple(trace.marker.pattern.shape) == ("x",)
    assert "−3.00 GiB" in trace.y[0]
    assert "3.00 GiB are missing" in charts.budget_alt(rank)


def test_what_lies_outside_the_budget_is_hatched(fitting_plan: Plan) -> None:
    figure = charts.budget_waterfall(fitting_plan.ranks[0])

    assert tuple(figure.data[words.colour_index("unreserved")].marker.pattern.shape) == ("/",)
    assert tuple(figure.data[words.colour_index("weights")].marker.pattern.shape) == ("",)


def test_hover_holds_formula_exact_bytes_and_basis(fitting_plan: Plan) -> None:
    text = charts.hover_text(fitting_plan.ranks[0].lines[1])

    assert "2,147,483,648 bytes" in text
    assert "= 1 + 1" in text
    assert "Derived by formula: a formula" in text


def test_hover_escapes_what_others_wrote(fitting_plan: Plan) -> None:
    line = fitting_plan.ranks[0].lines[0]
    hostile = type(line)(name="<script>", estimate=line.estimate)

    assert "<script>" not in charts.hover_text(hostile).lower()


def test_the_card_and_the_budget_are_marked(fitting_plan: Plan) -> None:
    texts = [note.text for note in charts.budget_waterfall(fitting_plan.ranks[0]).layout.annotations]

    assert texts == ["card 80.0 GiB", "vLLM's share 68.0 GiB"]


def test_each_stage_is_a_bar_and_the_bounding_one_is_named(staged_plan: Plan) -> None:
    figure = charts.rank_bars(staged_plan)

    pool = figure.data[words.colour_index("kv_pool")]
    assert tuple(pool.x) == (50.0, 45.0)
    assert pool.y == ("Stage 0 · 32 layers", "Stage 1 · 32 layers<br>sets the pool")
    assert charts.ranks_alt(staged_plan).startswith("Pipeline stage 1 bounds")


def test_narrow_segments_carry_no_label(staged_plan: Plan) -> None:
    figure = charts.rank_bars(staged_plan)

    assert set(figure.data[words.colour_index("non_torch")].text) == {""}
    assert "Weights<br>15.0 GiB" in figure.data[words.colour_index("weights")].text


def test_alternative_text_lists_every_part(fitting_plan: Plan) -> None:
    text = charts.budget_alt(fitting_plan.ranks[0])

    assert text.startswith("Of a card of 80.0 GiB, 50.0 GiB are left for the KV cache.")
    assert "Weights 15.0 GiB (exact)" in text


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_theme_has_a_colour_for_every_part(mode: str) -> None:
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]

    colours = theme[mode]["chartCategoricalColors"]
    assert len(colours) == len(set(colours)) == words.NUM_COLOURS


def test_lines_add_up_to_the_card(fitting_plan: Plan) -> None:
    total = sum(line.estimate.best_bytes for line in charts.ordered_lines(fitting_plan.ranks[0]))

    assert total == 80 * GIB
