"""What turns a model's caches into specs on one rank: KV dtype, backend, block size, heads after TP.

The backends' packing and the platform's block size are decided here, once for all layers; `kv_specs` makes the specs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from planner.defaults import Resolved
from planner.inventory import Cache, ModelFacts
from planner.kv_block_size import (
    Backend,
    BackendQuestion,
    HybridPages,
    align_hybrid_block,
    align_packed_block,
    choose_backend,
)
from planner.kv_dtypes import KvUse, content_bytes, is_packed, is_quantized, mla_content_bytes
from planner.kv_states import STATE_KINDS, state_bytes
from planner.versions import Version

_GDN_STATE_GRID = 64  # tokens; FlashInfer's GDN prefill exports states on this grid (0.33)
_DEFAULT_CHUNK_TOKENS = 2048  # what vLLM takes where a config names no chunk of the scan
_IMAGE_PREFIX_FAMILIES = ("Gemma3", "Gemma4", "PaliGemma")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CacheContext:
    """What turns a `Cache` into a spec."""

    model: ModelFacts
    resolved: Resolved
    backend: Backend
    kv_format: str
    block_tokens: int
    attention_page_bytes: int | None = None  # hybrids: the page that states are padded to

    @property
    def version(self) -> Version:
        return self.resolved.version


def cache_context(model: ModelFacts, resolved: Resolved) -> CacheContext:
    """The context of `model` on the card: the asked KV dtype and block size after the backend and the platform had their say."""
    kv_format = asked_format(model, resolved)
    backend = choose_backend(backend_question(model, resolved, kv_format))
    if backend.name == "FLASHMLA_SPARSE" and is_quantized(kv_format) and kv_format != "nvfp4_ds_mla":
        kv_format = "fp8_ds_mla"  # the one quantised layout of that backend
    asked = resolved.flags.block_size
    context = CacheContext(
        model=model,
        resolved=resolved,
        backend=backend,
        kv_format=kv_format,
        block_tokens=backend.block_tokens if asked is None else asked,
    )
    return _with_hybrid_block(_with_packed_block(context))


def asked_format(model: ModelFacts, resolved: Resolved) -> str:
    """The KV dtype before the backend has its say: sparse MLA on Hopper knows "fp8" as another name of fp8_ds_mla."""
    capability = resolved.gpu.capability
    is_hopper_sparse = capability is not None and capability[0] == 9 and has_kind(model, "indexer")
    is_alias = resolved.flags.kv_cache_dtype == "fp8" and is_hopper_sparse and resolved.version < (0, 33, 0)
    return "fp8_ds_mla" if is_alias else resolved.kv_cache_dtype


def kv_use(model: ModelFacts, resolved: Resolved) -> KvUse:
    """What decides whether the card stores a KV dtype for this model."""
    return KvUse(
        version=resolved.version,
        vendor=resolved.gpu.vendor,
        capability=resolved.gpu.capability,
        is_mla=has_kind(model, "mla"),
        is_sparse=has_kind(model, "indexer"),
        weights_method=resolved.quantization,
    )


def backend_question(model: ModelFacts, resolved: Resolved, kv_format: str) -> BackendQuestion:
    """What vLLM asks its attention backends about, for caches stored as `kv_format`."""
    caches = distinct_caches(model)
    kinds = {cache.kind for cache in caches}
    is_prefix = model.is_multimodal and model.architecture.startswith(_IMAGE_PREFIX_FAMILIES)
    return BackendQuestion(
        version=resolved.version,
        vendor=resolved.gpu.vendor,
        capability=resolved.gpu.capability,
        kv_cache_dtype=kv_format,
        head_sizes=tuple(sorted({cache.head_size for cache in caches if cache.head_size})),
        is_mla="mla" in kinds,
        is_sparse="indexer" in kinds,
        is_block_sparse="index_keys" in kinds,
        is_deepseek_v4="deepseek_v4" in kinds,
        is_image_prefix=is_prefix,
        num_heads=max(model.num_attention_heads // resolved.tp, 1),
        nope_head_dim=model.mla_nope_head_dim,
        chosen=resolved.flags.attention_backend,
    )


def has_kind(model: ModelFacts, kind: str) -> bool:
    """Whether a layer of `model` keeps a cache of `kind`."""
    return kind in _kinds(model)


@lru_cache(maxsize=64)
def distinct_caches(model: ModelFacts) -> tuple[Cache, ...]:
    """The caches of all layers, each different one once, in the order of the layers."""
    seen: dict[int, Cache] = {}
    for layer in model.layers:
        for cache in layer.caches:
            seen.setdefault(id(cache), cache)
    return tuple(dict.fromkeys(seen.values()))


def kv_heads(context: CacheContext, cache: Cache) -> int:
    """The KV heads of `cache` on one rank: divided by TP, and one where TP is more than there are."""
    return max(1, cache.num_kv_heads // context.resolved.tp)


def exports_gdn_states(context: CacheContext) -> bool:
    """Whether FlashInfer prefills the gated delta nets and so keeps a checkpoint more (0.33, Hopper and Blackwell)."""
    is_new = context.version >= (0, 33, 0) and context.resolved.mamba_cache_mode == "align"
    return is_new and is_hopper_on(context.resolved) and has_kind(context.model, "gdn")


def is_hopper_on(resolved: Resolved) -> bool:
    """Whether the card is of Hopper or Blackwell, the generations with these kernels (capability 9, 10 or 12)."""
    capability = resolved.gpu.capability
    return capability is not None and capability[0] in (9, 10, 12)


@lru_cache(maxsize=64)
def _kinds(model: ModelFacts) -> frozenset[str]:
    return frozenset(cache.kind for cache in distinct_caches(model))


def _replaced(context: CacheContext, block_tokens: int, attention_page_bytes: int | None) -> CacheContext:
    return CacheContext(
        model=context.model,
        resolved=context.resolved,
        backend=context.backend,
        kv_format=context.kv_format,
        block_tokens=block_tokens,
        attention_page_bytes=attention_page_bytes,
    )


def _first_attention(model: ModelFacts) -> Cache | None:
    kinds = ("full", "mla", "sliding", "chunked")
    caches = distinct_caches(model)
    return next((cache for kind in kinds for cache in caches if cache.kind == kind), None)


def _bytes_per_token(context: CacheContext, cache: Cache, kv_format: str) -> int:
    if cache.kind == "mla":
        return mla_content_bytes(kv_format, cache.head_size)
    return kv_heads(context, cache) * content_bytes(kv_format, cache.head_size, cache.head_size_v)


def _with_packed_block(context: CacheContext) -> CacheContext:
    cache = _first_attention(context.model)
    has_boundary = is_packed(context.kv_format) and not context.model.is_hybrid and cache is not None
    if not has_boundary or cache is None or context.version < (0, 24, 0):
        return context
    block = align_packed_block(
        block_tokens=context.block_tokens,
        kernel_tokens=context.backend.kernel_tokens,
        packed_bytes=_bytes_per_token(context, cache, context.kv_format),
        native_bytes=_bytes_per_token(context, cache, context.resolved.dtype),
    )
    return _replaced(context, block, None)


def _with_hybrid_block(context: CacheContext) -> CacheContext:
    states = [cache for cache in distinct_caches(context.model) if cache.kind in STATE_KINDS]
    attention = _first_attention(context.model)
    if not states or attention is None or context.resolved.runner == "v0":
        return context
    per_token = _bytes_per_token(context, attention, context.kv_format)
    block = align_hybrid_block(
        HybridPages(
            version=context.version,
            backend=context.backend,
            block_tokens=context.block_tokens,
            state_bytes=max(state_bytes(context.model, context.resolved, cache) for cache in states),
            attention_bytes_per_token=per_token,
            is_mla=attention.kind == "mla",
            state_grid_tokens=_GDN_STATE_GRID if exports_gdn_states(context) else 1,
            chunk_tokens=_chunk_tokens(context),
        )
    )
    return _replaced(context, block, block * per_token)


def _chunk_tokens(context: CacheContext) -> int | None:
    """The scan's chunk that blocks are a multiple of in cache mode "all"; Mamba 1 has none and takes 2048."""
    if context.resolved.mamba_cache_mode != "all":
        return None
    text = context.model.text_config
    named = next((text[key] for key in ("mamba_chunk_size", "chunk_size") if text.get(key)), None)
    return named if isinstance(named, int) and named > 0 else _DEFAULT_CHUNK_TOKENS
