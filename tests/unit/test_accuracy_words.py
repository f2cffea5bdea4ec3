"""Sentences and rows of the Accuracy page, its figures, and the peers beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pages.parts import accuracy_charts, accuracy_words
from planner.overhead_support import ConstantSupport
from planner.peers import PeerFigure, peer_figures
from planner.score import Comparison, Scored
from planner.score_causes import cause_of
from planner.score_stats import verdict_table


def scored(name: str, predicted: float, logged: float, **changed: object) -> Scored:
    pool = Comparison(name="kv_pool", predicted=predicted, logged=logged, low=predicted - 1, high=predicted + 1)
    item = Scored(
        row_id=name,
        model_id=f"org/{name}",
        family="LlamaForCausalLM",
        version="0.19.0",
        era="0.17 to 0.20",
        gpu="L4",
        tensor_parallel_size=2,
        pipeline_parallel_size=1,
        grade="A",
        group="other, version stated",
        comparisons=(pool,),
        total_gib=22.0,
        predicted_start=True,
        logged_start=True,
        source="https://example.org/log (an excerpt)",
    )
    return replace(item, **changed)


ROWS = [scored("near", 10.0, 10.1), scored("far", 8.0, 4.0), scored("none", 1.0, 1.0, comparisons=())]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0 %"),
        (0.000012, "0.001 %"),
        (0.000171, "0.017 %"),
        (0.0481, "4.81 %"),
        (1.0, "100 %"),
        (-0.25, "−25 %"),
    ],
)
def test_a_fraction_is_a_percentage_to_three_digits(value: float | None, shown: str) -> None:
    assert accuracy_words.percent(value) == shown.replace(" %", "\N{NO-BREAK SPACE}%")


def test_the_headline_counts_only_starts_that_log_a_pool() -> None:
    said = accuracy_words.headline(ROWS)

    assert said.startswith("Over 2 real starts of 2 models")
    assert said.endswith("50\N{NO-BREAK SPACE}% of them lie in the 90 % band.")


def test_without_a_pool_the_headline_says_so() -> None:
    assert accuracy_words.headline([ROWS[2]]) == "No start of these logs a KV cache pool."


def test_the_worst_start_comes_first_with_its_address() -> None:
    first, second = accuracy_words.start_rows(ROWS)

    assert (first["Start"], first["Error, %"], first["In the band"]) == ("far", 100.0, "no")
    assert first["Link"] == "https://example.org/log"
    assert first["Card"] == "2 × L4"
    assert (second["Start"], second["In the band"]) == ("near", "yes")


def test_a_source_that_is_no_address_is_only_told() -> None:
    assert accuracy_words.address(scored("a", 1.0, 1.0, source="a vendor's manual")) is None


def test_the_table_says_how_many_sources_are_addresses() -> None:
    rows = [scored("a", 1.0, 1.0, source="https://example.org/log"), scored("b", 1.0, 1.0, source="a vendor's manual")]

    assert accuracy_words.source_note(rows).startswith("1 of 2 sources are addresses")
    assert [row["Link"] for row in accuracy_words.start_rows(rows)] == ["https://example.org/log", None]


def test_a_start_leads_to_its_log_and_its_name_stays_as_it_is() -> None:
    (row,) = accuracy_words.skipped_rows([scored("a_b", 1.0, 1.0, reason="no config of <x>")])

    assert row["Start"] == "[a\\_b](https://example.org/log)"
    assert row["Why"] == "no config of \\<x\\>"


def test_the_worst_rows_state_both_pools_and_a_reason() -> None:
    row = accuracy_words.worst_rows(ROWS)[0]

    assert row["Pool"] == "predicted 8.00 GiB, logged 4.00 GiB: 100\N{NO-BREAK SPACE}%"
    assert row["Why"]


def term(name: str, predicted: float, logged: float) -> Comparison:
    return Comparison(name=name, predicted=predicted, logged=logged)


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ([term("activation", 1.0, 5.0)], "Activation peak: predicted 1.00, logged 5.00 GiB."),
        (
            [term("activation", 1.0, 3.0), term("non_torch", 0.1, 2.1)],
            "Several terms together: Activation peak +2.00 GiB, Non-torch +2.00 GiB.",
        ),
        (
            [term("weights", 5.0, 5.5)],
            "Unexplained: 3.50 GiB more left the budget than the rules know. The log prints besides: Weights +0.50 GiB.",
        ),
        ([], "Unexplained: 4.00 GiB more left the budget than the rules know. The log prints no other term."),
    ],
)
def test_a_reason_is_what_the_log_tells(terms: list[Comparison], told: str) -> None:
    item = scored("far", 8.0, 4.0)
    item = replace(item, comparisons=(*item.comparisons, *terms))

    assert accuracy_words.cause_words(item, cause_of(item)) == told


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"gpu": "DGX Spark (GB10)"}, "Memory of this card is the system's"),
        ({"group": "version not stated"}, "The release is not on record."),
        ({"fitted_class": "Strix Halo (one row)"}, "The constants rest on little: Strix Halo (one row)."),
    ],
)
def test_what_moves_such_pools_is_named_beside(changed: dict[str, object], told: str) -> None:
    item = scored("less", 4.0, 8.0, **changed)

    words = accuracy_words.cause_words(item, cause_of(item))

    assert words.startswith("Unexplained: 4.00 GiB less left the budget")
    assert told in words


def test_a_split_holds_numbers_that_sort() -> None:
    (row,) = accuracy_words.split_rows(ROWS, "Card", lambda item: item.gpu)

    assert row["Card"] == "L4"
    assert (row["Starts"], row["Models"]) == (3, 3)
    assert row["Pool, nine of ten, %"] == pytest.approx(100.0)
    assert row["Weights, median, %"] is None


def test_groups_without_a_start_have_no_row() -> None:
    assert [row["Group"] for row in accuracy_words.band_rows(ROWS)] == ["Other cards and releases, release stated"]
    assert [row["Starts (models)"] for row in accuracy_words.left_out_rows(ROWS)] == ["2 (2)"]


def test_verdicts_are_two_rows() -> None:
    failed = scored("failed", 1.0, 1.0, logged_start=False, predicted_start=False)

    started, failing = accuracy_words.verdict_rows(verdict_table([*ROWS, failed]))

    assert (started["Predicted to start"], started["Predicted to fail"]) == ("3", "0")
    assert (failing["Predicted to start"], failing["Predicted to fail"]) == ("0", "1")


def test_a_constant_says_what_stands_behind_it() -> None:
    constant = ConstantSupport(name="SOME_GIB", rows=1, models=1, source="one log, 0.26")

    assert accuracy_words.constant_lines([constant]) == ["`SOME_GIB`: one log, 0.26 (starts: 1, models: 1)"]


def test_every_peer_has_a_figure_conditions_and_a_source() -> None:
    figures = peer_figures()

    assert len(figures) >= 5
    assert all(isinstance(each, PeerFigure) for each in figures)
    assert all(each.name and each.figure and each.conditions and each.source for each in figures)
    assert len(accuracy_words.peer_rows(figures)) == len(figures)


def test_each_figure_draws_every_start_once() -> None:
    for figure in (accuracy_charts.pools(ROWS), accuracy_charts.errors(ROWS)):
        assert sum(len(trace.x) for trace in figure.data) == 2
        assert all("<b>" in text for trace in figure.data for text in trace.text)


def test_a_start_without_any_pool_left_is_drawn_at_the_edge() -> None:
    figure = accuracy_charts.pools([scored("minus", -1.0, 0.5)])

    assert min(y for trace in figure.data for y in trace.y) == pytest.approx(0.1)


def test_a_name_from_a_file_is_never_markup() -> None:
    figure = accuracy_charts.pools([scored("<img src=x>", 1.0, 1.0)])

    assert all("<img" not in text for trace in figure.data for text in trace.text)


def test_the_figure_is_told_in_words() -> None:
    told = accuracy_charts.alt(ROWS)

    assert told.startswith("2 starts; 1 of their pools lie within 1 % of the logged one.")
    assert "far" in told
    assert accuracy_charts.alt([]).startswith("0 starts")
