"""Numbers and names as a reader sees them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pages.parts import words
from planner.answer import Plan
from planner.facts import Basis, Estimate, Finding
from planner.units import GIB, KIB, MIB

EXACT = Basis(kind="read", note="config.json")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (15.04, "15.0"),
        (0.01234, "0.0123"),
        (123.4, "123"),
        (1234.4, "1,234"),
        (12345678, "12,345,678"),
        (-3.25, "−3.25"),
        (9.996, "10.00"),
    ],
)
def test_numbers_show_three_digits(value: float, shown: str) -> None:
    assert words.three_digits(value) == shown


def test_capacities_round_down_and_needs_up() -> None:
    assert words.gib(int(15.049 * GIB), "down") == "15.0 GiB"
    assert words.gib(int(15.001 * GIB), "up") == "15.1 GiB"


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [(2 * MIB, "2.00 MiB"), (128 * KIB, "128 KiB"), (656, "656 bytes"), (3 * GIB, "3.00 GiB")],
)
def test_small_sizes_take_the_unit_they_are_read_best_in(num_bytes: int, shown: str) -> None:
    assert words.small_bytes(num_bytes) == shown


def test_exact_bytes_keep_every_digit() -> None:
    assert words.exact_bytes(16_060_522_496) == "16,060,522,496 bytes"


def test_a_band_widens_when_it_is_rounded() -> None:
    estimate = Estimate(best_bytes=10 * GIB, low_bytes=int(9.999 * GIB), high_bytes=int(10.01 * GIB), basis=EXACT)

    assert words.band(estimate) == "9.99 to 10.1 GiB"


def test_a_single_value_has_no_band() -> None:
    assert words.band(Estimate.exact(GIB, EXACT)) == "exact"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "none"),
        (True, "on"),
        (False, "off"),
        (131072, "131,072"),
        (0.92, "0.92"),
        ("auto", "auto"),
        ((), "none"),
        ((1, 2, 4), "1, 2, 4"),
        (tuple(range(1, 52)), "1, 2, 3, 4, … 51 (51 values)"),
    ],
)
def test_flag_values_are_written_as_a_reader_would(value: object, shown: str) -> None:
    assert words.shown_value(value) == shown


def test_markdown_in_foreign_text_is_shown_and_not_interpreted() -> None:
    assert words.plain("a_b [x](y) $1$") == r"a\_b \[x\]\(y\) \$1\$"


def test_a_tooltip_holds_bytes_band_formula_and_basis(fitting_plan: Plan) -> None:
    text = words.estimate_help(fitting_plan.ranks[0].activation)

    assert "2,147,483,648 bytes" in text
    assert "between 1,610,612,736 bytes and 2,684,354,560 bytes" in text
    assert r"1 \+ 1" in text
    assert r"derived by formula\: a formula" in text


def test_concurrency_is_rounded_as_in_the_log_and_its_band_outwards() -> None:
    assert words.concurrency(3.126) == "3.13×"
    assert words.concurrency_band(2.999, 3.001) == "2.99 to 3.01×"


def test_a_subject_counts_all_cards(fitting_plan: Plan) -> None:
    flags = replace(fitting_plan.request.flags, tensor_parallel_size=4, pipeline_parallel_size=2)
    plan = replace(fitting_plan, request=replace(fitting_plan.request, flags=flags))

    assert words.subject(plan) == "model-8b on 8 × Card 80 · vLLM 0.33.0 (era 0.32 and newer)"


def test_the_band_decides_between_yes_and_probably(fitting_plan: Plan, failing_plan: Plan) -> None:
    near_edge = replace(fitting_plan, pool_low=failing_plan.pool)
    near_start = replace(failing_plan, pool_high=fitting_plan.pool)

    assert words.start_word(fitting_plan) == "yes"
    assert words.start_word(near_edge) == "probably"
    assert words.start_word(near_start) == "probably not"
    assert words.start_word(failing_plan) == "no"


def test_every_part_has_a_colour_of_its_own() -> None:
    places = [words.colour_index(part.name) for part in words.PARTS] + [words.colour_index("never heard of")]

    assert places == list(range(words.NUM_COLOURS))


def test_an_unknown_part_is_called_by_its_name() -> None:
    assert words.part_words("lora_slots").label == "Lora slots"


def test_a_finding_names_its_flag() -> None:
    finding = Finding(code="x", severity="warning", text="y", field="max_model_len")

    assert words.finding_title(finding) == "Warning · --max-model-len"
