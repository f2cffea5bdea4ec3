"""A typed, checked look into a model's parsed config.json: every read names the field and refuses nonsense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.facts import PlanError

LARGEST_SANE_INT = 2**40


@dataclass(frozen=True, slots=True, eq=False)
class ConfigView:
    """A config section. `path` prefixes field names in errors ("text_config."), `values` is the parsed JSON object."""

    values: Mapping[str, Any]  # parsed JSON: checked on every read
    path: str = ""

    def _refuse(self, name: str, value: object, allowed: str) -> PlanError:
        field = f"{self.path}{name}"
        return PlanError(field, value, f"config.json: {field} is {value!r:.60}, but {allowed} is needed.")

    def has(self, *names: str) -> bool:
        """Whether any of `names` is present and not null."""
        return any(self.values.get(name) is not None for name in names)

    def integer(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """The first present of `names` as an integer of at least `least`; `default` when none is there."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST_SANE_INT:
                raise self._refuse(name, value, f"a whole number of at least {least}")
            return value
        if default is None:
            raise PlanError(
                f"{self.path}{names[0]}",
                None,
                f"config.json has no {self.path}{names[0]}; the model cannot be sized without it.",
            )
        return default

    def optional_integer(self, *names: str, least: int = 0) -> int | None:
        """The first present of `names` as an integer, or None."""
        return self.integer(*names, least=least) if self.has(*names) else None

    def number(self, name: str, default: float) -> float:
        """`name` as a finite number."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
            raise self._refuse(name, value, "a number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """`name` as true or false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._refuse(name, value, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str | None:
        """`name` as text, or `default`."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._refuse(name, value, "a text")
        return value

    def items(self, name: str) -> list[Any] | None:
        """`name` as a list, or None."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self._refuse(name, value, "a list")
        return value

    def integers(self, name: str) -> list[int] | None:
        """`name` as a list of whole numbers, or None."""
        values = self.items(name)
        if values is not None and any(isinstance(value, bool) or not isinstance(value, int) for value in values):
            raise self._refuse(name, values, "a list of whole numbers")
        return values

    def section(self, name: str) -> ConfigView | None:
        """The object `name` as a view of its own, or None."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._refuse(name, value, "an object")
        return ConfigView(value, f"{self.path}{name}.")
