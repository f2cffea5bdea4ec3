"""Flags that vLLM refuses for a model or a release: each refusal names the flag and says what is allowed."""

from __future__ import annotations

from planner.dtype_rules import check_kv_dtype, check_quantization
from planner.facts import PlanError
from planner.families.retired import LAST_RELEASE
from planner.graph_sizes import MODES
from planner.inventory import ModelFacts
from planner.request import EngineFlags
from planner.versions import Version

_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_OLD_BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
_ATTENTION_KINDS = frozenset({"full", "sliding", "chunked", "mla", "cross"})
_PERFORMANCE_MODES = ("balanced", "interactivity", "throughput")
_DUAL_CHUNK = "dual_chunk_attention_config"
_MAMBA_MODES = ("none", "align", "all")


def total_kv_heads(model: ModelFacts) -> int:
    """The most KV heads of any attention layer, 1 for MLA, 0 for a model without attention."""
    if model.is_mla:
        return 1
    kinds = (cache for layer in model.layers for cache in layer.caches if cache.kind in _ATTENTION_KINDS)
    return max((cache.num_kv_heads for cache in kinds), default=0)


def is_attention_free(model: ModelFacts) -> bool:
    """Whether no layer keeps an attention cache (pure Mamba)."""
    return not any(cache.kind in _ATTENTION_KINDS for layer in model.layers for cache in layer.caches)


def check_flags(flags: EngineFlags, model: ModelFacts, version: Version) -> None:
    """Raise `PlanError` for the first flag that vLLM would refuse with this model in this release."""
    _check_numbers(flags)
    _check_class(model, version)
    _check_dual_chunk(model, version)
    _check_parallel(flags, model)
    _check_context_parallel(flags, model)
    _check_block_size(flags, version)
    _check_lora(flags, version)
    _check_choice("cudagraph_mode", flags.cudagraph_mode, MODES)
    _check_choice("performance_mode", flags.performance_mode, _PERFORMANCE_MODES)
    mamba_modes = _MAMBA_MODES if version < (0, 32, 0) else _MAMBA_MODES[:2]
    _check_choice("mamba_cache_mode", flags.mamba_cache_mode, mamba_modes)
    if flags.max_model_len == "auto" and version < (0, 14, 0):
        raise PlanError("max_model_len", "auto", "max_model_len auto came with vLLM 0.14; write a number.")
    check_kv_dtype(flags.kv_cache_dtype, version)
    if flags.quantization is not None:
        check_quantization(flags.quantization)


def _check_class(model: ModelFacts, version: Version) -> None:
    last = LAST_RELEASE.get(model.architecture)
    if last is not None and version[:3] > last:
        release = ".".join(map(str, last))
        text = (
            f"Model architecture {model.architecture} was supported in vLLM until v{release}, and is not supported "
            f"anymore; plan for {release} with vllm_version."
        )
        raise PlanError("architectures", model.architecture, text)


def _check_dual_chunk(model: ModelFacts, version: Version) -> None:
    """Dual chunk attention (Qwen2.5-1M) left with the V0 engine; its settings still reach the attention classes."""
    if version >= (0, 11, 0) and model.architecture.startswith("Qwen") and model.text_config.get(_DUAL_CHUNK):
        text = (
            "From vLLM 0.11 on, no attention backend takes dual_chunk_attention_config (FlashAttentionImpl.__init__() got "
            "an unexpected keyword argument 'layer_idx'); remove it from config.json."
        )
        raise PlanError(_DUAL_CHUNK, None, text)


def _check_choice(field: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise PlanError(field, value, f"{field} is {value!r:.40}; vLLM takes {', '.join(allowed)}.")


_LEAST_ONE = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "num_gpu_blocks_override",
    "max_loras",
    "max_lora_rank",
)
_LEAST_ZERO = (
    "kv_cache_memory_bytes",
    "cpu_offload_gb",
    "kv_offloading_size",
    "swap_space",
    "max_cudagraph_capture_size",
)
_LARGEST = 2**50
# Classes that never took vLLM's SupportsPP interface (read in 0.8 to 0.32).
_WITHOUT_PIPELINE = frozenset({
    "BertForSequenceClassification", "BertModel", "Gemma3TextModel", "Gemma3nForCausalLM",
    "Gemma3nForConditionalGeneration", "GteModel", "GteNewForSequenceClassification", "GteNewModel",
    "Idefics3ForConditionalGeneration",
    "Mamba2ForCausalLM", "ModernBertForSequenceClassification", "ModernBertModel", "NemotronH_Nano_VL_V2",
    "NomicBertModel",
    "PaddleOCRVLForConditionalGeneration", "Phi4MMForCausalLM", "RobertaForSequenceClassification", "RobertaModel",
    "SmolVLMForConditionalGeneration", "WhisperForConditionalGeneration", "XLMRobertaForSequenceClassification",
    "XLMRobertaModel", "Zamba2ForCausalLM",
})  # fmt: skip

# Classes that tie head and input table whatever their pipeline rank, and stop where it holds one of the two.
_TIED_ON_ONE_STAGE = frozenset({"Ernie4_5_VLMoeForConditionalGeneration"})


def _check_numbers(flags: EngineFlags) -> None:
    for least, names in ((1, _LEAST_ONE), (0, _LEAST_ZERO)):
        for name in names:
            value = getattr(flags, name)
            if value is not None and not least <= value <= _LARGEST:
                raise PlanError(name, value, f"{name} is {value}; write a number of at least {least}.")
    length = flags.max_model_len
    if length is not None and length != "auto" and not 1 <= length <= _LARGEST:
        raise PlanError("max_model_len", length, f"max_model_len is {length}; write a number of at least 1, or auto.")
    utilization = flags.gpu_memory_utilization
    if utilization is not None and not 0 < utilization <= 1:
        text = f"gpu_memory_utilization is {utilization:g}; write a fraction above 0 and up to 1, such as 0.9."
        raise PlanError("gpu_memory_utilization", utilization, text)


def _check_parallel(flags: EngineFlags, model: ModelFacts) -> None:
    heads, tp, pp = model.num_attention_heads, flags.tensor_parallel_size, flags.pipeline_parallel_size
    if heads and heads % tp:
        fitting = ", ".join(str(size) for size in range(1, min(heads, 64) + 1) if heads % size == 0)
        text = (
            f"Total number of attention heads ({heads}) must be divisible by tensor parallel size ({tp}); "
            f"{fitting} fit."
        )
        raise PlanError("tensor_parallel_size", tp, text)
    if pp > 1 and model.architecture in _WITHOUT_PIPELINE:
        text = f"Pipeline parallelism is not supported for {model.architecture}; use tensor_parallel_size instead."
        raise PlanError("pipeline_parallel_size", pp, text)
    if pp > 1 and model.ties_embeddings and model.architecture in _TIED_ON_ONE_STAGE:
        text = f"{model.architecture} ties its head to a table that only the first stage has; use tensor_parallel_size instead."
        raise PlanError("pipeline_parallel_size", pp, text)
    if pp > len(model.layers):
        text = f"pipeline_parallel_size {pp} is more than the model's {len(model.layers)} layers; a stage needs one."
        raise PlanError("pipeline_parallel_size", pp, text)
    if flags.enable_expert_parallel and not model.is_moe:
        text = (
            "Number of experts in the model must be greater than 0 when expert parallelism is enabled; drop the flag."
        )
        raise PlanError("enable_expert_parallel", value=True, text=text)


def _check_context_parallel(flags: EngineFlags, model: ModelFacts) -> None:
    tp, dcp = flags.tensor_parallel_size, flags.decode_context_parallel_size
    if dcp == 1:
        return
    if tp % dcp:
        text = f"tp_size={tp} must be divisible by dcp_size={dcp}; lower --decode-context-parallel-size."
        raise PlanError("decode_context_parallel_size", dcp, text)
    kv_heads = total_kv_heads(model)
    if model.is_mla or not kv_heads:
        return
    most = tp // kv_heads if tp > kv_heads else 1
    per_kv_head = model.num_attention_heads // kv_heads
    if dcp > most or per_kv_head % dcp:
        text = (
            f"decode_context_parallel_size {dcp} is too large: with tensor_parallel_size {tp} and {kv_heads} KV heads it "
            f"may be at most {most} and must divide the {per_kv_head} query heads per KV head."
        )
        raise PlanError("decode_context_parallel_size", dcp, text)


def _check_block_size(flags: EngineFlags, version: Version) -> None:
    size = flags.block_size
    if size is None:
        return
    if version < (0, 17, 0) and size not in _OLD_BLOCK_SIZES:
        allowed = ", ".join(map(str, _OLD_BLOCK_SIZES))
        raise PlanError("block_size", size, f"block_size is {size}; this release takes {allowed}.")
    if version >= (0, 8, 0) and size % 16:
        text = f"block_size is {size}; the attention backends of vLLM on GPUs take multiples of 16."
        raise PlanError("block_size", size, text)


def _check_lora(flags: EngineFlags, version: Version) -> None:
    allowed = _LORA_RANKS if version >= (0, 14, 0) else _LORA_RANKS[1:]
    if flags.enable_lora and flags.max_lora_rank not in allowed:
        text = f"max_lora_rank ({flags.max_lora_rank}) must be one of {', '.join(map(str, allowed))}."
        raise PlanError("max_lora_rank", flags.max_lora_rank, text)
