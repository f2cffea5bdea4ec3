"""Models outside the catalogue, planned from config.json alone, against what vLLM's own classes said.

`oracle_extra_variants.jsonl` (quantised and odd variants) and `oracle_extra_vision.jsonl` (models that see, hear or embed): the
first line of each says where the numbers come from; each other line is one config with vLLM's parameters, buffers, cache specs and block plan per (tp, pp, rank), and the sizes at which vLLM refuses it.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from factories import make_documents

from planner.answer import Plan
from planner.budget import card_of, plan
from planner.defaults import resolve
from planner.facts import PlanError
from planner.inventory import ModelFacts
from planner.kv_specs import model_caches
from planner.layer_specs import LayerSpec, MambaSpec, kind_of
from planner.planning import facts_for
from planner.request import PlanRequest
from planner.units import GIB

FILES = [Path(__file__).with_name(f"oracle_extra_{kind}.jsonl") for kind in ("variants", "vision")]
KINDS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "mla",
    "SlidingWindowSpec": "sliding",
    "MambaSpec": "mamba",
    "CrossAttentionSpec": "cross",
}
Row = dict[str, Any]  # a parsed line of the golden file


@cache
def _entries() -> dict[str, Row]:
    lines = [line for file in FILES for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    return {entry["name"]: entry for entry in map(json.loads, lines)}


def _request(name: str, tp: int, pp: int, row: Row) -> PlanRequest:
    record = {
        "model": name,
        "gpu": "H100 80GB SXM",
        "vllm_version": "0.32.0",
        "kv_cache_memory_bytes": 20 * GIB,
        "max_num_batched_tokens": 8192,
        "tensor_parallel_size": tp,
        "pipeline_parallel_size": pp,
        **_entries()[name]["flags"],
    }
    if row.get("pool"):
        record["max_model_len"] = row["pool"]["max_model_len"]
    if row.get("moe_backend"):
        record["moe_backend"] = row["moe_backend"]
    return PlanRequest.from_mapping(record)


@cache
def _documents(name: str) -> Any:
    return make_documents(_entries()[name]["config"], model_id=name)


@cache
def _planned(name: str, tp: int, pp: int) -> tuple[PlanRequest, ModelFacts, Plan]:
    row = next(row for row in _entries()[name]["rows"] if (row["tp"], row["pp"]) == (tp, pp))
    request = _request(name, tp, pp, row)
    model = facts_for(request, _documents(name))
    return request, model, plan(request, model)


def _cases() -> list[Any]:
    return [
        pytest.param(name, row, id=f"{name}-tp{row['tp']}-pp{row['pp']}-{row['rank']}")
        for name, entry in _entries().items()
        for row in entry["rows"]
    ]


def _refusals() -> list[Any]:
    return [
        pytest.param(name, row, id=f"{name}-tp{row['tp']}-pp{row['pp']}")
        for name, entry in _entries().items()
        for row in entry["refused"]
    ]


@pytest.mark.parametrize(("name", "row"), _cases())
def test_weights_are_vllms(name: str, row: Row) -> None:
    _, _, made = _planned(name, row["tp"], row["pp"])

    weights = made.ranks[row["rank"]].weights

    assert (weights.parameter_bytes, weights.buffer_bytes) == (row["parameter_bytes"], row["buffer_bytes"])


@pytest.mark.parametrize(("name", "row"), _cases())
def test_cache_specs_are_vllms(name: str, row: Row) -> None:
    request, model, _ = _planned(name, row["tp"], row["pp"])

    placed = model_caches(model, resolve(request, model, card_of(request))).layers

    told: Counter[tuple[Any, ...]] = Counter()
    for spec in row["kv_specs"]:
        told[KINDS[spec["type"]], spec["block_size"], spec["page_size_bytes"], spec["state_bytes"]] += spec["layers"]
    assert Counter(_made(spec) for spec, stage in placed if stage == row["rank"]) == told


def _made(spec: LayerSpec) -> tuple[Any, ...]:
    state_bytes = spec.state_bytes if isinstance(spec, MambaSpec) else 0
    return (kind_of(spec), spec.block_size, spec.page_bytes, state_bytes)


@pytest.mark.parametrize(("name", "row"), [case for case in _cases() if case.values[1]["pool"] is not None])
def test_blocks_and_concurrency_are_vllms(name: str, row: Row) -> None:
    _, _, made = _planned(name, row["tp"], row["pp"])

    pool, told = made.pool, row["pool"]

    found = (pool.num_blocks, pool.tokens, round(pool.max_concurrency, 4), pool.block_size)
    assert found == (told["num_blocks"], told["tokens"], told["max_concurrency"], told["block_size"])


@pytest.mark.parametrize(("name", "row"), _refusals())
def test_what_vllm_refuses_is_refused(name: str, row: Row) -> None:
    request = _request(name, row["tp"], row["pp"], {})

    try:
        made = plan(request, facts_for(request, _documents(name)))
    except PlanError:
        return

    assert any(finding.severity == "refusal" for finding in made.findings)
