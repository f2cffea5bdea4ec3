"""Prices are the user's own: read exactly, refused with a sentence, never made up."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.facts import PlanError
from planner.prices import read_currency, read_prices


def test_no_price_gives_no_cost() -> None:
    prices = read_prices("EUR", [{"card": "L4", "per_hour": None, "power_limit_watts": None}])

    assert prices.cost_per_hour("L4", 4) is None
    assert prices.cost_per_hour("a card that is not in the table", 1) is None
    assert prices.watts("L4", 4) is None


def test_cost_and_power_grow_with_the_cards_without_rounding() -> None:
    prices = read_prices("$", [{"card": "L4", "per_hour": "0.1", "power_limit_watts": 72}])

    assert prices.cost_per_hour("L4", 3) == Decimal("0.3")
    assert prices.watts("L4", 3) == 216


@pytest.mark.parametrize("given", [float("nan"), "", None])
def test_an_empty_cell_is_no_price(given: object) -> None:
    assert read_prices("EUR", [{"card": "L4", "per_hour": given}]).cost_per_hour("L4", 1) is None


@pytest.mark.parametrize("given", [-1, "free", float("inf"), 10**9, "1e400"])
def test_a_bad_price_is_refused_with_its_card(given: object) -> None:
    with pytest.raises(PlanError, match="L4") as caught:
        read_prices("EUR", [{"card": "L4", "per_hour": given}])

    assert caught.value.field == "per_hour"


@pytest.mark.parametrize("given", [0, -5, "hot", 10**9])
def test_a_bad_power_limit_is_refused(given: object) -> None:
    with pytest.raises(PlanError) as caught:
        read_prices("EUR", [{"card": "L4", "power_limit_watts": given}])

    assert caught.value.field == "power_limit_watts"


@pytest.mark.parametrize("name", ["$", "EUR", "¥", "元", " Swiss francs "])
def test_any_word_or_sign_is_a_currency(name: str) -> None:
    assert read_currency(name) == name.strip()


@pytest.mark.parametrize("name", ["", "   ", "<b>x</b>", "12", "A much too long word", "$\n"[:1] + "\x00"])
def test_what_is_no_currency_is_refused_at_its_field(name: str) -> None:
    with pytest.raises(PlanError) as caught:
        read_currency(name)

    assert caught.value.field == "currency"
