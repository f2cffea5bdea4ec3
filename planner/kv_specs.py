"""A model's caches as layer specs of one rank: heads after TP, bytes by KV dtype, block size, state pages, drafts.

What vLLM's attention and state layers answer to `get_kv_cache_spec`, together with the backends' packing and the platform's
block size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from planner.defaults import Resolved
from planner.facts import Finding
from planner.inventory import Cache, ModelFacts
from planner.kv_block_size import (
    Backend,
    BackendQuestion,
    HybridPages,
    align_hybrid_block,
    align_packed_block,
    choose_backend,
    is_large_block_allowed,
)
from planner.kv_drafts import draft_caches
from planner.kv_dtypes import (
    KvUse,
    check_kv_cache_dtype,
    content_bytes,
    is_packed,
    is_quantized,
    mla_content_bytes,
)
from planner.kv_groups import PlacedSpec
from planner.kv_states import STATE_KINDS, state_bytes
from planner.layer_specs import (
    ChunkedSpec,
    CrossSpec,
    FullSpec,
    LayerSpec,
    MambaSpec,
    MlaSpec,
    SlidingMlaSpec,
    SlidingSpec,
)
from planner.parallel import layer_ranges
from planner.units import round_up
from planner.versions import Version

_OUTSIDE_V0_POOL = STATE_KINDS | {"cross"}  # V0 kept states and encoder outputs in tensors of their own
_NO_CACHE = frozenset({"shared", "none", "encoder_only"})
_V4_PAGE_MULTIPLE = 576  # bytes; FlashMLA's packing of fp8_ds_mla
_NUM_BOUNDARY_LAYERS = 2  # packed KV dtypes leave the first and last two layers unquantised
_GDN_STATE_GRID = 64  # tokens; FlashInfer's GDN prefill exports states on this grid (0.33)
_DEFAULT_CHUNK_TOKENS = 2048
_IMAGE_PREFIX_FAMILIES = ("Gemma3", "Gemma4", "PaliGemma")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCaches:
    """The layers' specs with their pipeline stages, in the order in which vLLM builds the layers.

    Whether a backend of the card stores the KV dtype at all is `cache_refusal`'s to say.
    """

    layers: tuple[PlacedSpec, ...]
    backend: Backend
    is_block_outermost: bool = False
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Context:
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


def model_caches(model: ModelFacts, resolved: Resolved) -> ModelCaches:
    """The caches of `model` on each pipeline stage, with those of speculative layers on the last."""
    context = _context(model, resolved)
    placed = list(_decoder_layers(context))
    last = resolved.pp - 1
    drafts, notes = draft_caches(model, resolved)
    for cache in drafts:
        placed += [(spec, last) for spec in [_spec(context, cache, is_native=False)] if spec is not None]
    for part in model.parts:
        stage = last if part.stage == "last" else 0
        specs = (_spec(context, cache, is_native=False) for cache in part.caches)
        placed += [(spec, stage) for spec in specs if spec is not None]
    has_window = any(isinstance(spec, SlidingSpec) for spec, _ in placed)
    if resolved.dcp > 1 and has_window:
        notes = (_DCP_REFUSED, *notes)
    return ModelCaches(
        layers=tuple(placed),
        backend=context.backend,
        is_block_outermost=_has_kind(model, "deepseek_v4"),
        findings=notes,
    )


def card_key(model: ModelFacts, resolved: Resolved) -> tuple[object, ...]:
    """What the caches' shapes take from the card: with equal keys they are equal, and only `cache_refusal` may differ."""
    kv_format = _asked_format(model, resolved)
    has_checkpoints = _has_kind(model, "gdn") or _has_kind(model, "kda")
    backend = choose_backend(_question(model, resolved, kv_format))
    # Sparse attention's backend depends on the heads of a rank as well, so that TP is not enough to tell cards apart.
    capability = resolved.gpu.capability if _has_kind(model, "indexer") else None
    return kv_format, backend, has_checkpoints and _is_hopper_on(resolved), capability


def cache_refusal(model: ModelFacts, resolved: Resolved) -> Finding | None:
    """Why no backend of the card stores the asked KV dtype; None where one does."""
    if _has_kind(model, "deepseek_v4"):
        return None
    return check_kv_cache_dtype(_asked_format(model, resolved), _use(model, resolved))


_DCP_REFUSED = Finding(
    code="kv-dcp-window",
    severity="refusal",
    text="Decode context parallelism does not support sliding-window layers; vLLM stops with that assertion.",
    field="decode_context_parallel_size",
)


def _has_kind(model: ModelFacts, kind: str) -> bool:
    return kind in _kinds(model)


@lru_cache(maxsize=64)
def _kinds(model: ModelFacts) -> frozenset[str]:
    return frozenset(cache.kind for cache in _distinct_caches(model))


@lru_cache(maxsize=64)
def _distinct_caches(model: ModelFacts) -> tuple[Cache, ...]:
    seen: dict[int, Cache] = {}
    for layer in model.layers:
        for cache in layer.caches:
            seen.setdefault(id(cache), cache)
    return tuple(dict.fromkeys(seen.values()))


def _use(model: ModelFacts, resolved: Resolved) -> KvUse:
    return KvUse(
        version=resolved.version,
        vendor=resolved.gpu.vendor,
        capability=resolved.gpu.capability,
        is_mla=_has_kind(model, "mla"),
        is_sparse=_has_kind(model, "indexer"),
        weights_method=resolved.quantization,
    )


def _question(model: ModelFacts, resolved: Resolved, kv_format: str) -> BackendQuestion:
    caches = _distinct_caches(model)
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


def _context(model: ModelFacts, resolved: Resolved) -> _Context:
    kv_format = _asked_format(model, resolved)
    backend = choose_backend(_question(model, resolved, kv_format))
    if backend.name == "FLASHMLA_SPARSE" and is_quantized(kv_format) and kv_format != "nvfp4_ds_mla":
        kv_format = "fp8_ds_mla"  # the one quantised layout of that backend
    asked = resolved.flags.block_size
    context = _Context(
        model=model,
        resolved=resolved,
        backend=backend,
        kv_format=kv_format,
        block_tokens=backend.block_tokens if asked is None else asked,
    )
    return _with_hybrid_block(_with_packed_block(context))


def _asked_format(model: ModelFacts, resolved: Resolved) -> str:
    """The KV dtype before the backend has its say: sparse MLA on Hopper knows "fp8" as another name of fp8_ds_mla."""
    capability = resolved.gpu.capability
    is_hopper_sparse = capability is not None and capability[0] == 9 and _has_kind(model, "indexer")
    is_alias = resolved.flags.kv_cache_dtype == "fp8" and is_hopper_sparse and resolved.version < (0, 33, 0)
    return "fp8_ds_mla" if is_alias else resolved.kv_cache_dtype


def _replaced(context: _Context, block_tokens: int, attention_page_bytes: int | None) -> _Context:
    return _Context(
        model=context.model,
        resolved=context.resolved,
        backend=context.backend,
        kv_format=context.kv_format,
        block_tokens=block_tokens,
        attention_page_bytes=attention_page_bytes,
    )


def _first_attention(model: ModelFacts) -> Cache | None:
    kinds = ("full", "mla", "sliding", "chunked")
    caches = _distinct_caches(model)
    return next((cache for kind in kinds for cache in caches if cache.kind == kind), None)


def _bytes_per_token(context: _Context, cache: Cache, kv_format: str) -> int:
    if cache.kind == "mla":
        return mla_content_bytes(kv_format, cache.head_size)
    return _heads(context, cache) * content_bytes(kv_format, cache.head_size, cache.head_size_v)


def _with_packed_block(context: _Context) -> _Context:
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


def _with_hybrid_block(context: _Context) -> _Context:
    states = [cache for cache in _distinct_caches(context.model) if cache.kind in STATE_KINDS]
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
            state_grid_tokens=_GDN_STATE_GRID if _exports_gdn_states(context) else 1,
            chunk_tokens=_chunk_tokens(context),
        )
    )
    return _replaced(context, block, block * per_token)


def _chunk_tokens(context: _Context) -> int | None:
    """The scan's chunk that blocks are a multiple of in cache mode "all"; Mamba 1 has none and takes 2048."""
    if context.resolved.mamba_cache_mode != "all":
        return None
    text = context.model.text_config
    named = next((text[key] for key in ("mamba_chunk_size", "chunk_size") if text.get(key)), None)
    return named if isinstance(named, int) and named > 0 else _DEFAULT_CHUNK_TOKENS


def _exports_gdn_states(context: _Context) -> bool:
    """Whether FlashInfer prefills the gated delta nets and so keeps a checkpoint more (0.33, Hopper and Blackwell)."""
    is_new = context.version >= (0, 33, 0) and context.resolved.mamba_cache_mode == "align"
    return is_new and _is_hopper_on(context.resolved) and _has_kind(context.model, "gdn")


def _is_hopper_on(resolved: Resolved) -> bool:
    capability = resolved.gpu.capability
    return capability is not None and capability[0] in (9, 10, 12)


def _heads(context: _Context, cache: Cache) -> int:
    return max(1, cache.num_kv_heads // context.resolved.tp)


def _decoder_layers(context: _Context) -> Iterator[PlacedSpec]:
    model = context.model
    native = _native_layers(context)
    made: dict[tuple[int, bool], LayerSpec | None] = {}
    for stage, indices in enumerate(layer_ranges(len(model.layers), context.resolved.pp)):
        for index in indices:
            is_native = index in native
            for cache in model.layers[index].caches:
                key = (id(cache), is_native)
                if key not in made:
                    made[key] = _spec(context, cache, is_native=is_native)
                spec = made[key]
                if spec is not None:
                    yield spec, stage


def _native_layers(context: _Context) -> frozenset[int]:
    total = len(context.model.layers)
    if not is_packed(context.kv_format) or context.model.is_hybrid:
        return frozenset()
    number = min(_NUM_BOUNDARY_LAYERS, total // 2)
    return frozenset((*range(number), *range(total - number, total)))


def _spec(context: _Context, cache: Cache, *, is_native: bool) -> LayerSpec | None:
    if cache.kind in _NO_CACHE or (context.resolved.runner == "v0" and cache.kind in _OUTSIDE_V0_POOL):
        return None
    if cache.kind in STATE_KINDS:
        return _mamba_spec(context, cache)
    if cache.kind == "deepseek_v4":
        return _v4_spec(context, cache)
    if cache.kind in ("indexer", "index_keys"):
        size = cache.head_size * (2 if cache.kind == "index_keys" else 1)
        return MlaSpec(block_size=context.block_tokens, num_kv_heads=1, content_bytes=size, kv_format=cache.kind)
    kv_format = context.resolved.dtype if is_native else context.kv_format
    if cache.kind == "mla":
        return _mla_spec(context, cache, kv_format)
    return _attention_spec(context, cache, kv_format)


def _mla_spec(context: _Context, cache: Cache, kv_format: str) -> LayerSpec:
    size = mla_content_bytes(kv_format, cache.head_size)
    block = context.block_tokens
    if cache.sliding_window is not None:
        return SlidingMlaSpec(
            block_size=block,
            num_kv_heads=1,
            content_bytes=size,
            kv_format=kv_format,
            sliding_window=cache.sliding_window,
        )
    return MlaSpec(block_size=block, num_kv_heads=1, content_bytes=size, kv_format=kv_format, head_size=cache.head_size)


def _attention_spec(context: _Context, cache: Cache, kv_format: str) -> LayerSpec:
    heads, size = _heads(context, cache), content_bytes(kv_format, cache.head_size, cache.head_size_v)
    block, head = context.block_tokens, cache.head_size
    is_sliding = cache.kind == "sliding" and not context.resolved.flags.disable_sliding_window
    if is_sliding and cache.sliding_window is not None:
        return SlidingSpec(
            block_size=_window_block(context),
            num_kv_heads=heads,
            content_bytes=size,
            kv_format=kv_format,
            head_size=head,
            sliding_window=cache.sliding_window,
        )
    if cache.kind == "chunked" and cache.chunk_size is not None:
        return ChunkedSpec(
            block_size=block,
            num_kv_heads=heads,
            content_bytes=size,
            kv_format=kv_format,
            head_size=head,
            chunk_size=cache.chunk_size,
        )
    if cache.kind == "cross":
        # The encoder's tokens are bounded by the token budget of a batch (config/scheduler.py).
        return CrossSpec(
            block_size=block,
            num_kv_heads=heads,
            content_bytes=size,
            kv_format=kv_format,
            head_size=head,
            max_encoder_tokens=context.resolved.max_num_batched_tokens,
        )
    return FullSpec(block_size=block, num_kv_heads=heads, content_bytes=size, kv_format=kv_format, head_size=head)


def _window_block(context: _Context) -> int:
    """Sliding layers take the block of the others where their kernels can, else the largest on the kernels' list."""
    if is_large_block_allowed(context.backend) or context.version < (0, 28, 0):
        return context.block_tokens
    return max((size for size in (16, 32, 64) if size <= context.block_tokens), default=16)


def _mamba_spec(context: _Context, cache: Cache) -> MambaSpec:
    resolved = context.resolved
    mode = resolved.mamba_cache_mode
    one_state = state_bytes(context.model, context.resolved, cache)
    has_checkpoint = cache.kind == "mamba2" and context.version >= (0, 32, 0)  # not in 0.31.0
    # FlashKDA prefills Kimi-K3's bounded gates and keeps a checkpoint more.
    takes_flash_kda = (
        "checkpoints" in dict(cache.extra) and _is_hopper_on(context.resolved) and resolved.dtype == "bfloat16"
    )
    padded = context.attention_page_bytes
    return MambaSpec(
        block_size=resolved.max_model_len if mode == "none" else context.block_tokens,
        state_bytes=one_state,
        cache_mode=mode,
        padded_page_bytes=None if padded is None or padded == one_state else padded,
        num_speculative_blocks=resolved.num_speculative_tokens,
        num_checkpoint_blocks=int(
            has_checkpoint or takes_flash_kda or (cache.kind == "gdn" and _exports_gdn_states(context))
        ),
    )


def _v4_spec(context: _Context, cache: Cache) -> LayerSpec:
    extra = dict(cache.extra)
    size = extra["state_bytes"]
    if cache.compress_ratio is not None and cache.sliding_window is None:
        block = context.block_tokens
        page = round_up(block // cache.compress_ratio * size, _V4_PAGE_MULTIPLE)
        return MlaSpec(
            block_size=block,
            num_kv_heads=1,
            content_bytes=size,
            kv_format=f"fp8_ds_mla/{extra['role']}",
            tokens_per_state=cache.compress_ratio,
            padded_page_bytes=page,
        )
    block = extra["block_size"]
    return SlidingMlaSpec(
        block_size=block,
        num_kv_heads=1,
        content_bytes=size,
        kv_format=f"fp8_ds_mla/{extra['role']}",
        padded_page_bytes=round_up(block * size, _V4_PAGE_MULTIPLE),
        sliding_window=cache.sliding_window or block,
    )
