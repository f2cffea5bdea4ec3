"""The form's fields as a table: each of vLLM's flags with its kind, its group and one sentence on what it does.

An empty field means "not given": it shows in grey what vLLM then chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pages.parts.language import mark

Kind = Literal["integer", "number", "choice", "switch", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagField:
    """One flag of `EngineFlags` (or of its `speculative_config`) as a widget: `name` is vLLM's own, with underscores."""

    name: str
    kind: Kind
    meaning: str
    options: tuple[str, ...] = ()
    least: float = 0
    most: float | None = None
    step: float = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldGroup:
    """Fields that stand together under one heading."""

    title: str
    icon: str
    fields: tuple[FlagField, ...]


_KV_DTYPES = (
    "auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "int8_per_token_head",
    "fp8_per_token_head", "int4_per_token_head", "nvfp4", "nvfp4_4over6", "nvfp4_ds_mla", "turboquant_k8v4",
    "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "ultraquant_4bit",
)  # fmt: skip
_QUANTIZATIONS = (
    "fp8", "awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors", "modelopt", "modelopt_fp4", "mxfp4",
    "bitsandbytes", "gguf", "experts_int8",
)  # fmt: skip

MAIN_FIELDS = (
    FlagField(
        name="tensor_parallel_size",
        kind="integer",
        least=1,
        meaning=mark("Cards that share each layer. Weights and KV cache are divided between them."),
    ),
    FlagField(
        name="gpu_memory_utilization",
        kind="number",
        least=0.01,
        most=1.0,
        step=0.01,
        meaning=mark("The part of the card's CUDA total that vLLM may fill."),
    ),
    FlagField(
        name="max_model_len",
        kind="text",
        meaning=mark("The longest request, prompt and answer together, in tokens: 32768, 32k, 32K or auto."),
    ),
    FlagField(
        name="max_num_seqs",
        kind="integer",
        least=1,
        meaning=mark("The most requests in one step. Sets the captured graphs and part of the activation peak."),
    ),
    FlagField(
        name="kv_cache_dtype",
        kind="choice",
        options=_KV_DTYPES,
        meaning=mark("How keys and values are stored. fp8 halves what bfloat16 takes."),
    ),
)

GROUPS = (
    FieldGroup(
        title=mark("Parallelism"),
        icon=":material/hub:",
        fields=(
            FlagField(
                name="pipeline_parallel_size",
                kind="integer",
                least=1,
                meaning=mark("Stages of layers, one after the other, each on its own cards."),
            ),
            FlagField(
                name="data_parallel_size",
                kind="integer",
                least=1,
                meaning=mark("Whole copies of the engine; each has its own KV cache."),
            ),
            FlagField(
                name="enable_expert_parallel",
                kind="switch",
                meaning=mark("Deal whole experts to cards instead of cutting each of them."),
            ),
            FlagField(
                name="decode_context_parallel_size",
                kind="integer",
                least=1,
                meaning=mark("Cards of one TP group that share a request's KV cache along its tokens."),
            ),
        ),
    ),
    FieldGroup(
        title=mark("Memory"),
        icon=":material/memory:",
        fields=(
            FlagField(
                name="kv_cache_memory_bytes",
                kind="text",
                meaning=mark(
                    "The pool's size per card, given outright; utilization is then ignored. Suffixes k, m, g (decimal) "
                    "and K, M, G (binary)."
                ),
            ),
            FlagField(
                name="num_gpu_blocks_override",
                kind="integer",
                least=1,
                meaning=mark("The number of blocks, whatever the memory would allow."),
            ),
            FlagField(
                name="cpu_offload_gb",
                kind="number",
                step=1.0,
                meaning=mark("GiB of weights per card that stay in the host's memory."),
            ),
            FlagField(
                name="kv_offloading_size",
                kind="number",
                step=1.0,
                meaning=mark("GiB of host memory for KV blocks, over all TP ranks."),
            ),
            FlagField(
                name="swap_space",
                kind="number",
                step=1.0,
                meaning=mark("GiB of host memory per card for swapped requests (V0 only)."),
            ),
        ),
    ),
    FieldGroup(
        title=mark("Lengths and batching"),
        icon=":material/straighten:",
        fields=(
            FlagField(
                name="max_num_batched_tokens",
                kind="integer",
                least=1,
                meaning=mark("The most tokens in one step. Drives the activation peak."),
            ),
            FlagField(
                name="enable_chunked_prefill",
                kind="switch",
                meaning=mark("Cut long prompts into steps instead of running each in one."),
            ),
            FlagField(
                name="async_scheduling",
                kind="switch",
                meaning=mark("Prepare the next step while the last one runs. Sliding windows then keep more tokens."),
            ),
            FlagField(
                name="performance_mode",
                kind="choice",
                options=("balanced", "interactivity", "throughput"),
                meaning=mark("A preset that changes batch limits and captured graph sizes."),
            ),
        ),
    ),
    FieldGroup(
        title=mark("KV cache"),
        icon=":material/grid_view:",
        fields=(
            FlagField(name="block_size", kind="integer", least=1, meaning=mark("Tokens in one block.")),
            FlagField(
                name="enable_prefix_caching",
                kind="switch",
                meaning=mark("Keep blocks of finished requests for prompts that begin alike."),
            ),
            FlagField(
                name="disable_hybrid_kv_cache_manager",
                kind="switch",
                meaning=mark("Treat sliding-window layers as full ones; they then cost the full length."),
            ),
            FlagField(
                name="disable_sliding_window",
                kind="switch",
                meaning=mark("Cap the length at the window instead of using the window."),
            ),
            FlagField(
                name="mamba_cache_mode",
                kind="choice",
                options=("none", "align", "all"),
                meaning=mark("What of the recurrent state is kept for prefix caching."),
            ),
            FlagField(
                name="mamba_cache_dtype",
                kind="choice",
                options=("auto", "float32", "float16", "bfloat16"),
                meaning=mark("How the convolution state of recurrent layers is stored."),
            ),
            FlagField(
                name="mamba_ssm_cache_dtype",
                kind="choice",
                options=("auto", "float32", "float16", "bfloat16"),
                meaning=mark("How the recurrent state itself is stored."),
            ),
        ),
    ),
    FieldGroup(
        title=mark("Weights and number format"),
        icon=":material/scale:",
        fields=(
            FlagField(
                name="dtype",
                kind="choice",
                options=("auto", "bfloat16", "float16", "float32"),
                meaning=mark("The format computed in; auto takes the checkpoint's."),
            ),
            FlagField(
                name="quantization",
                kind="choice",
                options=_QUANTIZATIONS,
                meaning=mark("How weights are stored. Empty takes the checkpoint's; fp8 quantises while loading."),
            ),
            FlagField(
                name="language_model_only",
                kind="switch",
                meaning=mark("Leave the image, audio and video encoders out."),
            ),
            FlagField(
                name="limit_mm_per_prompt",
                kind="text",
                meaning=mark("Items of each kind in one prompt: image=2, video=0."),
            ),
            FlagField(
                name="skip_mm_profiling",
                kind="switch",
                meaning=mark("Leave the encoders' activation out of the budget."),
            ),
        ),
    ),
    FieldGroup(
        title=mark("Graphs and execution"),
        icon=":material/bolt:",
        fields=(
            FlagField(
                name="enforce_eager",
                kind="switch",
                meaning=mark("No compilation and no CUDA graphs: slower, and their memory is left for the cache."),
            ),
            FlagField(
                name="cudagraph_mode",
                kind="choice",
                options=("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"),
                meaning=mark("Which graphs are captured."),
            ),
            FlagField(
                name="max_cudagraph_capture_size",
                kind="integer",
                least=1,
                meaning=mark("The largest batch that gets a graph."),
            ),
            FlagField(
                name="cudagraph_capture_sizes",
                kind="text",
                meaning=mark("The batch sizes to capture, one after the other: 1 2 4 8."),
            ),
            FlagField(
                name="moe_backend",
                kind="choice",
                options=(
                    "auto",
                    "triton",
                    "deep_gemm",
                    "cutlass",
                    "flashinfer_trtllm",
                    "flashinfer_cutlass",
                    "marlin",
                    "aiter",
                ),
                meaning=mark("The kernels of routed experts; some pad or copy their weights."),
            ),
            FlagField(
                name="attention_backend",
                kind="choice",
                options=(
                    "FLASH_ATTN",
                    "FLASHINFER",
                    "TRITON_ATTN",
                    "FLASHMLA",
                    "FLASHINFER_MLA",
                    "CUTLASS_MLA",
                    "FLEX_ATTENTION",
                ),
                meaning=mark("The attention kernels; some fix the block size."),
            ),
        ),
    ),
    FieldGroup(
        title="LoRA",
        icon=":material/layers:",
        fields=(
            FlagField(name="enable_lora", kind="switch", meaning=mark("Reserve room for adapters beside the weights.")),
            FlagField(name="max_loras", kind="integer", least=1, meaning=mark("Adapters in one batch.")),
            FlagField(name="max_lora_rank", kind="integer", least=1, meaning=mark("The largest rank of an adapter.")),
            FlagField(
                name="fully_sharded_loras",
                kind="switch",
                meaning=mark("Divide both halves of each adapter between the cards."),
            ),
        ),
    ),
)

# The parts of --speculative-config, each under its own key.
SPECULATIVE_FIELDS = (
    FlagField(
        name="method",
        kind="choice",
        options=("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"),
        meaning=mark("How tokens are guessed ahead. Empty: no speculative decoding."),
    ),
    FlagField(
        name="num_speculative_tokens",
        kind="integer",
        least=1,
        meaning=mark("Tokens guessed in each step."),
    ),
    FlagField(
        name="model",
        kind="text",
        meaning=mark("The draft model or EAGLE head. MTP and ngram need none."),
    ),
    FlagField(
        name="draft_tensor_parallel_size",
        kind="integer",
        least=1,
        meaning=mark("Cards that share the draft model."),
    ),
)

ALL_FIELDS = (*MAIN_FIELDS, *(field for group in GROUPS for field in group.fields))
