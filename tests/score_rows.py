"""Rows for tests of the score: a real start as the files of truth hold it, and rows that were scored."""

from __future__ import annotations

from planner.score import Comparison, Scored

LLAMA = {
    "id": "llama",
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "gpu_name": "NVIDIA H100 80GB",
    "gpu_mem_gib_total": 79.19,
    "vllm_version": "0.19.0",
    "evidence": "A log",
    "gpu_memory_utilization": 0.95,
    "max_model_len": 8192,
    "model_load_gib": 14.99,
    "activation_peak_gib": 1.89,
    "non_torch_gib": 0.25,
    "available_kv_gib": 58.11,
    "kv_cache_tokens": 476000,
    "num_gpu_blocks": 29750,
    "max_concurrency": 58.11,
    "max_concurrency_at_len": 8192,
}


def scored(row_id: str, model_id: str, *comparisons: Comparison, fitted_class: str = "one card") -> Scored:
    """A scored row of one L4, predicted and logged as `comparisons` say."""
    return Scored(
        row_id=row_id,
        model_id=model_id,
        family="LlamaForCausalLM",
        version="0.23.0",
        era="0.21 to 0.26",
        gpu="L4",
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        grade="A",
        group="other, version stated",
        comparisons=comparisons,
        total_gib=22.0,
        fitted_class=fitted_class,
        source="https://example.org/log",
    )
