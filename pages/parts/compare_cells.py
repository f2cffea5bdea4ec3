"""The table of what fits, from sheets: rows of models, columns of cards, each cell a number or why it does not start.

Pure; knows no Streamlit. A report takes the same `FitTable`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pages.parts import words
from pages.parts.compare_request import LONGEST, PUBLISHED
from pages.parts.language import mark, t
from pages.parts.said import said
from planner.inventory import ModelFacts
from planner.matrix import STOPS, Sheet

# What a cell says instead of a number, in the order in which cells that do not start are sorted.
WHY_NOT: tuple[str, ...] = (
    mark("no room"),
    mark("length"),
    mark("weights"),
    mark("card in use"),
    mark("fixed pool"),
    mark("state blocks"),
    mark("TP"),
    mark("KV format"),
    mark("quantisation"),
    mark("dtype"),
    mark("model limit"),
    mark("refused"),
)
_BY_STOP = {"no_room": 0, "too_long": 1, "weights": 2, "too_little_free": 3, "fixed_pool": 4, "few_blocks": 5}
_BY_FIELD = {
    "tensor_parallel_size": 6,
    "kv_cache_dtype": 7,
    "quantization": 8,
    "quantization_config.quant_method": 8,
    "dtype": 9,
    "max_model_len": 10,
}
_REFUSED = len(WHY_NOT) - 1
UNBOUNDED = 1e15  # a model without a cache: nothing here bounds it
SHADES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRow:
    """One model, with its weights' format and its KV dtype, over all columns.

    `numbers` holds tokens or requests; a negative value -n stands for `WHY_NOT[n - 1]`.
    """

    model_id: str
    weights: str  # the choice of the form
    weights_format: str  # what the weights then are: a method such as awq, or not quantised
    kv_dtype: str
    own_limit_tokens: int
    numbers: NDArray[np.float64]
    shades: NDArray[np.int8]  # 0 does not start, 1 least to SHADES most
    sheet: Sheet
    kv_place: int

    @property
    def starts_somewhere(self) -> bool:
        """Whether any column's engine starts."""
        return bool((self.numbers >= 0).any())


@dataclass(frozen=True, slots=True, kw_only=True)
class FitTable:
    """The whole table: what is measured, the columns as (card, number of cards), and the rows."""

    measure: str
    num_requests: int
    length_tokens: int
    columns: tuple[tuple[str, int], ...]
    rows: tuple[FitRow, ...]

    def cell(self, row: int, column: int) -> tuple[Sheet, tuple[int, int, int]]:
        """The sheet of a cell and its place in it."""
        found = self.rows[row]
        split, card = column % len(found.sheet.question.splits), column // len(found.sheet.question.splits)
        return found.sheet, (split, found.kv_place, card)


def columns_of(sheet: Sheet) -> tuple[tuple[str, int], ...]:
    """(card, number of cards), card by card."""
    return tuple((gpu.name, split.num_cards) for gpu in sheet.question.gpus for split in sheet.question.splits)


def column_title(column: tuple[str, int]) -> str:
    """A column's heading: the card and how many."""
    name, number = column
    return f"{name.removeprefix('GeForce ')} ×{number}"


def model_titles(rows: tuple[FitRow, ...]) -> list[str]:
    """Each row's model without its owner, unless two owners have a model of that name."""
    owners: dict[str, set[str]] = {}
    for row in rows:
        owners.setdefault(_short(row.model_id), set()).add(row.model_id)
    return [_short(row.model_id) if len(owners[_short(row.model_id)]) == 1 else row.model_id for row in rows]


def _short(model_id: str) -> str:
    return model_id.rsplit("/", 1)[-1]


def rows_of(sheet: Sheet, measure: str, weights: str, model: ModelFacts) -> Iterator[FitRow]:
    """A sheet's rows, one a KV dtype."""
    own_limit_tokens = model.max_position
    own_format = t("not quantised") if model.quantization is None else model.quantization.method
    for place, dtype in enumerate(sheet.question.kv_dtypes):
        values = _values(sheet, place, measure)
        yield FitRow(
            model_id=sheet.model_id,
            weights=weights,
            weights_format=own_format if weights == PUBLISHED else weights,
            kv_dtype=dtype,
            own_limit_tokens=own_limit_tokens,
            numbers=values,
            shades=_shades(values, measure, own_limit_tokens),
            sheet=sheet,
            kv_place=place,
        )


def _values(sheet: Sheet, place: int, measure: str) -> NDArray[np.float64]:
    """The cells of one KV dtype in the order of the columns."""
    stops = sheet.stops[:, place, :].T.ravel()
    if measure == LONGEST:
        numbers = sheet.longest_tokens[:, place, :].T.ravel().astype(np.float64)
        is_short = numbers < 1  # it starts, but does not hold so many at once
    else:
        numbers = sheet.max_concurrency[:, place, :].T.ravel()
        numbers = np.where(sheet.tokens[:, place, :].T.ravel() == 0, UNBOUNDED, numbers)
        is_short = np.zeros_like(numbers, dtype=np.bool_)
    values = np.where(is_short, -1.0, numbers)
    for index in np.flatnonzero(stops):
        card, split = divmod(int(index), len(sheet.question.splits))
        values[index] = -1.0 - _why(sheet, (split, place, card))
    return values


def _why(sheet: Sheet, cell: tuple[int, int, int]) -> int:
    by_field = _BY_FIELD.get(sheet.refusal_field(cell) or "", _REFUSED)
    return _BY_STOP.get(STOPS[int(sheet.stops[cell])], by_field)


def _shades(values: NDArray[np.float64], measure: str, own_limit_tokens: int) -> NDArray[np.int8]:
    """From 1 for little to 5 for all that the model can take (or 32 requests and more); 0 for what does not start."""
    steps = (1 / 8, 1 / 4, 1 / 2, 1.0) if measure == LONGEST else (2.0, 4.0, 8.0, 32.0)
    scale = float(own_limit_tokens) if measure == LONGEST else 1.0
    shades = 1 + sum((values >= step * scale).astype(np.int8) for step in steps)
    return np.where(values < 0, 0, shades).astype(np.int8)


def shown(value: float, measure: str) -> str:
    """A cell's text: tokens, requests at once, or why not."""
    if value < 0:
        return f"✕ {said(WHY_NOT[int(-value) - 1])}"
    if value >= UNBOUNDED:
        return t("no cache")
    return words.count(value) if measure == LONGEST else words.concurrency(value)


def filtered(table: FitTable, search: str, *, only_starting: bool) -> FitTable:
    """The table's rows whose model has all words of `search` in its name; only those that start somewhere if asked."""
    wanted = search.lower().split()
    kept = [
        row
        for row in table.rows
        if all(word in f"{row.model_id} {row.weights_format} {row.kv_dtype}".lower() for word in wanted)
        and (row.starts_somewhere or not only_starting)
    ]
    return FitTable(
        measure=table.measure,
        num_requests=table.num_requests,
        length_tokens=table.length_tokens,
        columns=table.columns,
        rows=tuple(kept),
    )


def summary(table: FitTable) -> str:
    """How many cells start, in one sentence."""
    total = sum(row.numbers.size for row in table.rows)
    starting = sum(int((row.numbers >= 0).sum()) for row in table.rows)
    return t("{starting} of {total} combinations start.", starting=words.count(starting), total=words.count(total))
