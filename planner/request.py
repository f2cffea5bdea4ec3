"""What the user asks: model, card, vLLM version and flags by vLLM's own names; validation and the link that holds it all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

UsageContext = Literal["api_server", "llm_class"]
Runner = Literal["auto", "v1", "v2"]
CompileCache = Literal["unknown", "cold", "warm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeConfig:
    """vLLM's `--speculative-config`: `method` ngram, eagle, eagle3, mtp, draft_model, dflash."""

    method: str
    num_speculative_tokens: int
    model: str | None = None
    draft_tensor_parallel_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """vLLM's flags by their own names. None means "not given": `defaults.resolve` fills in what vLLM would choose."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    decode_context_parallel_size: int = 1
    gpu_memory_utilization: float | None = None  # fraction of the card's CUDA total
    kv_cache_memory_bytes: int | None = None  # bytes per card
    num_gpu_blocks_override: int | None = None
    max_model_len: int | Literal["auto"] | None = None  # tokens
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None  # tokens
    kv_cache_dtype: str = "auto"
    dtype: str = "auto"
    quantization: str | None = None
    enforce_eager: bool = False
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    max_cudagraph_capture_size: int | None = None
    cudagraph_mode: str | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    disable_hybrid_kv_cache_manager: bool | None = None
    async_scheduling: bool | None = None
    cpu_offload_gb: float = 0.0  # GiB per card, as vLLM reads it
    kv_offloading_size: float | None = None  # GiB over all TP ranks
    swap_space: float | None = None  # GiB per card, V0 only
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    fully_sharded_loras: bool = False
    speculative_config: SpeculativeConfig | None = None
    limit_mm_per_prompt: tuple[tuple[str, int], ...] = ()
    language_model_only: bool = False
    skip_mm_profiling: bool = False
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mamba_cache_mode: str | None = None
    performance_mode: str | None = None
    attention_backend: str | None = None
    disable_sliding_window: bool = False
    moe_backend: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """One question: this model on this card with these flags under this vLLM version."""

    model_id: str
    revision: str | None = None
    config_json: str | None = None  # an uploaded config.json, which then stands for the model
    gpu: str | None = None  # a catalogue name; None with `gpu_memory_bytes` set: a custom card
    gpu_memory_bytes: int | None = None  # the CUDA total per card; overrides the catalogue's
    other_processes_bytes: int = 0  # held by others on the card before vLLM starts
    vllm_version: str = "0.33.0"
    usage_context: UsageContext = "api_server"
    model_runner: Runner = "auto"
    compile_cache: CompileCache = "unknown"
    mean_length_tokens: int | None = None  # for the "at a mean length" concurrency figure
    allow_long_max_model_len: bool = False  # VLLM_ALLOW_LONG_MAX_MODEL_LEN=1
    calibration: str | None = None  # the name of the host's own constants to plan with; None: the general ones
    flags: EngineFlags = field(default_factory=EngineFlags)

    @classmethod
    def from_mapping(cls, record: Mapping[str, object]) -> PlanRequest:
        """The request that `record` holds (keys: vLLM's long flag names with underscores, model, gpu, gpu_memory_gib, ...)."""
        from planner.request_mapping import request_from_mapping  # noqa: PLC0415 - the reader imports these types

        return request_from_mapping(record)

    def to_mapping(self) -> dict[str, object]:
        """The record that `from_mapping` turns back into this request; values at their default are left out."""
        from planner.request_mapping import request_to_mapping  # noqa: PLC0415 - it imports these types

        return request_to_mapping(self)

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> PlanRequest:
        """The request of a link; raises `PlanError` for anything that no link of ours holds."""
        from planner.request_query import request_from_query  # noqa: PLC0415 - it imports these types

        return request_from_query(query)

    def to_query(self) -> dict[str, str]:
        """The link's parameters: readable, stable, values at their default left out."""
        from planner.request_query import request_to_query  # noqa: PLC0415 - it imports these types

        return request_to_query(self)
