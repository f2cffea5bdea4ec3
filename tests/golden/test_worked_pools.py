"""The worked pools of vLLM 0.32/0.33's planner (memory model 2.8) from catalogue configs, to the digit."""

from __future__ import annotations

from typing import Any

import pytest
from factories import CATALOGUE, documents_for, make_resolved

from planner.kv_cache import fit_error, layout, plan_pool
from planner.model_config import read_model
from planner.request import EngineFlags
from planner.units import GIB

LLAMA = "meta-llama--Llama-3.1-8B"
GEMMA = "google--gemma-3-27b-it"
GPT_OSS = "openai--gpt-oss-20b"


def _pool(name: str, pool_gib: int, **changes: Any) -> Any:
    model = read_model(documents_for(CATALOGUE / f"{name}.json"))
    return plan_pool(layout(model, make_resolved(**changes)), (pool_gib * GIB,))


@pytest.mark.parametrize(
    ("name", "pool_gib", "changes", "num_blocks", "tokens", "concurrency"),
    [
        (LLAMA, 50, {"max_model_len": 131072}, 25600, 409600, 3.12),
        ("Qwen--Qwen2.5-7B", 50, {"max_model_len": 32768, "tp": 8}, 234057, 3744912, 114.29),
        (
            "deepseek-ai--DeepSeek-V3",
            50,
            {"max_model_len": 163840, "flags": EngineFlags(block_size=64)},
            11937,
            763968,
            4.66,
        ),
        (
            "deepseek-ai--DeepSeek-V3.2",
            50,
            {"max_model_len": 163840, "kv_cache_dtype": "fp8_ds_mla"},
            17451,
            1116864,
            6.82,
        ),
        (GEMMA, 20, {"max_model_len": 131072}, 16384, 145829, 1.11),
        (GEMMA, 20, {"max_model_len": 131072, "max_in_flight_tokens": 8192}, 16384, 184270, 1.41),
        (GEMMA, 20, {"max_model_len": 131072, "max_in_flight_tokens": 2048}, 16384, 229677, 1.75),
        (GPT_OSS, 50, {"max_model_len": 131072}, 136533, 1939908, 14.80),
        (GPT_OSS, 50, {"max_model_len": 131072, "is_hybrid_manager_enabled": False}, 68266, 1092256, 8.33),
    ],
)
def test_catalogue_model_gives_the_worked_pool(
    name: str, pool_gib: int, changes: dict[str, Any], num_blocks: int, tokens: int, concurrency: float
) -> None:
    pool = _pool(name, pool_gib, **changes)

    assert (pool.num_blocks, pool.tokens, round(pool.max_concurrency, 2)) == (num_blocks, tokens, concurrency)


def test_refusal_is_in_vllms_words() -> None:
    pool = _pool(LLAMA, 10, max_model_len=131072)

    text = fit_error(pool, make_resolved(max_model_len=131072))

    assert text == (
        "To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (10.0 GiB). Based on the available memory, the estimated maximum "
        "model length is 81904. Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU "
        "backend) or decreasing `max_model_len` when initializing the engine. See "
        "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
    )
