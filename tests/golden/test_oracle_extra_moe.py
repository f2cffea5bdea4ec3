"""Models of the expert and latent-attention families that the catalogue lacks, against what vLLM's own classes said of them.

`oracle_extra_moe.jsonl`: its first line says where the numbers come from; each other line is one config with vLLM's
parameters, buffers and cache specs per (tp, pp, rank), and its block plan for a pool of 20 GiB.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from factories import make_documents, make_gpu, make_resolved

from planner.inventory import ModelFacts
from planner.kv_cache import layout, plan_pool
from planner.kv_specs import model_caches
from planner.layer_specs import LayerSpec, kind_of
from planner.model_config import read_model
from planner.request import EngineFlags
from planner.units import GIB
from planner.weights import rank_weights

CASES = Path(__file__).with_name("oracle_extra_moe.jsonl")
KINDS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "mla",
    "SlidingWindowSpec": "sliding",
    "SlidingWindowMLASpec": "sliding_mla",
    "ChunkedLocalAttentionSpec": "chunked",
}
Row = dict[str, Any]  # a parsed line of the golden file


@cache
def _entries() -> dict[str, Row]:
    lines = CASES.read_text(encoding="utf-8").splitlines()[1:]
    return {entry["name"]: entry for entry in map(json.loads, lines)}


@cache
def _model(name: str) -> ModelFacts:
    return read_model(make_documents(_entries()[name]["config"], model_id=name), vllm_minor=32)


def _resolved(name: str, row: Row) -> Any:
    model = _model(name)
    return make_resolved(
        tp=row["tp"],
        pp=row["pp"],
        version="0.32.0",
        dtype="bfloat16",
        quantization=model.quantization.method if model.quantization else None,
        max_model_len=row["pool"]["max_model_len"],
        max_in_flight_tokens=row["pool"]["max_in_flight_tokens"],
        mamba_cache_mode="none",
        gpu=make_gpu(capability=(9, 0)),
        flags=EngineFlags(moe_backend=row["moe_backend"]),
    )


def _cases() -> list[Any]:
    return [
        pytest.param(name, row, id=f"{name}-tp{row['tp']}-pp{row['pp']}-{row['rank']}")
        for name, entry in _entries().items()
        for row in entry["rows"]
    ]


@pytest.mark.parametrize(("name", "row"), _cases())
def test_parameters_are_vllms(name: str, row: Row) -> None:
    weights = rank_weights(_model(name), _resolved(name, row), row["rank"])

    assert weights.parameter_bytes == row["parameter_bytes"]


@pytest.mark.parametrize(("name", "row"), _cases())
def test_buffers_are_vllms(name: str, row: Row) -> None:
    weights = rank_weights(_model(name), _resolved(name, row), row["rank"])

    assert weights.buffer_bytes == row["buffer_bytes"]


@pytest.mark.parametrize(("name", "row"), _cases())
def test_cache_specs_are_vllms(name: str, row: Row) -> None:
    made = Counter(
        _made(spec) for spec, stage in model_caches(_model(name), _resolved(name, row)).layers if stage == row["rank"]
    )

    told: Counter[tuple[Any, ...]] = Counter()
    for spec in row["kv_specs"]:
        told[KINDS[spec["type"]], spec["block_size"], spec["page_size_bytes"]] += spec["layers"]
    assert made == told


def _made(spec: LayerSpec) -> tuple[Any, ...]:
    return (kind_of(spec), spec.block_size, spec.page_bytes)


@pytest.mark.parametrize(("name", "row"), [case for case in _cases() if case.values[1]["rank"] == 0])
def test_blocks_and_concurrency_are_vllms(name: str, row: Row) -> None:
    made = layout(_model(name), _resolved(name, row))

    pool = plan_pool(made, (20 * GIB,) * row["pp"])

    told = row["pool"]
    if told["num_blocks"] is None:  # vLLM refused: one request of that length does not fit
        assert not pool.fits
        return
    found = (pool.num_blocks, pool.tokens, round(pool.max_concurrency, 4), pool.block_size)
    assert found == (told["num_blocks"], told["tokens"], told["max_concurrency"], told["block_size"])
