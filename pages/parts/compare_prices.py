"""What cards cost and draw: the reader's own prices, from a table that starts empty, and each card's power limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pandas as pd
import streamlit as st

from pages.parts import compare_state, problems
from pages.parts.compare_state import key
from pages.parts.language import t
from planner.facts import PlanError
from planner.gpu_catalog import find_gpu
from planner.prices import (
    HOURS_A_MONTH,
    PowerLimit,
    PriceTable,
    power_limit,
    read_currency,
    read_energy_price,
    read_prices,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Prices and limits in words. `prices` is None where what was typed cannot be read; the limits are known all the same."""

    prices: PriceTable | None
    enforced_watts: Mapping[str, int]  # by this machine's driver

    def limit(self, card: str) -> PowerLimit | None:
        """The most that one card draws, and who says so; None: not known."""
        given = None if self.prices is None else self.prices.given_watts(card)
        return power_limit(find_gpu(card), given, self.enforced_watts.get(card))

    def cost(self, card: str, num_cards: int) -> str:
        """What the cards cost an hour and a month, or that no price was given."""
        cost = None if self.prices is None else self.prices.cost_per_hour(card, num_cards)
        if cost is None or self.prices is None:
            return t("no price given")
        return t(
            "{hour} {currency} an hour, {month} a month",
            hour=_money(cost),
            currency=self.prices.currency,
            month=_money(cost * HOURS_A_MONTH),
        )

    def power(self, card: str, num_cards: int) -> str:
        """The most that the cards draw and the energy of an hour, with its price where one was given."""
        limit = self.limit(card)
        if limit is None:
            return t("power not known: type it")
        watts, energy = f"{limit.watts_of(num_cards):,} W", f"{limit.kilowatt_hours(num_cards):.3g} kWh"
        told = t("at most {watts}, {energy} an hour", watts=watts, energy=energy)
        cost = None if self.prices is None else self.prices.energy_cost(limit, num_cards)
        if cost is None or self.prices is None:
            return told
        return t("{power} for {cost} {currency}", power=told, cost=_money(cost), currency=self.prices.currency)

    def power_note(self, card: str) -> str:
        """Who says how much one card draws; empty where nobody does."""
        limit = self.limit(card)
        if limit is None:
            return ""
        each = f"{limit.watts:,} W"
        if limit.origin == "given":
            return t("{watts} a card, as you gave", watts=each)
        if limit.origin == "driver":
            return t("{watts} a card, the limit that this machine's driver enforces", watts=each)
        return t("{watts} a card, the maker's maximum board power; the limit set on a card may be lower", watts=each)

    def power_source(self, card: str) -> str:
        """Where the maker's figure was read; empty where another one counts."""
        limit = self.limit(card)
        return "" if limit is None else limit.source


def form(cards: Sequence[str]) -> Bill:
    """Draw the table of prices and limits; what it says."""
    enforced = {card: watts for card in cards if (watts := compare_state.enforced_watts(card)) is not None}
    with st.expander(t("Prices and power, your own figures"), icon=":material/payments:", key=key("group_prices")):
        left, right = st.columns(2)
        with left:
            currency = st.text_input(t("Currency"), key=key("currency"), max_chars=40, persist_state="session") or ""
            _say(lambda: read_currency(currency), "currency")
        with right:
            energy = st.text_input(
                t("Price of a kWh"),
                key=key("per_kilowatt_hour"),
                max_chars=40,
                placeholder="–",
                persist_state="session",
            )
            _say(lambda: read_energy_price(_number(energy)), "per_kilowatt_hour")
        edited = st.data_editor(
            _frame(cards),
            key=key("price_table"),
            column_config=_columns(),
            num_rows="fixed",
            disabled=("known_watts", "known_from"),
        ).reset_index()
        st.caption(
            t(
                "No price is known here but those you give. A card's limit is its maker's maximum board power, or what this "
                "machine's driver enforces; your own watts go before both."
            )
        )
        rows: list[Mapping[str, Any]] = [
            {str(name): each for name, each in row.items()} for row in edited.to_dict("records")
        ]
        compare_state.hold_price_rows(rows)
        prices = None
        try:
            prices = read_prices(currency, rows, _number(energy))
        except PlanError as error:
            problems.say(error, "per_hour", "power_limit_watts")
    return Bill(prices=prices, enforced_watts=enforced)


def _say(read: Any, field: str) -> None:  # any reader of one field
    try:
        read()
    except PlanError as error:
        problems.say(error, field)


def _number(typed: str | None) -> str | None:
    return (typed or "").strip() or None


def _frame(cards: Sequence[str]) -> pd.DataFrame:
    """What was typed for `cards` before. Each row goes by its card's name: by its place, a price would pass to another card."""
    rows = pd.DataFrame(compare_state.price_rows(cards), columns=["card", "per_hour", "power_limit_watts"])
    frame = rows.set_index("card").astype("float64")
    known = [power_limit(find_gpu(card), None, compare_state.enforced_watts(card)) for card in cards]
    frame["known_watts"] = pd.array([None if limit is None else limit.watts for limit in known], dtype="Int64")
    frame["known_from"] = [_origin(limit) for limit in known]
    return frame


def _origin(limit: PowerLimit | None) -> str:
    if limit is None:
        return t("not known: type it")
    return (
        t("this machine's driver")
        if limit.origin == "driver"
        else t("the maker's maximum, by {source}", source=limit.source)
    )


def _columns() -> dict[Any, Any]:
    return {
        "card": st.column_config.TextColumn(t("Card"), width="medium"),
        "per_hour": st.column_config.NumberColumn(t("Price of an hour")),
        "power_limit_watts": st.column_config.NumberColumn(t("Your power limit, W")),
        "known_watts": st.column_config.NumberColumn(t("Known limit, W")),
        "known_from": st.column_config.TextColumn(t("Who says so")),
    }


def _money(amount: Decimal) -> str:
    return f"{amount:,.2f}"
