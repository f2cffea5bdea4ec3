"""The worked values of vLLM 0.32/0.33's own planner (memory model 2.8), on hand-written specs."""

from __future__ import annotations

import pytest

from planner.kv_cache import KvLayout, PoolOptions, blocks_per_request, layout_of, max_concurrency, plan_pool
from planner.kv_rules import rules_of
from planner.layer_specs import ChunkedSpec, CrossSpec, FullSpec, LayerSpec, MambaSpec, MlaSpec, Serving, SlidingSpec
from planner.units import GIB
from planner.versions import Version, parse_version


def options(
    max_model_len: int, *, version: str = "0.33.0", in_flight_tokens: int = 16384, hybrid: bool = True, **more: object
) -> PoolOptions:
    parsed = parse_version(version)
    return PoolOptions(
        version=parsed,
        rules=rules_of(parsed),
        serving=Serving(max_in_flight_tokens=in_flight_tokens),
        max_model_len=max_model_len,
        longest_model_len=max_model_len,
        is_hybrid_manager_enabled=hybrid,
        **more,  # type: ignore[arg-type] # the test's own keywords
    )


def full(kv_heads: int, head_size: int, block_size: int = 16, **more: object) -> FullSpec:
    return FullSpec(
        block_size=block_size,
        num_kv_heads=kv_heads,
        head_size=head_size,
        content_bytes=4 * head_size,
        **more,  # type: ignore[arg-type] # the test's own keywords
    )


def sliding(kv_heads: int, head_size: int, window: int, block_size: int = 16) -> SlidingSpec:
    return SlidingSpec(
        block_size=block_size,
        num_kv_heads=kv_heads,
        head_size=head_size,
        content_bytes=4 * head_size,
        sliding_window=window,
    )


def mla(content_bytes: int, block_size: int = 64, kv_format: str = "bfloat16") -> MlaSpec:
    return MlaSpec(block_size=block_size, num_kv_heads=1, content_bytes=content_bytes, kv_format=kv_format)


def layout(layers: list[LayerSpec], opts: PoolOptions) -> KvLayout:
    return layout_of(tuple((spec, 0) for spec in layers), opts)


GEMMA_27B: list[LayerSpec] = [full(16, 128) if index % 6 == 5 else sliding(16, 128, 1024) for index in range(62)]
GPT_OSS_20B: list[LayerSpec] = [full(8, 64) if index % 2 else sliding(8, 64, 128) for index in range(24)]
QWEN3_NEXT: list[LayerSpec] = [
    full(2, 256, 1056)
    if index % 4 == 3
    else MambaSpec(block_size=262144, state_bytes=2146304, padded_page_bytes=1056 * 2 * 256 * 4)
    for index in range(48)
]
V32: list[LayerSpec] = [mla(132, kv_format="indexer"), mla(656, kv_format="fp8_ds_mla")] * 61


@pytest.mark.parametrize(
    ("layers", "opts", "pool_gib", "num_blocks", "tokens", "concurrency"),
    [
        ([full(8, 128)] * 32, options(131072), 50, 25600, 409600, 3.12),
        ([full(1, 128)] * 28, options(32768), 50, 234057, 3744912, 114.29),
        ([mla(1152)] * 61, options(163840), 50, 11937, 763968, 4.66),
        (V32, options(163840), 50, 17451, 1116864, 6.82),
        (GEMMA_27B, options(131072), 20, 16384, 145829, 1.11),
        (GEMMA_27B, options(131072, in_flight_tokens=8192), 20, 16384, 184270, 1.41),
        (GEMMA_27B, options(131072, in_flight_tokens=2048), 20, 16384, 229677, 1.75),
        (GPT_OSS_20B, options(131072), 50, 136533, 1939908, 14.80),
        (GPT_OSS_20B, options(131072, hybrid=False), 50, 68266, 1092256, 8.33),
        (QWEN3_NEXT, options(262144), 20, 827, 860290, 3.28),
    ],
)
def test_pool_matches_vllms_planner(
    layers: list[LayerSpec], opts: PoolOptions, pool_gib: int, num_blocks: int, tokens: int, concurrency: float
) -> None:
    pool = plan_pool(layout(layers, opts), (pool_gib * GIB,))

    assert (pool.num_blocks, pool.tokens, round(pool.max_concurrency, 2)) == (num_blocks, tokens, concurrency)
    assert pool.fits


def test_refused_llama_names_need_and_longest_length() -> None:
    pool = plan_pool(layout([full(8, 128)] * 32, options(131072)), (10 * GIB,))

    assert not pool.fits
    assert pool.needed_bytes == 16 * GIB
    assert pool.estimated_max_model_len == (5120 - 1) * 16 == 81904


def test_auto_length_takes_the_longest_that_fits() -> None:
    pool = plan_pool(layout([full(8, 128)] * 32, options(131072, is_auto_length=True)), (10 * GIB,))

    assert pool.fits
    assert pool.max_model_len == 81904


@pytest.mark.parametrize(("version", "longest"), [("0.27.1", 81920), ("0.31.0", 81904)])
def test_null_block_is_left_out_of_the_fit_only_in_newer_releases(version: str, longest: int) -> None:
    pool = plan_pool(layout([full(8, 128)] * 32, options(131072, version=version)), (10 * GIB,))

    assert pool.estimated_max_model_len == longest


def test_override_replaces_the_blocks_and_is_what_the_fit_counts() -> None:
    pool = plan_pool(layout([full(8, 128)] * 32, options(131072, num_gpu_blocks_override=1000)), (50 * GIB,))

    assert pool.num_blocks == 1000
    assert not pool.fits
    assert pool.estimated_max_model_len == 999 * 16


def test_negative_pool_holds_nothing() -> None:
    pool = plan_pool(layout([full(8, 128)] * 32, options(4096)), (-GIB,))

    assert (pool.num_blocks, pool.tokens, pool.fits, pool.estimated_max_model_len) == (0, 0, False, 0)


def test_model_without_cache_has_the_null_block_alone() -> None:
    pool = plan_pool(layout([], options(512)), (GIB,))

    assert (pool.num_blocks, pool.tokens, pool.groups, pool.fits) == (1, 0, (), True)


def test_fullest_stage_bounds_the_pool() -> None:
    layers = tuple((full(8, 128), 0 if index < 21 else 1) for index in range(31))
    pool = plan_pool(layout_of(layers, options(4096, num_stages=2)), (21 * GIB, 21 * GIB))

    assert pool.num_blocks == 21 * GIB // (21 * 65536)


def test_groups_are_dealt_round_robin_over_stages() -> None:
    layers = tuple((spec, index // 31) for index, spec in enumerate(GEMMA_27B))
    groups = layout_of(layers, options(131072, num_stages=2)).groups

    assert [group.num_layers for group in groups] == [9, 9, 9, 9, 8, 8, 10]
    assert {group.members[0][1] for group in groups[:6]} <= {(4, 4), (4, 5), (5, 4), (5, 3)}


@pytest.mark.parametrize(
    ("version", "sizes"), [("0.11.0", [6, 7, 12]), ("0.14.0", [12, 13]), ("0.19.0", [12, 13]), ("0.33.0", [12, 13])]
)
def test_one_draft_layer_more_does_not_split_groups(version: str, sizes: list[int]) -> None:
    layers = [*GPT_OSS_20B, full(8, 64)]
    groups = layout(layers, options(4096, version=version)).groups

    sizes_found = sorted(group.num_layers for group in groups)

    assert sizes_found == sizes


def test_smaller_pages_take_larger_blocks() -> None:
    layers: list[LayerSpec] = [sliding(8, 256, 1024)] * 5 + [full(2, 512)]

    groups = layout(layers, options(4096)).groups

    assert [group.spec.block_size for group in groups] == [16] * 5 + [32]
    assert {group.page_bytes for group in groups} == {131072}


def test_draft_page_that_does_not_divide_is_padded_since_027_and_refused_before() -> None:
    layers: list[LayerSpec] = [full(8, 128)] * 10 + [sliding(3, 128, 1024)] * 10

    new = layout(layers, options(4096))
    old = layout(layers, options(4096, version="0.23.0"))

    assert {group.page_bytes for group in new.groups} == {65536}
    assert new.findings == ()
    assert [finding.severity for finding in old.findings] == ["refusal"]


def test_chunked_and_cross_caches_do_not_grow_with_length() -> None:
    chunked = ChunkedSpec(block_size=16, num_kv_heads=1, content_bytes=512, chunk_size=8192)
    cross = CrossSpec(block_size=16, num_kv_heads=1, content_bytes=512, max_encoder_tokens=1500)
    serving = Serving(max_in_flight_tokens=2048)

    assert chunked.pages(100_000, serving) == chunked.pages(200_000, serving) == (8192 + 2048) // 16
    assert cross.pages(10, serving) == 94


def test_mamba_pages_follow_the_cache_mode() -> None:
    serving = Serving(max_in_flight_tokens=0)
    base = MambaSpec(block_size=528, state_bytes=1000, num_speculative_blocks=2)

    pages = {mode: MambaSpec(block_size=528, state_bytes=1, cache_mode=mode).pages(5280, serving) for mode in MODES}

    assert pages == {"none": 1, "align": 2, "all": 10}
    assert base.pages(1, serving) == 3


MODES = ("none", "align", "all")


def test_decode_context_parallel_divides_full_attention_only() -> None:
    serving = Serving(max_in_flight_tokens=1024, dcp=4)

    assert full(8, 128).pages(4096, serving) == 64
    assert sliding(8, 128, 1024).pages(4096, serving) == sliding(8, 128, 1024).pages(
        4096, Serving(max_in_flight_tokens=1024)
    )


def test_tokens_line_before_021_is_blocks_over_groups() -> None:
    pool = plan_pool(layout(GEMMA_27B, options(131072, version="0.19.0", in_flight_tokens=8192)), (20 * GIB,))

    assert pool.num_blocks == 16384
    assert pool.tokens == 16384 // 7 * 16


def test_v0_pool_is_blocks_of_all_layers() -> None:
    pool = plan_pool(layout([full(8, 128)] * 32, options(8192, version="0.6.6")), (5 * GIB,))

    assert pool.num_blocks == 2560
    assert pool.tokens == 40960
    assert pool.max_concurrency == 5.0


def test_mean_length_concurrency_uses_the_same_blocks() -> None:
    made = layout([full(8, 128)] * 32, options(131072))

    assert blocks_per_request(made, 1000) == 63
    assert max_concurrency(made, 25600, 1000) == 25600 / 63


def test_versions_order_rules() -> None:
    assert rules_of(Version(0, 33, 0)).counts_null_block
    assert not rules_of(Version(0, 11, 0)).can_scale_block_size


def test_a_stage_without_a_cache_does_not_bound_the_pool() -> None:
    layers = ((full(8, 128), 0),) * 4
    pool = plan_pool(layout_of(layers, options(4096, num_stages=2)), (GIB, 1))

    assert pool.num_blocks == GIB // (4 * 65536)


def test_states_beside_attention_need_the_hybrid_manager() -> None:
    made = layout(QWEN3_NEXT, options(4096, hybrid=False))

    assert [finding.code for finding in made.findings] == ["kv-manager-needed"]
