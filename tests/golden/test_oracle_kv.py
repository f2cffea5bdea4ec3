"""Cache specs, groups, blocks, tokens and concurrency against vLLM's own classes and planner, for every model it built.

Reduced configs and those without their quantisation are in: vLLM was given the same file, and only weights depend on the rest.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from factories import documents_for, make_gpu, make_resolved, shared_file

from planner.inventory import ModelFacts
from planner.kv_cache import layout, plan_pool
from planner.kv_specs import model_caches
from planner.layer_specs import LayerSpec, MambaSpec, kind_of
from planner.model_config import read_model
from planner.units import GIB

TRUTH = ("oracle.jsonl", "oracle_blackwell.jsonl")
KINDS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "mla",
    "SlidingWindowSpec": "sliding",
    "SlidingWindowMLASpec": "sliding_mla",
    "ChunkedLocalAttentionSpec": "chunked",
    "CrossAttentionSpec": "cross",
    "MambaSpec": "mamba",
}
CATALOGUE = shared_file("catalogue", "README.md").parent / "models"
Row = dict[str, Any]  # a parsed line of the truth files


def _path(model_id: str) -> Path:
    return CATALOGUE / f"{model_id.replace('/', '--')}.json"


def _cases() -> list[Any]:
    by_case: dict[str, list[Row]] = {}
    for name in TRUTH:
        for line in shared_file("groundtruth", name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "kv_specs" in row:  # the others name an error: a TP that does not divide, a method that is gone
                platform = row["platform"].removeprefix("fake-cuda-")
                mark = f"{name}-{row['model_id']}-{platform}-tp{row['tp']}-pp{row['pp']}"
                by_case.setdefault(mark, []).append(row)
    return [pytest.param(rows, id=mark) for mark, rows in by_case.items() if len(rows) == rows[0]["pp"]]


@cache
def _model(model_id: str) -> ModelFacts:
    return read_model(documents_for(_path(model_id)), vllm_minor=32)


def _resolved(row: Row) -> Any:
    pool = row["pool_20gib"]
    capability = tuple(int(part) for part in row["platform"].removeprefix("fake-cuda-").split("."))
    return make_resolved(
        tp=row["tp"],
        pp=row["pp"],
        version="0.32.0",
        dtype=row["dtype"],
        quantization=row["quant"],
        kv_cache_dtype=row["dtype"] if row["cache_dtype"] == "auto" else row["cache_dtype"],
        max_model_len=pool["max_model_len"],
        max_in_flight_tokens=pool["max_in_flight_tokens"],
        mamba_cache_mode=row["mamba_cache_mode"],
        gpu=make_gpu(capability=capability),
    )


def _told(spec: Row) -> tuple[Any, ...]:
    return (KINDS[spec["type"]], spec["block_size"], spec["page_size_bytes"], spec.get("state_bytes", 0))


def _made(spec: LayerSpec) -> tuple[Any, ...]:
    state_bytes = spec.state_bytes if isinstance(spec, MambaSpec) else 0
    return (kind_of(spec), spec.block_size, spec.page_bytes, state_bytes)


@pytest.mark.parametrize("rows", _cases())
def test_layer_specs_are_vllms(rows: list[Row]) -> None:
    caches = model_caches(_model(rows[0]["model_id"]), _resolved(rows[0]))

    for row in rows:
        made = Counter(_made(spec) for spec, stage in caches.layers if stage == row["rank"])
        told: Counter[tuple[Any, ...]] = Counter()
        for spec in row["kv_specs"]:
            told[_told(spec)] += spec["layers"]
        assert made == told


@pytest.mark.parametrize("rows", _cases())
def test_pool_of_20_gib_is_vllms(rows: list[Row]) -> None:
    told = rows[0]["pool_20gib"]
    made = layout(_model(rows[0]["model_id"]), _resolved(rows[0]))

    pool = plan_pool(made, (20 * GIB,) * rows[0]["pp"])

    if "error" in told:
        assert f"estimated maximum model length is {pool.estimated_max_model_len}." in told["error"]
        assert f"({round(pool.needed_bytes / GIB, 2)} GiB KV cache is needed" in told["error"]
        assert not pool.fits
        return
    found = (pool.num_blocks, pool.tokens, round(pool.max_concurrency, 4), pool.block_size)
    assert found == (told["num_blocks"], told["tokens"], told["max_concurrency"], told["block_size"])
    on_stage = [sum(counts[rows[0]["rank"]] for _, counts in group.members) for group in made.groups]
    sizes = [group.spec.block_size for group in made.groups]
    assert list(zip(on_stage, sizes, strict=True)) == [
        (group["layers"], group["block_size"]) for group in told["groups"]
    ]
