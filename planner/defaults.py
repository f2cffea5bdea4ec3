"""Every flag as vLLM resolves it for the version, card and usage context, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.answer import ResolvedDefault
from planner.facts import Finding
from planner.gpu_catalog import GpuFacts
from planner.request import CompileCache, EngineFlags
from planner.versions import Era, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The flags with nothing left open: what every other planner module reads."""

    version: Version
    era: Era
    runner: Literal["v0", "v1", "v2"]
    compile_cache: CompileCache
    gpu: GpuFacts
    flags: EngineFlags  # as given
    gpu_memory_utilization: float
    max_model_len: int  # tokens; for "auto" the derived length, with `is_auto_length`
    is_auto_length: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    dtype: str  # the model's compute dtype: bfloat16, float16, float32
    kv_cache_dtype: str  # never "auto": "bfloat16", "fp8_e4m3", "turboquant_4bit_nc", ...
    quantization: str | None  # vLLM's method name after resolution, checkpoint's or online
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    is_hybrid_manager_enabled: bool
    async_scheduling: bool
    max_concurrent_batches: int
    max_in_flight_tokens: int
    num_speculative_tokens: int
    cudagraph_mode: str  # NONE, PIECEWISE, FULL, FULL_AND_PIECEWISE, FULL_DECODE_ONLY
    capture_sizes: tuple[int, ...]
    mamba_cache_mode: str  # none, align, all
    tp: int
    pp: int
    dp: int
    ep: int  # ranks that share the experts; 1 without expert parallelism
    dcp: int
    defaults: tuple[ResolvedDefault, ...] = ()
    findings: tuple[Finding, ...] = ()
