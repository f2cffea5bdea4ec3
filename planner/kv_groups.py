"""KV cache groups: which layers share a block table, and how their pages are made equal in size.

All groups draw block ids from one pool, so a block is as large as the largest group's pages together.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.facts import Finding
from planner.kv_rules import KvRules
from planner.layer_specs import (
    AttentionSpec,
    ChunkedSpec,
    FullSpec,
    LayerSpec,
    MambaSpec,
    MlaSpec,
    RingSpec,
    SlidingMlaSpec,
    SlidingSpec,
    can_merge,
    has_one_type,
)
from planner.units import div_ceil, round_up

# A layer's spec and the pipeline stage that holds it, in the order in which vLLM meets the layers.
PlacedSpec = tuple[LayerSpec, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroup:
    """Layers that share one block table: `members` are their distinct specs with the number of layers per stage."""

    members: tuple[tuple[LayerSpec, tuple[int, ...]], ...]
    is_mixed: bool = False  # pages of unlike size under one block table

    @property
    def num_layers(self) -> int:
        """Layers of the group over all stages."""
        return sum(sum(counts) for _, counts in self.members)

    @property
    def spec(self) -> LayerSpec:
        """The group's first spec."""
        return self.members[0][0]

    @property
    def page_bytes(self) -> int:
        """One layer's page; for a mixed group the pages of all its layers together."""
        if self.is_mixed:
            return sum(spec.page_bytes * sum(counts) for spec, counts in self.members)
        return self.spec.page_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """The groups of a model and what the reader should know of them."""

    groups: tuple[CacheGroup, ...]
    findings: tuple[Finding, ...] = ()


def group_layers(
    layers: tuple[PlacedSpec, ...],
    rules: KvRules,
    num_stages: int,
    *,
    is_hybrid_manager_enabled: bool,
    is_block_outermost: bool = False,
) -> Grouping:
    """The groups that vLLM makes of `layers` (of all stages, stage by stage)."""
    if not layers:
        return Grouping(groups=())
    findings: tuple[Finding, ...] = ()
    if not (is_hybrid_manager_enabled and rules.can_group):
        layers, findings = _without_manager(layers)
    distinct = _distinct(layers)
    if can_merge(distinct):
        return Grouping(groups=(_group(layers, num_stages),), findings=findings)
    if has_one_type(distinct):
        return Grouping(groups=(_group(layers, num_stages, is_mixed=True),), findings=findings)
    if is_block_outermost and len({spec.page_bytes for spec in distinct}) > 1:
        return Grouping(groups=_packed_groups(layers, num_stages), findings=findings)
    unified = _unify_pages(distinct, rules)
    if unified is None:
        fallback = _full_allocation_fallback(layers)
        if fallback is not None:
            return Grouping(groups=(_group(fallback, num_stages, is_mixed=True),), findings=(*findings, _FULL_FALLBACK))
        unified = _padded_to_largest(distinct)
        findings = (*findings, _CANNOT_UNIFY)
    layers = _mapped(layers, unified)
    return Grouping(groups=_equal_page_groups(layers, num_stages, rules), findings=findings)


def _without_manager(layers: tuple[PlacedSpec, ...]) -> tuple[tuple[PlacedSpec, ...], tuple[Finding, ...]]:
    promoted = _promote_windows(layers)
    findings = (_PROMOTED,) if promoted != layers else ()
    distinct = _distinct(promoted)
    if can_merge(distinct) or has_one_type(distinct):
        return promoted, findings
    return promoted, (*findings, _NEEDS_MANAGER)


_NEEDS_MANAGER = Finding(
    code="kv-manager-needed",
    severity="refusal",
    text="These layers' caches cannot be turned into one kind; vLLM refuses to start without its hybrid KV cache manager.",
    field="disable_hybrid_kv_cache_manager",
)
_PROMOTED = Finding(
    code="kv-windows-cost-full-length",
    severity="info",
    text="The hybrid KV cache manager is off, so sliding-window and chunked layers keep the whole sequence.",
    field="disable_hybrid_kv_cache_manager",
)
_FULL_FALLBACK = Finding(
    code="kv-pages-full-fallback",
    severity="warning",
    text="The layers' pages cannot be made equal, so vLLM gives sliding-window layers cache for the whole sequence.",
)
_CANNOT_UNIFY = Finding(
    code="kv-pages-cannot-unify",
    severity="refusal",
    text="This vLLM release cannot make the layers' pages equal in size (neither divides the other) and refuses to start.",
)


def count_by_stage(layers: Iterable[PlacedSpec], num_stages: int) -> dict[LayerSpec, list[int]]:
    """The layers of each distinct spec on each stage, specs in the order in which they are met."""
    by_object: dict[int, tuple[LayerSpec, list[int]]] = {}
    for spec, stage in layers:
        known = by_object.get(id(spec))
        if known is None:
            known = by_object[id(spec)] = (spec, [0] * num_stages)
        known[1][stage] += 1
    counts: dict[LayerSpec, list[int]] = {}
    for spec, numbers in by_object.values():
        total = counts.setdefault(spec, [0] * num_stages)
        for stage, number in enumerate(numbers):
            total[stage] += number
    return counts


def _distinct(layers: tuple[PlacedSpec, ...]) -> list[LayerSpec]:
    return list(dict.fromkeys({id(spec): spec for spec, _ in layers}.values()))


def _mapped(layers: tuple[PlacedSpec, ...], new: dict[LayerSpec, LayerSpec]) -> tuple[PlacedSpec, ...]:
    by_object = {id(spec): new[spec] for spec in {id(spec): spec for spec, _ in layers}.values()}
    return tuple((by_object[id(spec)], stage) for spec, stage in layers)


def _group(layers: tuple[PlacedSpec, ...] | list[PlacedSpec], num_stages: int, *, is_mixed: bool = False) -> CacheGroup:
    counts = count_by_stage(layers, num_stages)
    return CacheGroup(members=tuple((spec, tuple(number)) for spec, number in counts.items()), is_mixed=is_mixed)


def _to_full(spec: LayerSpec, block_size: int) -> LayerSpec:
    if not isinstance(spec, SlidingSpec | ChunkedSpec):
        return spec
    padded = spec.padded_page_bytes
    if padded is not None:
        padded = max(padded, spec.unpadded_page_bytes * block_size // spec.block_size)
    kind = MlaSpec if isinstance(spec, SlidingMlaSpec) else FullSpec
    return kind(
        block_size=block_size,
        num_kv_heads=spec.num_kv_heads,
        content_bytes=spec.content_bytes,
        kv_format=spec.kv_format,
        head_size=spec.head_size,
        tokens_per_state=spec.tokens_per_state,
        padded_page_bytes=padded,
        stride_alignment_bytes=spec.stride_alignment_bytes,
        is_dcp_sharded=spec.is_dcp_sharded,
        sliding_window=spec.sliding_window if isinstance(spec, SlidingSpec) else None,
        chunk_size=spec.chunk_size if isinstance(spec, ChunkedSpec) else None,
    )


def _promote_windows(layers: tuple[PlacedSpec, ...]) -> tuple[PlacedSpec, ...]:
    distinct = _distinct(layers)
    full_sizes = {spec.block_size for spec in distinct if isinstance(spec, FullSpec)}
    if not full_sizes or can_merge(distinct) or has_one_type(distinct):
        return layers
    block_size = next(iter(full_sizes)) if len(full_sizes) == 1 else None
    promoted = {spec: _to_full(spec, block_size or spec.block_size) for spec in distinct}
    return _mapped(layers, promoted)


def _full_allocation_fallback(layers: tuple[PlacedSpec, ...]) -> tuple[PlacedSpec, ...] | None:
    specs = [spec for spec, _ in layers]
    if any(isinstance(spec, SlidingMlaSpec | ChunkedSpec) for spec in specs):
        return None
    if not any(isinstance(spec, MlaSpec) for spec in specs):
        return None
    promoted = _promote_windows(layers)
    return promoted if has_one_type([spec for spec, _ in promoted]) else None


def _unify_pages(distinct: list[LayerSpec], rules: KvRules) -> dict[LayerSpec, LayerSpec] | None:
    largest = max(spec.page_bytes for spec in distinct)
    unified: dict[LayerSpec, LayerSpec] = {}
    for spec in distinct:
        page_bytes = spec.page_bytes
        is_paddable = isinstance(spec, AttentionSpec) and not isinstance(spec, MlaSpec) and rules.can_pad_attention_page
        if page_bytes == largest:
            unified[spec] = spec
        elif isinstance(spec, MambaSpec) and rules.can_pad_state_page:
            unified[spec] = replace(spec, padded_page_bytes=largest)
        elif largest % page_bytes == 0 and rules.can_scale_block_size:
            unified[spec] = replace(spec, block_size=spec.block_size * (largest // page_bytes))
        elif is_paddable:
            unified[spec] = replace(spec, padded_page_bytes=largest)
        else:
            return None
    return unified


def _padded_to_largest(distinct: list[LayerSpec]) -> dict[LayerSpec, LayerSpec]:
    largest = max(spec.page_bytes for spec in distinct)
    return {spec: replace(spec, padded_page_bytes=largest) for spec in distinct}


def _mergeable_buckets(layers: tuple[PlacedSpec, ...]) -> list[list[PlacedSpec]]:
    by_object: dict[int, list[PlacedSpec]] = {}
    for placed in layers:
        by_object.setdefault(id(placed[0]), []).append(placed)
    by_spec: dict[LayerSpec, list[PlacedSpec]] = {}
    for placed_layers in by_object.values():
        by_spec.setdefault(placed_layers[0][0], []).extend(placed_layers)
    buckets: list[list[PlacedSpec]] = []
    specs_of: list[list[LayerSpec]] = []
    for spec, placed_layers in by_spec.items():
        for bucket, specs in zip(buckets, specs_of, strict=True):
            if can_merge([*specs, spec]):
                bucket.extend(placed_layers)
                specs.append(spec)
                break
        else:
            buckets.append(list(placed_layers))
            specs_of.append([spec])
    return buckets


def _equal_page_groups(layers: tuple[PlacedSpec, ...], num_stages: int, rules: KvRules) -> tuple[CacheGroup, ...]:
    buckets = _mergeable_buckets(layers)
    smallest = min(len(bucket) for bucket in buckets)
    widest = max(len(bucket) for bucket in buckets)
    group_size = widest if 100 * widest < smallest * rules.widest_group_percent else smallest
    groups: list[CacheGroup] = []
    for bucket in buckets:
        num_groups = div_ceil(len(bucket), group_size)
        # Dealt round robin, so that every pipeline stage holds a share of each group.
        groups += [_group(bucket[index::num_groups], num_stages) for index in range(num_groups)]
    return tuple(groups)


def approximate_gcd(values: list[int], lower_bound: int) -> int:
    """The chunk size of at least `lower_bound` that pads `values` least when each is rounded up to a multiple of it."""
    largest = max(values)
    if lower_bound > largest:
        return lower_bound
    candidates = range(max(1, lower_bound), largest + 1)
    return min(candidates, key=lambda size: (sum(round_up(value, size) - value for value in values), -size))


@dataclass(slots=True)
class _Bucket:
    """Layers of one type, by page size: mutable while layers are dealt."""

    layers: list[PlacedSpec]

    @property
    def first(self) -> LayerSpec:
        return self.layers[0][0]

    def by_page(self) -> dict[int, list[PlacedSpec]]:
        pages: dict[int, list[PlacedSpec]] = defaultdict(list)
        for placed in self.layers:
            pages[placed[0].page_bytes].append(placed)
        return pages

    @property
    def repeats(self) -> int:
        return max(Counter(spec.page_bytes for spec, _ in self.layers).values())

    @property
    def is_balanced(self) -> bool:
        return len({len(placed) for placed in self.by_page().values()}) == 1


def _type_buckets(layers: tuple[PlacedSpec, ...]) -> list[_Bucket]:
    buckets: list[_Bucket] = []
    home: dict[LayerSpec, _Bucket] = {}
    for placed in layers:
        spec = placed[0]
        if spec not in home:
            fitting = (bucket for bucket in buckets if has_one_type([bucket.first, spec]))
            bucket = next(fitting, None)
            if bucket is None:
                bucket = _Bucket([])
                buckets.append(bucket)
            home[spec] = bucket
        home[spec].layers.append(placed)
    return buckets


def _packed_groups(layers: tuple[PlacedSpec, ...], num_stages: int) -> tuple[CacheGroup, ...]:
    buckets = _type_buckets(layers)
    balanced = [bucket for bucket in buckets if bucket.is_balanced]
    floor = max((bucket.repeats for bucket in balanced if len(bucket.by_page()) > 1), default=0)
    repeats = approximate_gcd([bucket.repeats for bucket in balanced], floor) if floor else None

    def split(bucket: _Bucket) -> int:
        return div_ceil(bucket.repeats, repeats) if repeats is not None and bucket.is_balanced else 1

    def is_state(bucket: _Bucket) -> bool:
        is_ring = isinstance(bucket.first, MambaSpec | RingSpec)
        return is_ring or (repeats is None and isinstance(bucket.first, SlidingSpec))

    def widest(bucket: _Bucket) -> int:
        number = len(bucket.layers) if is_state(bucket) else split(bucket)
        return sum(div_ceil(len(placed), number) * page for page, placed in bucket.by_page().items())

    anchor_bytes = max(widest(bucket) for bucket in buckets)
    groups: list[CacheGroup] = []
    for bucket in buckets:
        number = split(bucket)
        if is_state(bucket):
            fitting = max(anchor_bytes // bucket.first.page_bytes, 1)
            number = max(number, div_ceil(len(bucket.layers), fitting))
        groups += _deal(bucket, number, num_stages)
    return tuple(groups)


def _deal(bucket: _Bucket, number: int, num_stages: int) -> list[CacheGroup]:
    if number == 1 or not bucket.is_balanced:
        return [_group(bucket.layers, num_stages, is_mixed=True)]
    pattern = list(zip(*bucket.by_page().values(), strict=False))
    dealt = ([placed for repeat in pattern[index::number] for placed in repeat] for index in range(number))
    return [_group(placed, num_stages, is_mixed=True) for placed in dealt]


def bytes_per_block(
    groups: tuple[CacheGroup, ...], stage: int, *, is_block_outermost: bool = False, packs_blocks: bool = True
) -> int:
    """Bytes of one block on pipeline stage `stage`: the largest group's pages together (0: the stage keeps nothing)."""
    if is_block_outermost and not packs_blocks:
        return _tuple_bytes(groups, stage)

    def size(group: CacheGroup) -> int:
        return sum(
            counts[stage] * (spec.page_bytes if is_block_outermost else spec.stride_bytes)
            for spec, counts in group.members
        )

    largest = max((size(group) for group in groups), default=0)
    if not is_block_outermost:
        return largest
    held = [spec for group in groups for spec, counts in group.members if counts[stage]]
    return round_up(largest, math.lcm(*(spec.stride_alignment_bytes for spec in held)))


def _tuple_bytes(groups: tuple[CacheGroup, ...], stage: int) -> int:
    """Bytes of one block where it is a row of layer tuples: one page of each of the full layers' sizes in every tuple.

    As many tuples as the most layers of one page size in a group; smaller pages are padded to the next of those sizes.
    So DeepSeek-V4 in 0.20 to 0.23 (v1/core/kv_cache_utils.py, _get_kv_cache_config_deepseek_v4); 0.24 packs blocks.
    """
    held = [[(spec, counts[stage]) for spec, counts in group.members if counts[stage]] for group in groups]
    sizes = sorted({spec.page_bytes for group in held for spec, _ in group if isinstance(spec, FullSpec)})
    longest = 0
    for group in held:
        layers: Counter[int] = Counter()
        for spec, count in group:
            layers[next((size for size in sizes if size >= spec.page_bytes), spec.page_bytes)] += count
        longest = max(longest, *layers.values(), 0)
    return sum(sizes) * longest
