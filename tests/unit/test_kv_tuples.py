"""Blocks of DeepSeek-V4's layers: rows of layer tuples in 0.20 to 0.23, packed since 0.24."""

from __future__ import annotations

import pytest

from planner.answer import KvPool
from planner.budget import plan
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB

# One page of each size: keys of ratio 4, their indexer, keys of ratio 128.
ROW_BYTES = 37440 + 8640 + 1728


def pool(version: str, **flags: object) -> KvPool:
    """The pool of DeepSeek-V4-Flash on two GH200, as a public start of 0.22 asked for it."""
    asked = {
        "tensor_parallel_size": 2,
        "enable_expert_parallel": True,
        "kv_cache_dtype": "fp8",
        "max_model_len": 30_000,
        "max_num_batched_tokens": 16_384,  # the default of the LLM class
        "kv_cache_memory_bytes": round(5.44 * GIB),
    } | flags
    request = PlanRequest(
        model_id="deepseek-ai/DeepSeek-V4-Flash",
        gpu="GH200 (96GB HBM3)",
        vllm_version=version,
        flags=EngineFlags(**asked),  # type: ignore[arg-type]  # the keys are its fields
    )
    return plan(request, facts_for(request, catalogue_documents("deepseek-ai/DeepSeek-V4-Flash"))).pool


def test_a_start_of_022_needs_what_its_error_names() -> None:
    """vLLM 0.22 printed 6.66 GiB needed at 30,000 tokens, and 13,528 as the longest for 5.44 GiB (issue 44376)."""
    found = pool("0.22.0")

    assert round(found.needed_bytes / GIB, 2) == 6.66
    assert pool("0.22.0", kv_cache_memory_bytes=round(5.435 * GIB)).estimated_max_model_len <= 13_528
    assert pool("0.22.0", kv_cache_memory_bytes=round(5.445 * GIB)).estimated_max_model_len >= 13_528


@pytest.mark.parametrize("version", ["0.20.0", "0.23.0"])
def test_each_of_22_tuples_holds_a_page_of_every_size(version: str) -> None:
    assert pool(version).bytes_per_block == 22 * ROW_BYTES  # 43 windows in two groups of at most 22


@pytest.mark.parametrize("version", ["0.24.0", "0.32.0"])
def test_packed_blocks_hold_the_pages_of_the_widest_group(version: str) -> None:
    assert pool(version).bytes_per_block == 21 * (37440 + 8640) + 20 * 1728
