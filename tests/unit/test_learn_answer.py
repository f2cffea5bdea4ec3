"""Answers as learners type them: numbers of any country, units, and what is no answer."""

from __future__ import annotations

import pytest

from pages.parts.learn_answer import read_answer
from planner.facts import PlanError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4.5", 4.5),
        ("4,5", 4.5),
        (" 4.5 ", 4.5),
        ("4.5 GiB", 4.5),
        ("4.5GiB", 4.5),
        ("4.5 gib", 4.5),
        ("4608 MiB", 4.5),
        ("4,608 MiB", 4.5),
        ("4 608 MiB", 4.5),
        ("4831838208 bytes", 4.5),
        ("4,831,838,208 B", 4.5),
        ("4831838208 字节", 4.5),
        ("4.831838208 GB", 4.5),
        ("4,831838208 GB", 4.5),
        ("0.00439453125 TiB", 4.5),
        ("４．５ＧｉＢ", 4.5),
        ("≈ 4.5", 4.5),
        ("约 4.5 GiB", 4.5),
        ("4.5 GiB.", 4.5),
        ("4.5。", 4.5),
        ("+4.5", 4.5),
        ("-4.5", -4.5),
        ("−4.5 GiB", -4.5),
        ("45e-1", 4.5),
        ("1,048,576", 1_048_576),
        ("1.048.576", 1_048_576),
        ("1,234.5", 1_234.5),
        ("1.234,5", 1_234.5),
        ("24.", 24),
        (".5", 0.5),
        ("0,125", 0.125),
        ("0", 0),
    ],
)
def test_number_of_bytes_is_read_in_the_exercises_unit(text: str, number: float) -> None:
    assert read_answer(text, "GiB") == pytest.approx(number)


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("15,000", "tokens", 15_000),
        ("15k", "tokens", 15_000),
        ("15 K tokens", "tokens", None),
        ("10 blocks", "blocks", 10),
        ("1 block", "blocks", 1),
        ("10 个块", "块", 10),
        ("10 块", "块", 10),
        ("10 GiB", "blocks", None),
    ],
)
def test_counts_take_their_own_unit_alone(text: str, unit: str, number: float | None) -> None:
    if number is None:
        with pytest.raises(PlanError, match="does not fit here: answer in"):
            read_answer(text, unit)
    else:
        assert read_answer(text, unit) == number


@pytest.mark.parametrize("text", ["", "   ", "。"])
def test_nothing_is_asked_for(text: str) -> None:
    with pytest.raises(PlanError, match="Give an answer first"):
        read_answer(text, "GiB")


@pytest.mark.parametrize(
    "text",
    [
        "much",
        "GiB",
        "1.2.3",
        "1,2,3",
        "4..5",
        "nan",
        "inf",
        "1e999",
        "2*32*8",
        "4-5",
        "1/2",
        "9" * 60,
        "<b>4</b>",
        "10²",
        "②",
    ],
)
def test_what_is_no_number_is_said_to_be_none(text: str) -> None:
    with pytest.raises(PlanError, match=r"is no number|does not fit"):
        read_answer(text, "GiB")


@pytest.mark.parametrize("text", ["4.5 G", "4.5 K", "4.5 %", "4.5 tokens"])
def test_unit_that_may_mean_two_things_is_asked_for(text: str) -> None:
    with pytest.raises(PlanError, match="does not fit here: answer in GiB"):
        read_answer(text, "GiB")
