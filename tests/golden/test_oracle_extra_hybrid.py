"""Hybrid, multimodal and encoder models that the catalogue lacks, against what vLLM's own classes said of them.

`oracle_extra_hybrid.jsonl`: its first line says where the numbers come from; each other line is one config with vLLM's
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
from planner.layer_specs import LayerSpec, MambaSpec, kind_of
from planner.model_config import read_model
from planner.units import GIB
from planner.weights import rank_weights

CASES = Path(__file__).with_name("oracle_extra_hybrid.jsonl")
KINDS = {
    "ChunkedLocalAttentionSpec": "chunked",
    "CrossAttentionSpec": "cross",
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "mla",
    "MambaSpec": "mamba",
    "SlidingWindowSpec": "sliding",
}
Row = dict[str, Any]  # a parsed line of the golden file


@cache
def _entries() -> dict[str, Row]:
    lines = CASES.read_text(encoding="utf-8").splitlines()[1:]
    return {entry["name"]: entry for entry in map(json.loads, lines)}


@cache
def _model(name: str) -> ModelFacts:
    entry = _entries()[name]
    settings = entry.get("hf_quant_config")
    documents = make_documents(
        entry["config"], model_id=name, hf_quant_config_json=json.dumps(settings) if settings else None
    )
    return read_model(documents, vllm_minor=32)


def _resolved(name: str, row: Row) -> Any:
    entry = _entries()[name]
    return make_resolved(
        tp=row["tp"],
        pp=row["pp"],
        version="0.32.0",
        dtype=entry["dtype"],
        quantization=entry["quantization"],
        kv_cache_dtype=entry["kv_cache_dtype"],
        max_model_len=row["pool"].get("max_model_len", 32768),
        max_in_flight_tokens=row["pool"].get("max_in_flight_tokens", 16384),
        mamba_cache_mode=entry["mamba_cache_mode"],
        enable_prefix_caching=entry["enable_prefix_caching"],
        gpu=make_gpu(capability=(9, 0)),
    )


def _cases() -> list[Any]:
    return [
        pytest.param(name, row, id=f"{name}-tp{row['tp']}-pp{row['pp']}-{row['rank']}")
        for name, entry in _entries().items()
        for row in entry["rows"]
    ]


@pytest.mark.parametrize(("name", "row"), _cases())
def test_weights_are_vllms(name: str, row: Row) -> None:
    weights = rank_weights(_model(name), _resolved(name, row), row["rank"])

    assert (weights.parameter_bytes, weights.buffer_bytes) == (row["parameter_bytes"], row["buffer_bytes"])


@pytest.mark.parametrize(("name", "row"), _cases())
def test_cache_specs_are_vllms(name: str, row: Row) -> None:
    caches = model_caches(_model(name), _resolved(name, row))

    made = Counter(_made(spec) for spec, stage in caches.layers if stage == row["rank"])
    told: Counter[tuple[Any, ...]] = Counter()
    for spec in row["kv_specs"]:
        told[KINDS[spec["type"]], spec["block_size"], spec["page_size_bytes"], spec.get("state_bytes", 0)] += spec[
            "layers"
        ]
    assert made == told


def _made(spec: LayerSpec) -> tuple[Any, ...]:
    state_bytes = spec.state_bytes if isinstance(spec, MambaSpec) else 0
    return (kind_of(spec), spec.block_size, spec.page_bytes, state_bytes)


def _planned() -> list[Any]:
    return [case for case in _cases() if case.values[1]["rank"] == 0 and "num_blocks" in case.values[1]["pool"]]


@pytest.mark.parametrize(("name", "row"), _planned())
def test_blocks_and_concurrency_are_vllms(name: str, row: Row) -> None:
    made = layout(_model(name), _resolved(name, row))

    pool = plan_pool(made, (20 * GIB,) * row["pp"])

    told = row["pool"]
    found = (pool.num_blocks, pool.tokens, round(pool.max_concurrency, 4))
    assert found == (told["num_blocks"], told["tokens"], told["max_concurrency"])
