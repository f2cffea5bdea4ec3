"""The KV pool: blocks, tokens, concurrency, fit and longest length, from groups of layers and the bytes of each rank.

`layout` does once what no pool size changes; `plan_pool` then answers for a pool size in microseconds. Grouping is in
`kv_groups`, the layers' specs come from `kv_specs`, the rules that differ by release from `kv_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from planner import kv_errors
from planner.answer import KvGroup, KvPool
from planner.defaults import Resolved
from planner.facts import Finding
from planner.inventory import ModelFacts
from planner.kv_groups import CacheGroup, PlacedSpec, bytes_per_block, count_by_stage, group_layers
from planner.kv_rules import KvRules, rules_of
from planner.kv_specs import cache_refusal, card_key, model_caches
from planner.kv_states import STATE_KINDS
from planner.layer_specs import FullSpec, LayerSpec, MambaSpec, RingSpec, Serving, SlidingMlaSpec, kind_of
from planner.units import div_ceil
from planner.versions import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """What the layout of a pool depends on beside the layers."""

    version: Version
    rules: KvRules
    serving: Serving
    max_model_len: int
    longest_model_len: int  # the model's own limit: how far `estimated_max_model_len` looks when the length fits
    is_auto_length: bool = False
    num_gpu_blocks_override: int | None = None
    is_hybrid_manager_enabled: bool = True
    is_block_outermost: bool = False
    num_stages: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KvLayout:
    """All that does not depend on the pool's size; made by `layout` or `layout_of`, compared by identity."""

    groups: tuple[CacheGroup, ...]
    bytes_per_block: tuple[int, ...]  # per pipeline stage; 0 where a stage keeps nothing
    block_size: int
    options: PoolOptions
    needs: tuple[tuple[LayerSpec, int], ...]  # specs of one page rule with the number of groups that follow it
    stage_layers: tuple[tuple[tuple[LayerSpec, int], ...], ...]  # per stage: specs with their layer counts
    kv_bytes_per_token: int
    state_bytes_per_request: int
    shown_groups: tuple[KvGroup, ...]  # with `blocks_per_request` at options.max_model_len
    findings: tuple[Finding, ...] = ()


def layout(model: ModelFacts, resolved: Resolved) -> KvLayout:
    """The layout of `model`, drafter included, under the resolved flags."""
    found = _cached_layout(model, _LayoutKey(model, resolved))
    refusal = cache_refusal(model, resolved)
    return found if refusal is None else _refused(found, refusal)


@lru_cache(maxsize=256)
def _refused(found: KvLayout, refusal: Finding) -> KvLayout:
    return replace(found, findings=(refusal, *found.findings))


class _LayoutKey:
    """A `Resolved` compared by what a layout depends on, so that what-ifs on other flags share one layout."""

    __slots__ = ("key", "resolved")

    def __init__(self, model: ModelFacts, resolved: Resolved) -> None:
        self.resolved = resolved
        flags = resolved.flags
        self.key = (
            *(resolved.version, card_key(model, resolved), resolved.dtype, resolved.kv_cache_dtype),
            *(resolved.quantization, resolved.max_model_len, resolved.is_auto_length, _batch_key(model, resolved)),
            *(resolved.is_hybrid_manager_enabled, resolved.mamba_cache_mode),
            *(resolved.num_speculative_tokens, resolved.tp, resolved.pp, resolved.dcp, flags.block_size),
            *(flags.num_gpu_blocks_override, flags.mamba_cache_dtype, flags.mamba_ssm_cache_dtype),
            *(flags.attention_backend, flags.speculative_config, flags.kv_cache_dtype),
            *(flags.disable_sliding_window, resolved.runner),
        )

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _LayoutKey) and self.key == other.key


_UNBATCHED_KINDS = STATE_KINDS | {"full", "mla", "indexer", "index_keys", "shared", "none", "encoder_only"}


def _batch_key(model: ModelFacts, resolved: Resolved) -> tuple[int, int] | None:
    """The limits of a batch where windows or encoders make pages depend on them; else None, so that layouts are shared."""
    if resolved.flags.speculative_config is None and _kinds(model) <= _UNBATCHED_KINDS:
        return None
    return resolved.max_num_batched_tokens, resolved.max_in_flight_tokens


@lru_cache(maxsize=256)
def _kinds(model: ModelFacts) -> frozenset[str]:
    caches = (cache for holder in (model.layers, model.parts) for each in holder for cache in each.caches)
    return frozenset(cache.kind for cache in caches)


@lru_cache(maxsize=256)
def _cached_layout(model: ModelFacts, key: _LayoutKey) -> KvLayout:
    resolved = key.resolved
    caches = model_caches(model, resolved)
    rules = rules_of(resolved.version)
    options = PoolOptions(
        version=resolved.version,
        rules=rules,
        serving=Serving(max_in_flight_tokens=resolved.max_in_flight_tokens, dcp=resolved.dcp),
        max_model_len=resolved.max_model_len,
        longest_model_len=max(resolved.max_model_len, model.max_position),
        is_auto_length=resolved.is_auto_length,
        num_gpu_blocks_override=resolved.flags.num_gpu_blocks_override,
        is_hybrid_manager_enabled=resolved.is_hybrid_manager_enabled,
        is_block_outermost=caches.is_block_outermost,
        num_stages=resolved.pp,
    )
    return layout_of(caches.layers, options, caches.findings)


def layout_of(layers: tuple[PlacedSpec, ...], options: PoolOptions, findings: tuple[Finding, ...] = ()) -> KvLayout:
    """The layout of hand-written layers: (spec, pipeline stage) in the order in which vLLM builds them."""
    grouping = group_layers(
        layers,
        options.rules,
        options.num_stages,
        is_hybrid_manager_enabled=options.is_hybrid_manager_enabled,
        is_block_outermost=options.is_block_outermost,
    )
    counted = _layers_by_stage(layers, options.num_stages)
    return KvLayout(
        groups=grouping.groups,
        bytes_per_block=tuple(_block_bytes(grouping.groups, stage, options) for stage in range(options.num_stages)),
        block_size=_shown_block(grouping.groups),
        options=options,
        needs=_needs(grouping.groups),
        stage_layers=counted,
        kv_bytes_per_token=max((_bytes_per_token(stage, options.serving) for stage in counted), default=0),
        state_bytes_per_request=max((_state_bytes(stage) for stage in counted), default=0),
        shown_groups=tuple(_shown(group, options) for group in grouping.groups),
        findings=(*findings, *grouping.findings),
    )


def _block_bytes(groups: tuple[CacheGroup, ...], stage: int, options: PoolOptions) -> int:
    is_outermost, packs = options.is_block_outermost, options.rules.packs_blocks
    return bytes_per_block(groups, stage, is_block_outermost=is_outermost, packs_blocks=packs)


def _layers_by_stage(layers: tuple[PlacedSpec, ...], num_stages: int) -> tuple[tuple[tuple[LayerSpec, int], ...], ...]:
    counts = count_by_stage(layers, num_stages)
    return tuple(
        tuple((spec, numbers[stage]) for spec, numbers in counts.items() if numbers[stage])
        for stage in range(num_stages)
    )


def _shown_block(groups: tuple[CacheGroup, ...]) -> int:
    # As vLLM reports it: the smallest of the groups. The small blocks of compressor states and rings are not what
    # --block-size speaks of.
    own = [group.spec.block_size for group in groups if not isinstance(group.spec, SlidingMlaSpec | RingSpec)]
    return min(own or [group.spec.block_size for group in groups], default=0)


def _needs(groups: tuple[CacheGroup, ...]) -> tuple[tuple[LayerSpec, int], ...]:
    counts: dict[LayerSpec, int] = {}
    for group in groups:
        counts[group.spec] = counts.get(group.spec, 0) + 1
    return tuple(counts.items())


def _bytes_per_token(stage: tuple[tuple[LayerSpec, int], ...], serving: Serving) -> int:
    total = 0
    for spec, number in stage:
        if isinstance(spec, FullSpec):
            shards = serving.dcp if spec.is_dcp_sharded else 1
            total += div_ceil(spec.unpadded_page_bytes * number, spec.block_size * shards)
    return total


def _state_bytes(stage: tuple[tuple[LayerSpec, int], ...]) -> int:
    return sum(spec.state_bytes * number for spec, number in stage if isinstance(spec, MambaSpec))


def _shown(group: CacheGroup, options: PoolOptions) -> KvGroup:
    spec = group.spec
    kinds = dict.fromkeys(kind_of(member) for member, _ in group.members)
    return KvGroup(
        kind="+".join(kinds),
        num_layers=group.num_layers,
        block_size=spec.block_size,
        page_bytes=group.page_bytes,
        sliding_window=getattr(spec, "sliding_window", None),
        blocks_per_request=spec.pages(options.max_model_len, options.serving),
    )


def blocks_per_request(layout: KvLayout, length_tokens: int) -> int:
    """Blocks that one request of `length_tokens` holds at most: the sum over groups."""
    serving = layout.options.serving
    return sum(spec.pages(length_tokens, serving) * number for spec, number in layout.needs)


def max_concurrency(layout: KvLayout, num_blocks: int, length_tokens: int) -> float:
    """Requests of `length_tokens` that the pool holds at once: num_blocks / blocks_per_request."""
    if not layout.groups or length_tokens < 1:
        return 0.0
    if layout.options.rules.is_v0 or not layout.options.rules.can_group:
        return num_blocks * layout.block_size * layout.options.serving.dcp / length_tokens
    return num_blocks / blocks_per_request(layout, length_tokens)


def host_blocks(layout: KvLayout, swap_space_bytes: int) -> int:
    """Blocks that V0's `--swap-space` holds in host memory: swap_space_bytes // bytes_per_block."""
    largest = max(layout.bytes_per_block, default=0)
    return max(swap_space_bytes, 0) // largest if largest else 0


def needed_bytes(layout: KvLayout, stage: int, length_tokens: int) -> int:
    """Bytes that vLLM's fit check says one request of `length_tokens` needs on a stage."""
    rules = layout.options.rules
    if rules.needs_layer_by_layer and not rules.is_v0:
        serving = layout.options.serving
        layers = layout.stage_layers[stage]
        return sum(spec.page_bytes * spec.pages(length_tokens, serving) * number for spec, number in layers)
    return layout.bytes_per_block[stage] * blocks_per_request(layout, length_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Capacity:
    """The pool of each stage: blocks, and the bytes the fit check counts on."""

    stages: tuple[int, ...]  # those that keep a cache
    num_blocks: int
    bounding_stage: int
    check_bytes: tuple[int, ...]  # per entry of `stages`


def _capacity(layout: KvLayout, available_bytes_per_rank: tuple[int, ...]) -> _Capacity:
    rules = layout.options.rules
    override = layout.options.num_gpu_blocks_override
    stages = tuple(stage for stage, size in enumerate(layout.bytes_per_block) if size)
    sizes = layout.bytes_per_block
    # A pool below zero holds no block; the fit check still sees the negative bytes.
    blocks = {stage: max(available_bytes_per_rank[stage] // sizes[stage], 0) for stage in stages}
    bounding = min(stages, key=blocks.__getitem__, default=0)
    num_blocks = override if override is not None else blocks.get(bounding, 1)
    reserved = 1 if rules.counts_null_block else 0
    is_override_checked = override is not None and rules.override_limits_fit
    check_bytes = tuple(
        (num_blocks * sizes[stage] if is_override_checked else available_bytes_per_rank[stage])
        - reserved * sizes[stage]
        for stage in stages
    )
    return _Capacity(stages=stages, num_blocks=num_blocks, bounding_stage=bounding, check_bytes=check_bytes)


def _longest(fits: Callable[[int], bool], upper_tokens: int) -> int:
    """The largest length up to `upper_tokens` that fits, by vLLM's binary search; 0 if one token does not."""
    if fits(upper_tokens):
        return upper_tokens
    if not fits(1):
        return 0
    low, high, longest = 1, upper_tokens, 1
    while low <= high:
        middle = (low + high) // 2
        if fits(middle):
            longest, low = middle, middle + 1
        else:
            high = middle - 1
    return longest


def _room_in(layout: KvLayout, capacity: _Capacity) -> Callable[[int], bool]:
    """The question whether one request of a length fits, as the release's start-up check asks it."""
    rules = layout.options.rules
    if rules.is_v0:
        return lambda length_tokens: length_tokens <= capacity.num_blocks * layout.block_size
    pairs = tuple(zip(capacity.stages, capacity.check_bytes, strict=True))
    if any(check <= 0 for _, check in pairs):
        return lambda _: False
    if rules.needs_layer_by_layer:
        return lambda length_tokens: all(needed_bytes(layout, stage, length_tokens) <= check for stage, check in pairs)
    most_blocks = min((check // layout.bytes_per_block[stage] for stage, check in pairs), default=0)
    return lambda length_tokens: not pairs or blocks_per_request(layout, length_tokens) <= most_blocks


def plan_pool(layout: KvLayout, available_bytes_per_rank: tuple[int, ...], max_model_len: int | None = None) -> KvPool:
    """The pool for `available_bytes_per_rank` (one per pipeline stage): what vLLM's start-up log would print."""
    options = layout.options
    length = options.max_model_len if max_model_len is None else max_model_len
    if not layout.groups:
        return _empty_pool(layout, length)
    capacity = _capacity(layout, available_bytes_per_rank)

    has_room = _room_in(layout, capacity)
    fits = has_room(length)
    longest = _longest(has_room, max(length, options.longest_model_len) if fits else length)
    if options.is_auto_length and not fits and longest > 0:
        length, fits = longest, True
    return _pool(layout, capacity, length_tokens=length, fits=fits, longest=longest)


def _pool(layout: KvLayout, capacity: _Capacity, *, length_tokens: int, fits: bool, longest: int) -> KvPool:
    rules, serving = layout.options.rules, layout.options.serving
    concurrency = max_concurrency(layout, capacity.num_blocks, length_tokens)
    if rules.tokens_by_concurrency:
        tokens = int(concurrency * length_tokens)
    else:
        tokens = capacity.num_blocks // len(layout.groups) * layout.block_size * serving.dcp
    needed = [needed_bytes(layout, stage, length_tokens) for stage in capacity.stages]
    tightest = min(range(len(needed)), key=lambda index: capacity.check_bytes[index] - needed[index], default=None)
    return KvPool(
        groups=_groups_at(layout, length_tokens),
        block_size=layout.block_size,
        bytes_per_block=layout.bytes_per_block[capacity.bounding_stage],
        num_blocks=capacity.num_blocks,
        tokens=tokens,
        max_concurrency=concurrency,
        needed_bytes=0 if tightest is None else needed[tightest],
        estimated_max_model_len=longest,
        fits=fits,
        kv_bytes_per_token=layout.kv_bytes_per_token,
        state_bytes_per_request=layout.state_bytes_per_request,
        max_model_len=length_tokens,
        findings=layout.findings,
        available_bytes=0 if tightest is None else capacity.check_bytes[tightest],
    )


def _groups_at(layout: KvLayout, length_tokens: int) -> tuple[KvGroup, ...]:
    if length_tokens == layout.options.max_model_len:
        return layout.shown_groups
    return tuple(
        KvGroup(
            kind=shown.kind,
            num_layers=shown.num_layers,
            block_size=shown.block_size,
            page_bytes=shown.page_bytes,
            sliding_window=shown.sliding_window,
            blocks_per_request=group.spec.pages(length_tokens, layout.options.serving),
        )
        for shown, group in zip(layout.shown_groups, layout.groups, strict=True)
    )


def _empty_pool(layout: KvLayout, length_tokens: int) -> KvPool:
    """The pool of a model without a cache: one block, the null block."""
    return KvPool(
        groups=(),
        block_size=0,
        bytes_per_block=0,
        num_blocks=1,
        tokens=0,
        max_concurrency=0.0,
        needed_bytes=0,
        estimated_max_model_len=max(length_tokens, layout.options.longest_model_len),
        fits=True,
        kv_bytes_per_token=0,
        state_bytes_per_request=0,
        max_model_len=length_tokens,
        findings=layout.findings,
    )


def fit_error(pool: KvPool, resolved: Resolved) -> str | None:
    """The text of vLLM's own error when `pool` cannot hold one request, or None when it can."""
    if pool.fits:
        return None
    version = resolved.version
    if rules_of(version).is_v0:
        if pool.num_blocks <= 0:
            return kv_errors.no_memory_text(version)
        pool_tokens = pool.num_blocks * pool.block_size
        return kv_errors.v0_too_long_text(max_model_len=pool.max_model_len, pool_tokens=pool_tokens)
    if resolved.is_auto_length:
        return kv_errors.auto_fit_text()
    if pool.available_bytes <= 0:
        return kv_errors.no_memory_text(version)
    return kv_errors.too_long_text(
        version,
        max_model_len=pool.max_model_len,
        needed_bytes=pool.needed_bytes,
        available_bytes=pool.available_bytes,
        estimated_max_model_len=pool.estimated_max_model_len,
    )
