"""Constants say how much stands behind them; those of one row or one model are marked."""

from __future__ import annotations

import re
from pathlib import Path

from planner import overhead_constants as constants
from planner import overhead_support
from planner.overhead_constants import Constant
from planner.overhead_support import constant_support, thin_constants


def test_every_counted_constant_exists() -> None:
    assert [each.name for each in constant_support() if not hasattr(constants, each.name)] == []


def test_a_single_row_or_model_is_marked_in_the_note() -> None:
    one_row = Constant(best=1, low=0, high=2, source="a card", rows=1, models=1)
    one_model = Constant(best=1, low=0, high=2, source="a card", rows=3, models=1)

    assert one_row.support == "one row"
    assert one_model.support == "3 rows of one model"


def test_what_the_code_calls_one_row_is_among_the_thin_ones() -> None:
    text = Path(constants.__file__).read_text(encoding="utf-8")
    named = re.findall(r"^(\w+) = .*\(one row\)|^(\w+) = \(\n.*\(one row\)", text, re.MULTILINE)

    said = {first or second for first, second in named}
    assert said
    assert said <= {each.name for each in thin_constants()}


def test_no_constant_is_counted_twice() -> None:
    names = [each.name for each in constant_support()]

    assert len(names) == len(set(names))
    assert overhead_support.thin_constants()
