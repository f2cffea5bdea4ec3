"""What cards cost, by the user's own figures, and the most they draw: the user's, the driver's or the data sheet's."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from planner.facts import PlanError
from planner.gpu_catalog import GpuFacts

HOURS_A_MONTH = 730  # 8760 / 12
_MOST_PRICE = Decimal(1_000_000)
_MOST_WATTS = 100_000
_WATTS_A_KILOWATT = 1000
_LONGEST_CURRENCY = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPrice:
    """The price of one card for an hour, and the most it draws; None where the user gave none."""

    card: str
    per_hour: Decimal | None = None
    power_limit_watts: int | None = None


PowerOrigin = Literal["given", "driver", "data_sheet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimit:
    """The most that one card draws, and who says so."""

    watts: int
    origin: PowerOrigin
    source: str = ""  # of a data sheet's figure

    def watts_of(self, num_cards: int) -> int:
        """The most that `num_cards` draw together: a bound, since no load holds all of them at their limit."""
        return self.watts * num_cards

    def kilowatt_hours(self, num_cards: int) -> Decimal:
        """The energy of `num_cards` at their limit for an hour."""
        return Decimal(self.watts_of(num_cards)) / _WATTS_A_KILOWATT


def power_limit(gpu: GpuFacts, given_watts: int | None, enforced_watts: int | None = None) -> PowerLimit | None:
    """The limit of one card: what the user gave, else what the driver holds it to, else its data sheet's; None: not known."""
    if given_watts is not None:
        return PowerLimit(watts=given_watts, origin="given")
    if enforced_watts is not None:
        return PowerLimit(watts=enforced_watts, origin="driver")
    if gpu.max_board_power_watts is not None:
        return PowerLimit(watts=gpu.max_board_power_watts, origin="data_sheet", source=gpu.power_source)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """Prices in one currency, which is whatever the user calls it."""

    currency: str
    cards: tuple[CardPrice, ...] = ()
    per_kilowatt_hour: Decimal | None = None

    def cost_per_hour(self, card: str, num_cards: int) -> Decimal | None:
        """The price of `num_cards` for an hour; None where no price was given."""
        found = self._of(card)
        return None if found is None or found.per_hour is None else found.per_hour * num_cards

    def given_watts(self, card: str) -> int | None:
        """The power limit of one card that the user gave; None where none was."""
        found = self._of(card)
        return None if found is None else found.power_limit_watts

    def energy_cost(self, limit: PowerLimit, num_cards: int) -> Decimal | None:
        """The price of the energy of `num_cards` at their limit for an hour; None where no price was given."""
        price = self.per_kilowatt_hour
        return None if price is None else price * limit.kilowatt_hours(num_cards)

    def _of(self, card: str) -> CardPrice | None:
        return next((price for price in self.cards if price.card == card), None)


def read_prices(currency: str, rows: Iterable[Mapping[str, object]], per_kilowatt_hour: object = None) -> PriceTable:
    """The table that the user typed: rows of `card`, `per_hour`, `power_limit_watts`; raises `PlanError` at the bad cell."""
    return PriceTable(
        currency=read_currency(currency),
        cards=tuple(_row(row) for row in rows if row.get("card")),
        per_kilowatt_hour=read_energy_price(per_kilowatt_hour),
    )


def read_energy_price(given: object) -> Decimal | None:
    """The price of a kilowatt-hour; None where none was given; raises `PlanError` for what is none."""
    if _is_empty(given):
        return None
    price = _decimal(given)
    if not 0 <= price <= _MOST_PRICE:
        text = f"The price of a kWh is {str(given)[:30]}; write a number from 0 to {_MOST_PRICE:,}."
        raise PlanError("per_kilowatt_hour", given, text)
    return price


def read_currency(text: str) -> str:
    """`text` as the name of a currency: a sign or a short word such as $, EUR, ¥, 元."""
    name = text.strip()
    kinds = {unicodedata.category(sign) for sign in name}
    is_word = all(kind.startswith("L") or kind in {"Sc", "Zs"} for kind in kinds) and kinds != {"Zs"}
    if not name or len(name) > _LONGEST_CURRENCY or not is_word:
        allowed = f"write a sign or a word of at most {_LONGEST_CURRENCY} letters, such as $, EUR or ¥."
        raise PlanError("currency", text, f"The currency {text[:20]!r} cannot be read; {allowed}")
    return name


def _row(row: Mapping[str, object]) -> CardPrice:
    card = str(row["card"])
    return CardPrice(card=card, per_hour=_price(card, row.get("per_hour")), power_limit_watts=_watts(card, row))


def _price(card: str, given: object) -> Decimal | None:
    if _is_empty(given):
        return None
    price = _decimal(given)
    if not 0 <= price <= _MOST_PRICE:
        text = f"The price of {card} is {str(given)[:30]}; write a number from 0 to {_MOST_PRICE:,} for an hour of one card."
        raise PlanError("per_hour", given, text)
    return price


def _watts(card: str, row: Mapping[str, object]) -> int | None:
    given = row.get("power_limit_watts")
    if _is_empty(given):
        return None
    try:
        watts = float(str(given))
    except ValueError:
        watts = math.nan
    if not 1 <= watts <= _MOST_WATTS:
        text = f"The power limit of {card} is {str(given)[:30]}; write watts of one card, from 1 to {_MOST_WATTS:,}."
        raise PlanError("power_limit_watts", given, text)
    return round(watts)


def _decimal(given: object) -> Decimal:
    """The number that was typed; -1, which no price is, for anything else."""
    try:
        number = Decimal(str(given))
    except InvalidOperation:
        return Decimal(-1)
    return number if number.is_finite() else Decimal(-1)


def _is_empty(given: object) -> bool:
    return given is None or given == "" or (isinstance(given, float) and math.isnan(given))
