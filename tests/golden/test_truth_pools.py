"""Tokens, blocks and concurrency that real engines logged, from the pool that they logged, release by release."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from factories import shared_file

from planner import defaults
from planner.answer import KvPool
from planner.facts import PlanError
from planner.gpu_catalog import GpuFacts, custom_gpu, find_gpu
from planner.kv_cache import layout, plan_pool
from planner.model_config import read_model
from planner.request import PlanRequest
from planner.truth import TruthRow, read_rows
from planner.truth_request import documents_for, request_for
from planner.units import GIB
from planner.versions import parse_version

CONFIGS = shared_file("groundtruth", "configs", "..", "README.md").parent / "configs"
HALF_OF_LAST_DIGIT_BYTES = 0.0051 * GIB  # logs print two decimals
# Rows whose pool cannot follow from what they state, and why.
UNSTATED = {
    "llmd-v019-meta-llama-llama-3-1-8b_h100-80gb_tp1pp2dp1_8192": "the logged pool is not that of the rank that bounds",
    "llmd-v019-meta-llama-llama-3-1-8b_h100-80gb_tp1pp4dp1_8192": "the logged pool is not that of the rank that bounds",
    "w2-v0271-qwen35-9b-3090": "states no length",
    "w2-v0271-qwen38-27b-gb10": "runs longer than the model's own limit by an environment variable",
    "w2-v0240-gb10-qwen36-35b-nvfp4-u075": "its concurrency shows fp8 KV and three draft tokens, which it does not state",
    "w2-v0221dev-qwen36-35b-nvfp4-mtp-gb10": "states neither its KV dtype nor how many draft tokens",
}


def _rows() -> list[Any]:
    rows = []
    for name in ("open.jsonl", "open_recent.jsonl"):
        for row in read_rows(shared_file("groundtruth", name).read_text(encoding="utf-8").splitlines(), name):
            has_pool = row.number("available_kv_gib") is not None and row.version is not None
            has_result = any(row.number(key) for key in ("kv_cache_tokens", "num_gpu_blocks", "max_concurrency"))
            if has_pool and has_result and row.row_id not in UNSTATED:
                rows.append(pytest.param(row, id=row.row_id))
    return rows


def _card(request: PlanRequest) -> GpuFacts:
    try:
        return find_gpu(request.gpu or "")
    except PlanError:
        return custom_gpu(request.gpu_memory_bytes or 80 * GIB, request.gpu)


def _planned(row: TruthRow, pool_bytes: int) -> KvPool:
    match = re.match(r"\d+\.\d+(\.\d+)?", row.version or "")
    assert match is not None
    documents = documents_for(row, Path(CONFIGS))
    model = read_model(documents, vllm_minor=parse_version(match[0]).minor)
    request = request_for(row, documents, match[0])
    length = row.integer("max_concurrency_at_len") or request.flags.max_model_len
    request = replace(request, flags=replace(request.flags, max_model_len=length))
    resolved = defaults.resolve(request, model, _card(request))
    return plan_pool(layout(model, resolved), (pool_bytes,) * resolved.pp)


def _errors(row: TruthRow) -> list[float]:
    """Relative errors of what the row logs, zero where the printed pool's rounding explains the difference."""
    pool_bytes = (row.number("available_kv_gib") or 0.0) * GIB
    low = _planned(row, round(pool_bytes - HALF_OF_LAST_DIGIT_BYTES))
    high = _planned(row, round(pool_bytes + HALF_OF_LAST_DIGIT_BYTES))
    names = {"kv_cache_tokens": "tokens", "num_gpu_blocks": "num_blocks", "max_concurrency": "max_concurrency"}
    errors = []
    for logged_name, name in names.items():
        logged = row.number(logged_name)
        if logged:
            nearest = min(max(logged, getattr(low, name) - 0.006), getattr(high, name) + 0.006)
            errors.append(abs(nearest / logged - 1))
    return errors


def _all_errors() -> dict[str, list[float]]:
    found = {}
    for parameter in _rows():
        row = parameter.values[0]
        try:
            found[row.row_id] = _errors(row)
        except PlanError:
            continue  # no config, no card: not a matter of the pool
    return found


def test_pools_of_real_starts_follow_from_their_bytes() -> None:
    errors = _all_errors()

    assert len(errors) >= 60
    assert median(error for row in errors.values() for error in row) <= 0.0005
    wrong = {name: max(row) for name, row in errors.items() if max(row) > 0.004}
    assert wrong == {}
