"""The attention backend that vLLM chooses for a model and card, and the tokens in a KV block that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.kv_dtypes import is_packed, is_quantized
from planner.units import div_ceil
from planner.versions import Version

DEFAULT_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendQuestion:
    """What decides the backend: the model's attention and the card."""

    version: Version
    vendor: str
    capability: tuple[int, int] | None  # CUDA; None elsewhere
    kv_cache_dtype: str
    head_sizes: tuple[int, ...]
    is_mla: bool = False
    is_sparse: bool = False  # DSA: an indexer picks the tokens
    is_block_sparse: bool = False  # MiniMax-M3: attention picks blocks, each a KV page
    is_deepseek_v4: bool = False
    is_image_prefix: bool = False  # image tokens attend both ways
    num_heads: int = 0  # query heads of a rank
    nope_head_dim: int = 128
    chosen: str | None = None  # --attention-backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A backend by vLLM's name: the block it prefers and the smallest its kernels take."""

    name: str
    block_tokens: int
    kernel_tokens: int


_MLA_BLOCKS = {
    "FLASH_ATTN_MLA": 16,
    "TRITON_MLA": 16,
    "FLASHINFER_MLA": 32,
    "TOKENSPEED_MLA": 32,
    "FLASHMLA": 64,
    "CUTLASS_MLA": 128,
    "CPU_MLA": 16,
    "ROCM_AITER_MLA": 16,
}
_FREE_MLA_CHOICE = Version(0, 16, 0)  # 0.14.0 forces FLASHMLA or CUTLASS_MLA, 0.19.0 goes by priority


def choose_backend(question: BackendQuestion) -> Backend:
    """The backend and its block sizes, by the priorities of vLLM's platform for the card."""
    if question.is_deepseek_v4:
        return Backend(name="FLASHMLA_SPARSE_DSV4", block_tokens=256, kernel_tokens=64)
    if question.is_block_sparse:
        return Backend(name="MINIMAX_M3_SPARSE", block_tokens=128, kernel_tokens=128)
    if question.is_sparse:
        return Backend(name=_sparse_name(question), block_tokens=64, kernel_tokens=64)
    if question.is_mla:
        name = question.chosen if question.chosen in _MLA_BLOCKS else _mla_name(question)
        tokens = _MLA_BLOCKS[name]
        return Backend(name=name, block_tokens=tokens, kernel_tokens=tokens)
    return _dense(question)


def _sparse_name(question: BackendQuestion) -> str:
    major = question.capability[0] if question.capability is not None else None
    if major == 10 and (is_quantized(question.kv_cache_dtype) or question.num_heads <= 16):
        return "FLASHINFER_MLA_SPARSE"
    if major == 9 and not is_quantized(question.kv_cache_dtype) and question.version >= (0, 27, 0):
        return "FLASH_ATTN_MLA_SPARSE"
    if major == 9 and question.kv_cache_dtype == "fp8_e4m3" and question.version >= (0, 33, 0):
        return "FLASHINFER_MLA_SPARSE_SM90"
    return "FLASHMLA_SPARSE"


def _mla_name(question: BackendQuestion) -> str:
    if question.capability is None:
        return {"AMD": "TRITON_MLA", "CPU": "CPU_MLA"}.get(question.vendor, "TRITON_MLA")
    major = question.capability[0]
    is_per_head = question.kv_cache_dtype.endswith("_per_token_head")
    if major == 10 and not is_per_head:
        has_flashinfer = question.version >= _FREE_MLA_CHOICE and question.nope_head_dim in (64, 128, 192)
        return "FLASHINFER_MLA" if has_flashinfer else "CUTLASS_MLA"
    if major == 9 and not is_per_head:
        prefers_flash_attn = question.version >= _FREE_MLA_CHOICE and not is_quantized(question.kv_cache_dtype)
        return "FLASH_ATTN_MLA" if prefers_flash_attn else "FLASHMLA"
    return "TRITON_MLA"


def _dense(question: BackendQuestion) -> Backend:
    major = question.capability[0] if question.capability is not None else None
    widest = max(question.head_sizes, default=0)
    # FlashAttention 4's FP8 kernel for heads of 512 reads tiles of 64 tokens.
    is_wide_fp8 = major == 9 and widest == 512 and question.kv_cache_dtype in ("fp8", "fp8_e4m3")
    if question.vendor == "Intel" or is_wide_fp8:
        return Backend(name="FLASH_ATTN", block_tokens=64, kernel_tokens=64)
    if question.vendor == "CPU":
        return Backend(name="CPU_ATTN", block_tokens=128 if question.version < (0, 28, 0) else 32, kernel_tokens=32)
    if is_packed(question.kv_cache_dtype):
        is_ultra = question.kv_cache_dtype == "ultraquant_4bit"
        name = "ULTRAQUANT" if is_ultra else "TURBOQUANT"
        return Backend(name=name, block_tokens=64 if is_ultra else 16, kernel_tokens=16)
    if question.is_image_prefix and major == 10 and widest in (256, 512):
        return Backend(name="TRITON_FLASHINFER", block_tokens=64, kernel_tokens=64)
    name = "FLASHINFER" if major == 10 and not question.is_image_prefix else "FLASH_ATTN"
    # FlashInfer could not serve heads of 256 in blocks of 16 on Blackwell; hybrids stepped by 32 from 0.12 to 0.17.
    is_stepped = name == "FLASHINFER" and widest == 256 and (0, 12, 0) <= question.version < (0, 18, 0)
    return Backend(name=name, block_tokens=DEFAULT_BLOCK_TOKENS, kernel_tokens=32 if is_stepped else 16)


def is_large_block_allowed(backend: Backend) -> bool:
    """Whether the backend's kernels take any multiple of their smallest block (FlashInfer has a fixed list)."""
    return backend.name not in ("FLASHINFER", "TURBOQUANT")


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridPages:
    """What the block of a hybrid model follows from: one sequence's state and one token of attention, of one layer."""

    version: Version
    backend: Backend
    block_tokens: int  # asked for, or the backend's
    state_bytes: int
    attention_bytes_per_token: int
    is_mla: bool = False
    state_grid_tokens: int = 1  # states are kept on multiples of this
    chunk_tokens: int | None = None  # the scan's chunk, where a state is kept every block (cache mode "all")


def align_hybrid_block(pages: HybridPages) -> int:
    """The smallest attention block whose page holds a recurrent state.

    block = align * ceil(state / (align * attention bytes a token)), align the kernels' smallest block (MLA: 64 or 128),
    or the block asked for where that is larger.
    """
    align = pages.backend.kernel_tokens
    if pages.version >= (0, 20, 0):
        align = max(align, pages.block_tokens)
    if pages.is_mla:
        align = max(align, 128 if pages.version >= (0, 27, 0) else 64)
    align = math.lcm(align, pages.state_grid_tokens, pages.chunk_tokens or 1)
    needed = align * div_ceil(pages.state_bytes, align * pages.attention_bytes_per_token)
    return max(pages.block_tokens, needed)


def align_packed_block(*, block_tokens: int, kernel_tokens: int, packed_bytes: int, native_bytes: int) -> int:
    """The block size at which a packed cache's page covers the smallest page of the unquantised boundary layers."""
    align = max(kernel_tokens, block_tokens)
    return max(block_tokens, align * div_ceil(native_bytes * kernel_tokens, align * packed_bytes))
