"""Prices are the user's own: read exactly, refused with a sentence, never made up."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.facts import PlanError
from planner.gpu_catalog import find_gpu, gpu_names
from planner.prices import power_limit, read_currency, read_energy_price, read_prices


def test_no_price_gives_no_cost() -> None:
    prices = read_prices("EUR", [{"card": "L4", "per_hour": None, "power_limit_watts": None}])

    assert prices.cost_per_hour("L4", 4) is None
    assert prices.cost_per_hour("a card that is not in the table", 1) is None
    assert prices.given_watts("L4") is None


def test_cost_and_power_grow_with_the_cards_without_rounding() -> None:
    prices = read_prices("$", [{"card": "L4", "per_hour": "0.1", "power_limit_watts": 72}])

    assert prices.cost_per_hour("L4", 3) == Decimal("0.3")
    assert prices.given_watts("L4") == 72


@pytest.mark.parametrize("given", [float("nan"), "", None])
def test_an_empty_cell_is_no_price(given: object) -> None:
    assert read_prices("EUR", [{"card": "L4", "per_hour": given}]).cost_per_hour("L4", 1) is None


@pytest.mark.parametrize("given", [-1, "free", float("inf"), 10**9, "1e400"])
def test_a_bad_price_is_refused_with_its_card(given: object) -> None:
    with pytest.raises(PlanError, match="L4") as caught:
        read_prices("EUR", [{"card": "L4", "per_hour": given}])

    assert caught.value.field == "per_hour"


@pytest.mark.parametrize("given", ["0.4", 0, -5, "hot", 10**9])
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


def test_the_limit_of_a_card_is_the_users_then_the_drivers_then_the_data_sheets() -> None:
    card = find_gpu("L40S")

    given, enforced, printed = power_limit(card, 300, 275), power_limit(card, None, 275), power_limit(card, None)

    assert given is not None
    assert enforced is not None
    assert printed is not None
    assert [(each.watts, each.origin) for each in (given, enforced, printed)] == [
        (300, "given"),
        (275, "driver"),
        (350, "data_sheet"),
    ]
    assert "aiconfigurator" in printed.source


def test_a_card_without_a_public_figure_has_no_limit_but_the_users() -> None:
    card = find_gpu("A10G")

    assert power_limit(card, None) is None
    assert power_limit(card, 150) is not None


@pytest.mark.parametrize("name", gpu_names())
def test_every_printed_limit_names_its_source(name: str) -> None:
    card = find_gpu(name)

    assert (card.max_board_power_watts is None) == (card.power_source == "")
    assert card.max_board_power_watts is None or 15 <= card.max_board_power_watts <= 1500


def test_a_device_that_is_half_a_module_draws_half_of_it() -> None:
    assert find_gpu("Instinct MI250X").max_board_power_watts == 280


def test_energy_of_an_hour_costs_its_kilowatt_hours() -> None:
    limit = power_limit(find_gpu("H100 80GB SXM"), None)
    prices = read_prices("EUR", [], "0.30")

    assert limit is not None
    assert limit.watts_of(8) == 5600
    assert limit.kilowatt_hours(8) == Decimal("5.6")
    assert prices.energy_cost(limit, 8) == Decimal("1.68")
    assert read_prices("EUR", []).energy_cost(limit, 8) is None


@pytest.mark.parametrize("given", [-0.1, "cheap", float("inf"), 10**9, "1e400", "NaN"])
def test_a_bad_price_of_energy_is_refused_at_its_field(given: object) -> None:
    with pytest.raises(PlanError) as caught:
        read_energy_price(given)

    assert caught.value.field == "per_kilowatt_hour"
