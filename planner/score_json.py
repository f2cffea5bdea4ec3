"""One JSON document of scored rows: the figures, split by family, era, card and parallelism, and every row with its terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from planner.score import Scored
from planner.score_leave_out import leave_one_model_out
from planner.score_stats import (
    GROUPS,
    QUANTITIES,
    band_coverage,
    card_errors,
    errors,
    num_models,
    predicted,
    quantile,
    verdict_table,
)

Document = dict[str, Any]  # JSON
_SPLITS: dict[str, Callable[[Scored], str]] = {
    "group": lambda item: item.group,
    "family": lambda item: item.family,
    "era": lambda item: item.era,
    "card": lambda item: item.gpu,
    "tensor_parallel_size": lambda item: str(item.tensor_parallel_size),
}


def document(scored: Sequence[Scored]) -> Document:
    """What `--json` prints: `counts`, `errors`, `coverage`, `verdicts`, `leave_one_model_out`, the splits, and `rows`."""
    shown = predicted(scored)
    outside = leave_one_model_out(shown)
    return {
        "counts": {"rows": len(scored), "predicted": len(shown), "models": num_models(shown)},
        **_figures(shown),
        "verdicts": asdict(verdict_table(shown)),
        "leave_one_model_out": _figures(outside) | {"by_group": _split(outside, _SPLITS["group"])},
        **{f"by_{name}": _split(shown, key) for name, key in _SPLITS.items()},
        "skipped": [{"row_id": item.row_id, "reason": item.reason} for item in scored if item.reason is not None],
        "rows": [asdict(item) for item in scored],
    }


def _figures(items: Sequence[Scored]) -> Document:
    band = band_coverage(items)
    return {
        "errors": {name: asdict(errors(items, name)) for name, _ in QUANTITIES},
        "pool_error_of_card": {"median": quantile(card_errors(items), 0.5), "p90": quantile(card_errors(items), 0.9)},
        "coverage": asdict(band) | {"fraction": band.fraction},
    }


def _split(items: Sequence[Scored], key: Callable[[Scored], str]) -> Document:
    found = {key(item) for item in items}
    labels: list[str] = [group for group in GROUPS if group in found] or sorted(found)
    return {label: _figures([item for item in items if key(item) == label]) for label in labels}
