from dataclasses import replace

import pytest

from planner.budget import plan
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest
from planner.sweep import sweep

UTILIZATIONS = (0.3, 0.6, 0.9)
LENGTHS = (1024, 8192, 32768)
CASES = [
    ("meta-llama/Llama-3.1-8B", "0.33.0", EngineFlags()),
    ("google/gemma-3-27b-it", "0.33.0", EngineFlags()),
    ("Qwen/Qwen3.5-27B", "0.28.0", EngineFlags(pipeline_parallel_size=2)),
    ("openai/gpt-oss-20b", "0.19.0", EngineFlags()),
    ("meta-llama/Llama-3.1-8B", "0.6.6", EngineFlags()),
    ("Qwen/Qwen3-8B", "0.33.0", EngineFlags(kv_cache_memory_bytes=3 * 2**30)),
    ("Qwen/Qwen3-8B", "0.33.0", EngineFlags(num_gpu_blocks_override=700)),
]


@pytest.mark.parametrize(("model_id", "version", "flags"), CASES, ids=str)
def test_every_cell_equals_a_plan(model_id, version, flags):
    request = PlanRequest(model_id=model_id, gpu="H100 80GB SXM", vllm_version=version, flags=flags)
    model = facts_for(request, catalogue_documents(model_id))

    table = sweep(request, model, utilizations=UTILIZATIONS, max_model_lens=LENGTHS, variants=((1, "auto"),))[0]

    for row, utilization in enumerate(UTILIZATIONS):
        flags_there = replace(flags, gpu_memory_utilization=utilization, max_model_len=LENGTHS[-1])
        there = plan(replace(request, flags=flags_there), model)
        assert table.num_blocks[row] == there.pool.num_blocks
        assert table.max_concurrency[row, -1] == pytest.approx(there.pool.max_concurrency)
        assert table.fits[row, -1] == there.pool.fits


def test_a_refused_variant_says_why():
    request = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="L4")
    model = facts_for(request, catalogue_documents("Qwen/Qwen3-8B"))

    table = sweep(request, model, utilizations=(0.9,), max_model_lens=(4096,), variants=((3, "auto"),))[0]

    assert table.refusal
    assert table.num_blocks.size == 0


def test_a_variant_that_vllm_refuses_while_starting_says_why():
    request = PlanRequest(model_id="Qwen/Qwen3-8B", gpu="L4", flags=EngineFlags(quantization="fp8"))
    model = facts_for(request, catalogue_documents("Qwen/Qwen3-8B"))

    table = sweep(request, model, utilizations=(0.9,), max_model_lens=(4096,), variants=((1, "auto"),))[0]

    assert "fp8_per_tensor" in table.refusal
