"""A model's caches as layer specs of one rank: heads after TP, bytes by KV dtype, state pages, drafts.

What vLLM's attention and state layers answer to `get_kv_cache_spec`, in the block size and KV dtype of `kv_context`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.defaults import Resolved
from planner.facts import Finding
from planner.inventory import Cache, ModelFacts
from planner.kv_block_size import Backend, choose_backend, is_large_block_allowed
from planner.kv_context import (
    CacheContext,
    asked_format,
    backend_question,
    cache_context,
    exports_gdn_states,
    has_kind,
    is_hopper_on,
    kv_heads,
    kv_use,
)
from planner.kv_drafts import draft_caches
from planner.kv_dtypes import check_kv_cache_dtype, content_bytes, is_packed, mla_content_bytes
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

_OUTSIDE_V0_POOL = STATE_KINDS | {"cross"}  # V0 kept states and encoder outputs in tensors of their own
_NO_CACHE = frozenset({"shared", "none", "encoder_only"})
_V4_PAGE_MULTIPLE = 576  # bytes; FlashMLA's packing of fp8_ds_mla
_NUM_BOUNDARY_LAYERS = 2  # packed KV dtypes leave the first and last two layers unquantised


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCaches:
    """The layers' specs with their pipeline stages, in the order in which vLLM builds the layers.

    Whether a backend of the card stores the KV dtype at all is `cache_refusal`'s to say.
    """

    layers: tuple[PlacedSpec, ...]
    backend: Backend
    is_block_outermost: bool = False
    findings: tuple[Finding, ...] = ()


def model_caches(model: ModelFacts, resolved: Resolved) -> ModelCaches:
    """The caches of `model` on each pipeline stage, with those of speculative layers on the last."""
    context = cache_context(model, resolved)
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
        is_block_outermost=has_kind(model, "deepseek_v4"),
        findings=notes,
    )


def card_key(model: ModelFacts, resolved: Resolved) -> tuple[object, ...]:
    """What the caches' shapes take from the card: with equal keys they are equal, and only `cache_refusal` may differ."""
    kv_format = asked_format(model, resolved)
    has_checkpoints = has_kind(model, "gdn") or has_kind(model, "kda")
    backend = choose_backend(backend_question(model, resolved, kv_format))
    # Sparse attention's backend depends on the heads of a rank as well, so that TP is not enough to tell cards apart.
    capability = resolved.gpu.capability if has_kind(model, "indexer") else None
    return kv_format, backend, has_checkpoints and is_hopper_on(resolved), capability


def cache_refusal(model: ModelFacts, resolved: Resolved) -> Finding | None:
    """Why no backend of the card stores the asked KV dtype; None where one does."""
    if has_kind(model, "deepseek_v4"):
        return None
    return check_kv_cache_dtype(asked_format(model, resolved), kv_use(model, resolved))


_DCP_REFUSED = Finding(
    code="kv-dcp-window",
    severity="refusal",
    text="Decode context parallelism does not support sliding-window layers; vLLM stops with that assertion.",
    field="decode_context_parallel_size",
)


def _decoder_layers(context: CacheContext) -> Iterator[PlacedSpec]:
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


def _native_layers(context: CacheContext) -> frozenset[int]:
    total = len(context.model.layers)
    if not is_packed(context.kv_format) or context.model.is_hybrid:
        return frozenset()
    number = min(_NUM_BOUNDARY_LAYERS, total // 2)
    return frozenset((*range(number), *range(total - number, total)))


def _spec(context: CacheContext, cache: Cache, *, is_native: bool) -> LayerSpec | None:
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


def _mla_spec(context: CacheContext, cache: Cache, kv_format: str) -> LayerSpec:
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


def _attention_spec(context: CacheContext, cache: Cache, kv_format: str) -> LayerSpec:
    heads, size = kv_heads(context, cache), content_bytes(kv_format, cache.head_size, cache.head_size_v)
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


def _window_block(context: CacheContext) -> int:
    """Sliding layers take the block of the others where their kernels can, else the largest on the kernels' list."""
    if is_large_block_allowed(context.backend) or context.version < (0, 28, 0):
        return context.block_tokens
    return max((size for size in (16, 32, 64) if size <= context.block_tokens), default=16)


def _mamba_spec(context: CacheContext, cache: Cache) -> MambaSpec:
    resolved = context.resolved
    mode = resolved.mamba_cache_mode
    one_state = state_bytes(context.model, context.resolved, cache)
    has_checkpoint = cache.kind == "mamba2" and context.version >= (0, 32, 0)  # not in 0.31.0
    # FlashKDA prefills Kimi-K3's bounded gates and keeps a checkpoint more.
    takes_flash_kda = (
        "checkpoints" in dict(cache.extra) and is_hopper_on(context.resolved) and resolved.dtype == "bfloat16"
    )
    padded = context.attention_page_bytes
    return MambaSpec(
        block_size=resolved.max_model_len if mode == "none" else context.block_tokens,
        state_bytes=one_state,
        cache_mode=mode,
        padded_page_bytes=None if padded is None or padded == one_state else padded,
        num_speculative_blocks=resolved.num_speculative_tokens,
        num_checkpoint_blocks=int(
            has_checkpoint or takes_flash_kda or (cache.kind == "gdn" and exports_gdn_states(context))
        ),
    )


def _v4_spec(context: CacheContext, cache: Cache) -> LayerSpec:
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
