"""What no one should type: each bad input is one sentence at its field, and never an exception or a made-up answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).parents[2]
SMALL = "users!4~search_cards!H100 80GB SXM~most_cards!1"
OpenPage = Callable[[str], AppTest]


@pytest.fixture
def open_page() -> OpenPage:
    """Opens the Compare page from the frame at a link's comparison."""

    def open_at(fit: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=120)
        app.query_params["fit"] = fit
        app.run()
        return finished(app.switch_page("compare.py").run())

    return open_at


def finished(app: AppTest) -> AppTest:
    """The page once nothing runs beside it: prices stand below an answer."""
    deadline = time.monotonic() + 120
    while any(str(button.key).startswith("compare_stop") for button in app.button) and time.monotonic() < deadline:
        time.sleep(0.1)
        app.run()
    return app


def at_the_field(app: AppTest) -> list[str]:
    """The sentences in the sidebar's form."""
    return [error.value.replace("\\", "") for error in app.sidebar.error]


def in_place(app: AppTest) -> list[str]:
    """The sentences where the answer would stand."""
    return [error.value.replace("\\", "") for error in app.main.error]


# (view and link, what the sentence says)
OF_A_LOAD = [
    ("prompt_p50!0", "The prompt's p50 is 0 tokens"),
    ("prompt_p50!5000", "percentiles rise"),
    ("prompt_p95!599", "less than its p50 of 600"),
    ("prompt_p99!1999", "less than its p95 of 2,000"),
    ("prompt_p99!999999999999", "The prompt's p99 is 999,999,999,999 tokens"),
    ("output_p50!0", "The output's p50 is 0 tokens"),
    ("output_p50!701", "percentiles rise"),
    ("output_p95!1201", "percentiles rise"),
    ("output_p99!699", "less than its p95 of 700"),
    ("output_p99!100000001", "write a whole number from 1 to 100,000,000"),
    ("prefix_tokens!100000001", "write a whole number from 0 to 100,000,000"),
    ("most_preempted_percent!100.5", "from 0 to 100 %"),
]


@pytest.mark.parametrize("view", ["cards", "dry_run"])
@pytest.mark.parametrize(("text", "sentence"), OF_A_LOAD)
def test_an_absurd_distribution_is_said_at_its_field_and_in_the_answers_place(
    open_page: OpenPage, view: str, text: str, sentence: str
) -> None:
    app = open_page(f"view!{view}~{text}")

    assert not app.exception
    assert [sentence in error for error in at_the_field(app)] == [True]
    assert [sentence in error for error in in_place(app)] == [True]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("users!0", "The users at once are 0"),
        ("users!1000001", "The users at once are 1,000,001"),
        ("load!rate~rate!0", "The arrival rate is 0"),
        ("load!rate~rate!1000001", "The arrival rate is 1e+06"),
        ("search_cards!", "Choose at least one card"),
        ("most_cards!0", "The most cards to try are 0"),
        ("most_cards!65", "The most cards to try are 65"),
    ],
)
def test_an_absurd_search_is_said_at_its_field(open_page: OpenPage, text: str, sentence: str) -> None:
    app = open_page(f"view!cards~{text}")

    assert not app.exception
    assert [sentence in error for error in at_the_field(app)] == [True]
    assert [sentence in error for error in in_place(app)] == [True]


@pytest.mark.parametrize("text", ["most_users!0", "most_users!4097", "most_users!999999999999"])
def test_an_absurd_sweep_is_said_at_its_field(open_page: OpenPage, text: str) -> None:
    app = open_page(f"view!dry_run~{text}")

    assert not app.exception
    assert [error.startswith("The dry run goes up to") for error in at_the_field(app)] == [True]


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("users", -5, "The users at once are -5"),
        ("prompt_p50", -600, "The prompt's p50 is -600"),
        ("output_p99", -1, "The output's p99 is -1"),
        ("prefix_tokens", -1, "The shared prefix is -1"),
        ("most_cards", -8, "The most cards to try are -8"),
        ("most_preempted_percent", -0.5, "from 0 to 100 %"),
        ("most_preempted_percent", 1e12, "from 0 to 100 %"),
    ],
)
def test_a_number_that_only_the_keyboard_gives_is_said_at_its_field(
    open_page: OpenPage, field: str, value: float, sentence: str
) -> None:
    app = open_page(f"view!cards~{SMALL}")

    app.number_input(key=f"compare_{field}").set_value(value).run()

    assert not app.exception
    assert [sentence in error for error in at_the_field(app)] == [True]


@pytest.mark.parametrize("value", [-1.0, -0.001, 1e12])
def test_an_arrival_rate_that_only_the_keyboard_gives_is_said_at_its_field(open_page: OpenPage, value: float) -> None:
    app = open_page(f"view!cards~load!rate~{SMALL}")

    app.number_input(key="compare_rate").set_value(value).run()

    assert not app.exception
    assert [error.startswith("The arrival rate is") for error in at_the_field(app)] == [True]


@pytest.mark.parametrize("field", ["users", "prompt_p95", "most_cards"])
def test_an_emptied_field_is_asked_for_again(open_page: OpenPage, field: str) -> None:
    app = open_page(f"view!cards~{SMALL}")

    app.number_input(key=f"compare_{field}").set_value(None).run()

    assert not app.exception
    assert ["write a whole number from 1" in error for error in at_the_field(app)] == [True]


@pytest.mark.parametrize("currency", ["", "   ", "12", "<script>", "a very long name", "US$1", "€\x00", "**USD**"])
def test_an_unknown_currency_is_said_at_its_field(open_page: OpenPage, currency: str) -> None:
    app = open_page(f"view!cards~{SMALL}")

    app.text_input(key="compare_currency").set_value(currency).run()

    assert not app.exception
    assert any("cannot be read" in error for error in in_place(app))


@pytest.mark.parametrize("price", ["-1", "cheap", "NaN", "inf", "1e400", "1000001", "0,30", "<b>1</b>"])
def test_a_bad_price_of_energy_is_said_at_its_field(open_page: OpenPage, price: str) -> None:
    app = open_page(f"view!cards~{SMALL}")

    app.text_input(key="compare_per_kilowatt_hour").set_value(price).run()

    assert not app.exception
    assert any(error.startswith("The price of a kWh is") for error in in_place(app))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"per_hour": -1.0, "power_limit_watts": None}, "The price of H100 80GB SXM is -1"),
        ({"per_hour": 1e12, "power_limit_watts": None}, "The price of H100 80GB SXM is 1000000000000"),
        ({"per_hour": float("inf"), "power_limit_watts": None}, "The price of H100 80GB SXM is inf"),
        ({"per_hour": None, "power_limit_watts": 0}, "The power limit of H100 80GB SXM is 0"),
        ({"per_hour": None, "power_limit_watts": -350}, "The power limit of H100 80GB SXM is -350"),
        ({"per_hour": None, "power_limit_watts": 1e9}, "The power limit of H100 80GB SXM is 1000000000"),
    ],
)
def test_a_bad_cell_of_the_price_table_is_said_below_it(
    open_page: OpenPage, row: dict[str, float], sentence: str
) -> None:
    app = open_page(f"view!cards~{SMALL}")
    app.session_state["compare_price_rows"] = {"H100 80GB SXM": row}
    del app.session_state["compare_price_start"]

    app.run()

    assert not app.exception
    assert any(sentence in error for error in in_place(app))
    assert "no price given" in "\n".join(each.value for each in app.markdown)
