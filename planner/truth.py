"""Start-up rows: what real vLLM engines were asked and what they logged; `truth_request` makes requests of them.

A row is one JSON object a line with the fields of planner/data/truth. GiB values are as vLLM prints them, per rank.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.facts import PlanError
from planner.versions import parse_version

CARRIED_ROWS = Path(__file__).parent / "data" / "truth"
CONFIGS = CARRIED_ROWS / "configs"
MEMORY_FAILURES = (
    "max_model_len does not fit",
    "no memory for cache blocks",
    "free memory below requested",
    "max_num_seqs exceeds",
)

_LARGEST_NUMBER = 1e15  # beyond it a value is no measurement
_PLAIN_NUMBER = re.compile(r"(-?(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d{1,15})?)(?: ?GiB| tokens)?")
_RELEASE_WITHIN = re.compile(r"(?<![\w.])v?\d{1,2}\.\d{1,3}(?:\.\d{1,3})?(?![\w.])")
_UNSET = ("", "none", "null", "auto", "default")


def _is_release(text: str) -> bool:
    try:
        parse_version(text)
    except PlanError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthRow:
    """One start-up: its parsed JSON object, with typed looks at it."""

    values: Mapping[str, Any]  # one row of JSON, checked where it is read
    problem: str | None = None  # why the line is no row
    place: str = "a row"  # the file and line it stands on

    @property
    def row_id(self) -> str:
        """The row's own name."""
        return str(self.values.get("id", "unnamed"))

    @property
    def grade(self) -> str:
        """A (a log read whole) to D; "A" where the row does not say, so that any row can be scored."""
        found = re.match(r"\s*([A-D])\b", str(self.values.get("evidence") or ""))
        return found[1] if found else "A"

    @property
    def model_id(self) -> str | None:
        """The model as the row names it."""
        name = self.values.get("model_id")
        return str(name) if name else None

    @property
    def version(self) -> str | None:
        """The vLLM release, or None when the row does not state one."""
        text = str(self.values.get("vllm_version") or "")
        word = next(iter(text.split()), "")
        if re.match(r"v?0\.1\.dev", word):  # a build from a checkout without tags tells no release
            return None
        if _is_release(word):
            return word
        found = _RELEASE_WITHIN.search(text)  # of "~0.8", ">=0.20" or "0.10.1-0.10.2" the first
        return found[0] if found else None

    @property
    def engine(self) -> str:
        """The engine generation: v0 or v1."""
        return str(self.values.get("engine") or "v1")[:2]

    def number(self, name: str) -> float | None:
        """A measured value, or None."""
        value = self.values.get(name)
        if isinstance(value, str) and (found := _PLAIN_NUMBER.fullmatch(value.strip())) is not None:
            value = float(found[1].replace(",", ""))
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST_NUMBER:
            return None
        return None if math.isnan(value) else float(value)

    def integer(self, name: str) -> int | None:
        """A measured count, or None."""
        value = self.number(name)
        return None if value is None else int(value)

    def setting(self, name: str, *, least: float = 1) -> float | None:
        """A flag's number, or None where the row leaves it at its default; raises `PlanError` for what is no such number."""
        given, value = self.values.get(name), self.number(name)
        if given is None or (isinstance(given, str) and given.strip().lower() in _UNSET):
            return None
        if value is None or value < least:
            raise PlanError(name, given, f"the row's {name} is {given!r:.40}, which vLLM cannot have run with")
        return value

    def count(self, name: str) -> int | None:
        """A flag's whole number, as `setting`."""
        value = self.setting(name)
        return None if value is None else int(value)

    def switch(self, name: str) -> bool | None:
        """Whether a flag is on, or None where the row does not say."""
        word = str(self.values.get(name)).strip().lower()
        return None if word in _UNSET else word not in ("false", "0", "no", "off")

    def text(self, *names: str) -> str:
        """The texts of `names`, joined, in lower case."""
        return " ".join(str(self.values.get(name) or "") for name in names).lower()

    @property
    def is_memory_failure(self) -> bool:
        """Whether the start failed because the KV cache or the requested share did not fit."""
        return self.text("error_text_kind").startswith(MEMORY_FAILURES)

    @property
    def is_other_failure(self) -> bool:
        """Whether it failed for another reason (out of memory after the pool was laid out, a driver fault)."""
        return bool(self.values.get("error_text_kind")) and not self.is_memory_failure


def read_rows(lines: Iterable[str], name: str) -> tuple[TruthRow, ...]:
    """The rows of a JSON Lines text; a line that is no JSON object is a row with its `problem`."""
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    return tuple(_read_row(line, f"{name} line {number}") for number, line in numbered)


def distinct_rows(rows: Iterable[TruthRow]) -> tuple[TruthRow, ...]:
    """The rows with those that repeat one before them refused: the same start counts once.

    Of two starts under one name both count, and the later one is named by its line.
    """
    found: dict[str, list[TruthRow]] = {}
    return tuple(_apart(row, found.setdefault(row.row_id, [])) for row in rows)


def _apart(row: TruthRow, named: list[TruthRow]) -> TruthRow:
    """The row beside those of its name before it, which it joins: refused where it repeats one, else named apart."""
    named.append(row)
    *others, _ = named
    if row.problem is None and any(_is_same(row, other) for other in others):
        return replace(row, problem=f"the row repeats {others[0].place}, which counts once")
    return replace(row, values={**row.values, "id": f"{row.row_id} ({row.place})"}) if others else row


def _is_same(row: TruthRow, other: TruthRow) -> bool:
    return repr(sorted(row.values.items())) == repr(sorted(other.values.items()))  # NaN equals no NaN


def _read_row(line: str, place: str) -> TruthRow:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        return TruthRow(values={"id": place}, place=place, problem=f"the line is not JSON ({str(error)[:80]})")
    if not isinstance(values, dict):
        return TruthRow(values={"id": place}, place=place, problem="the line is not a JSON object")
    name = values.get("id")
    is_named = isinstance(name, str | int) and not isinstance(name, bool) and str(name).strip() != ""
    return TruthRow(values=values if is_named else values | {"id": place}, place=place)
