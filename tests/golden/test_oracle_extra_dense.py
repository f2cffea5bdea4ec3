"""Dense models and quantised variants that the catalogue lacks, against what vLLM's own classes said of them.

`oracle_extra_dense.jsonl`: its first line says where the numbers come from; each other line is one config with vLLM's
parameters, buffers, allocator count, derived length and cache specs per (tp, pp, rank).
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from factories import make_documents, make_resolved

from planner.inventory import ModelFacts
from planner.model_config import read_model
from planner.weights import rank_weights

CASES = Path(__file__).with_name("oracle_extra_dense.jsonl")
KINDS = {"FullAttentionSpec": "full", "SlidingWindowSpec": "sliding"}
Row = dict[str, Any]  # a parsed line of the golden file


@cache
def _entries() -> dict[str, Row]:
    lines = CASES.read_text(encoding="utf-8").splitlines()[1:]
    return {entry["name"]: entry for entry in map(json.loads, lines)}


@cache
def _model(name: str) -> ModelFacts:
    return read_model(make_documents(_entries()[name]["config"], model_id=name), vllm_minor=32)


def _cases() -> list[Any]:
    return [
        pytest.param(name, row, id=f"{name}-tp{row['tp']}-pp{row['pp']}-{row['rank']}")
        for name, entry in _entries().items()
        for row in entry["rows"]
    ]


@pytest.mark.parametrize(("name", "row"), _cases())
def test_weights_are_vllms(name: str, row: Row) -> None:
    resolved = make_resolved(tp=row["tp"], pp=row["pp"], version="0.32.0", dtype=row["dtype"])

    weights = rank_weights(_model(name), resolved, row["rank"])

    found = (weights.parameter_bytes, weights.buffer_bytes, weights.load.best_bytes)
    assert found == (row["parameter_bytes"], row["buffer_bytes"], row["counted_bytes"])


@pytest.mark.parametrize(("name", "row"), [case for case in _cases() if case.values[1]["pp"] == 1])
def test_caches_and_length_are_vllms(name: str, row: Row) -> None:
    model = _model(name)

    found = Counter(
        (cache.kind, max(1, cache.num_kv_heads // row["tp"]), cache.head_size, cache.sliding_window)
        for layer in model.layers
        for cache in layer.caches
    )

    told = {
        (KINDS[kind], heads, head_size, window if kind == "SlidingWindowSpec" else None): layers
        for kind, layers, heads, head_size, window in row["kv_specs"]
    }
    assert dict(found) == told
    assert model.max_position == row["max_model_len"]
