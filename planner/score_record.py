"""The scored rows that the project carries, written down: the Accuracy page reads them instead of planning 200 starts.

`make score` writes planner/data/accuracy.json; a test holds it to the rows and rules of the day.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from planner.score import Comparison, Scored
from planner.score_leave_out import leave_one_model_out

RECORD = Path(__file__).parent / "data" / "accuracy.json"
_SIGNIFICANT = 7  # digits kept


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRecord:
    """All scored rows, and those of them that can be scored without their own model, refitted so."""

    scored: tuple[Scored, ...]
    left_out: tuple[Scored, ...]


def record_of(scored: Sequence[Scored]) -> AccuracyRecord:
    """The record of freshly scored rows."""
    return AccuracyRecord(
        scored=tuple(scored), left_out=leave_one_model_out([item for item in scored if item.reason is None])
    )


def record_text(scored: Sequence[Scored]) -> str:
    """The record as the file holds it: JSON, one row a line."""
    outside = {item.row_id: item.pool for item in record_of(scored).left_out}
    lines = [json.dumps(_row(item, outside.get(item.row_id)), ensure_ascii=False) for item in scored]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def read_record(path: Path = RECORD) -> AccuracyRecord:
    """The record that `path` holds."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    scored = tuple(_scored(row) for row in rows)
    moved = [_moved(item, row["left_out"]) for item, row in zip(scored, rows, strict=True) if row["left_out"]]
    return AccuracyRecord(scored=scored, left_out=tuple(moved))


def _row(item: Scored, outside: Comparison | None) -> dict[str, Any]:
    shown = asdict(item) | {"comparisons": [_pressed(comparison) for comparison in item.comparisons]}
    return shown | {"left_out": None if outside is None else _pressed(outside)}


def _pressed(comparison: Comparison) -> list[str | float | None]:
    numbers = (comparison.predicted, comparison.logged, comparison.low, comparison.high)
    return [comparison.name, *(None if number is None else float(f"{number:.{_SIGNIFICANT}g}") for number in numbers)]


def _comparison(values: Sequence[Any]) -> Comparison:
    name, predicted, logged, low, high = values
    return Comparison(name=name, predicted=predicted, logged=logged, low=low, high=high)


def _scored(row: Mapping[str, Any]) -> Scored:
    fields = {name: value for name, value in row.items() if name != "left_out"}
    return Scored(**fields | {"comparisons": tuple(_comparison(values) for values in row["comparisons"])})


def _moved(item: Scored, values: Sequence[Any]) -> Scored:
    pool = _comparison(values)
    return replace(item, comparisons=tuple(pool if each.name == pool.name else each for each in item.comparisons))
