"""The names that vLLM has, or had, for attention and MoE kernels (its enums in releases from 0.6.6 to 0.33.0)."""

from __future__ import annotations

from planner.request_values import refuse

_ATTENTION = frozenset({
    "AMX_MLA", "B12X", "BLOCK_SPARSE_FLASH_ATTN", "CPU_ATTN", "CPU_MLA", "CUSTOM", "CUTLASS_MLA", "CUTLASS_MSA",
    "DIFFERENTIAL_FLASH_ATTN", "DUAL_CHUNK_FLASH_ATTN", "FLASHINFER", "FLASHINFER_MLA", "FLASHINFER_MLA_SPARSE",
    "FLASHINFER_MLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV41", "FLASHINFER_MLA_SPARSE_SM120",
    "FLASHINFER_MLA_SPARSE_SM90", "FLASHMLA", "FLASHMLA_MEGA_ATTN_DSV41", "FLASHMLA_SPARSE",
    "FLASHMLA_SPARSE_DSV4", "FLASHMLA_SPARSE_DSV41", "FLASH_ATTN", "FLASH_ATTN_DIFFKV", "FLASH_ATTN_MLA",
    "FLASH_ATTN_MLA_SPARSE", "FLASH_ATTN_MLA_SPARSE_FA4", "FLASH_ATTN_VLLM_V1", "FLEX_ATTENTION", "HPC_ATTN",
    "HPU_ATTN", "IPEX", "MINIMAX_M3_SPARSE", "NO_ATTENTION", "OPENVINO", "PALLAS", "PALLAS_VLLM_V1",
    "ROCM_AITER_FA", "ROCM_AITER_MLA", "ROCM_AITER_MLA_SPARSE", "ROCM_AITER_TRITON_MLA",
    "ROCM_AITER_UNIFIED_ATTN", "ROCM_ATTN", "ROCM_FLASH", "ROCM_FLASHMLA_SPARSE_DSV4",
    "ROCM_FLASHMLA_SPARSE_DSV41", "ROCM_OCTAVE", "ROCM_SEGMENTED_ATTN", "STEP5_DSA", "TOKENSPEED_MLA",
    "TORCH_SDPA", "TREE_ATTN", "TRITON_ATTN", "TRITON_ATTN_DIFFKV", "TRITON_ATTN_VLLM_V1", "TRITON_FLASHINFER",
    "TRITON_FLASH_ATTN", "TRITON_MLA", "TRITON_MSA", "TURBOQUANT", "ULTRAQUANT", "XFORMERS", "XPU_MLA_SPARSE",
})  # fmt: skip
_MOE = frozenset({
    "aiter", "aiter_mega_moe", "aiter_triton_mxfp4_bf16", "aiter_triton_mxfp4_mxfp4", "auto", "b12x",
    "batched_triton", "cutlass", "deep_gemm", "deep_gemm_mega_moe", "emulation", "flashinfer_b12x",
    "flashinfer_cutedsl", "flashinfer_cutlass", "flashinfer_moe_ep_cutedsl", "flashinfer_moe_ep_mega_cutedsl",
    "flashinfer_moe_ep_mega_deep_gemm", "flashinfer_trtllm", "flydsl", "hpc", "humming", "marlin", "rdna3",
    "triton", "triton_unfused",
})  # fmt: skip


def read_attention_backend(name: str, value: object) -> str | None:
    """The backend's name in capitals, as vLLM reads it; None for auto."""
    backend = str(value).strip().upper()
    if backend == "AUTO":
        return None
    if backend not in _ATTENTION:
        raise refuse(name, value, "a backend of vLLM, such as FLASH_ATTN, FLASHINFER, TRITON_ATTN or FLASHMLA")
    return backend


def read_moe_backend(name: str, value: object) -> str:
    """The backend's name in small letters with underscores, as vLLM reads it."""
    backend = str(value).strip().lower().replace("-", "_")
    if backend not in _MOE:
        raise refuse(name, value, f"one of {', '.join(sorted(_MOE))}")
    return backend
