"""What cards cost and draw, by the user's own figures: none is invented here."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from planner.facts import PlanError

HOURS_A_MONTH = 730  # 8760 / 12
_MOST_PRICE = Decimal(1_000_000)
_MOST_WATTS = 100_000
_LONGEST_CURRENCY = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPrice:
    """The price of one card for an hour, and the most it draws; None where the user gave none."""

    card: str
    per_hour: Decimal | None = None
    power_limit_watts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """Prices in one currency, which is whatever the user calls it."""

    currency: str
    cards: tuple[CardPrice, ...] = ()

    def cost_per_hour(self, card: str, num_cards: int) -> Decimal | None:
        """The price of `num_cards` for an hour; None where no price was given."""
        found = self._of(card)
        return None if found is None or found.per_hour is None else found.per_hour * num_cards

    def watts(self, card: str, num_cards: int) -> int | None:
        """The most that `num_cards` draw; None where the limit is not known."""
        found = self._of(card)
        return None if found is None or found.power_limit_watts is None else found.power_limit_watts * num_cards

    def _of(self, card: str) -> CardPrice | None:
        return next((price for price in self.cards if price.card == card), None)


def read_prices(currency: str, rows: Iterable[Mapping[str, object]]) -> PriceTable:
    """The table that the user typed: rows of `card`, `per_hour`, `power_limit_watts`; raises `PlanError` at the bad cell."""
    return PriceTable(currency=read_currency(currency), cards=tuple(_row(row) for row in rows if row.get("card")))


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
    try:
        price = Decimal(str(given))
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or not 0 <= price <= _MOST_PRICE:
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
    if not 0 < watts <= _MOST_WATTS:
        text = f"The power limit of {card} is {str(given)[:30]}; write watts of one card, from 1 to {_MOST_WATTS:,}."
        raise PlanError("power_limit_watts", given, text)
    return round(watts)


def _is_empty(given: object) -> bool:
    return given is None or given == "" or (isinstance(given, float) and math.isnan(given))
