"""Laws of the KV pool: room is never lost or made up, more bytes never hold less, the longest length really is the longest."""

from __future__ import annotations

from factories import make_resolved
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.inventory import Cache, Layer, ModelFacts
from planner.kv_cache import KvLayout, PoolOptions, blocks_per_request, layout, layout_of, plan_pool
from planner.kv_rules import rules_of
from planner.layer_specs import ChunkedSpec, FullSpec, LayerSpec, MambaSpec, MlaSpec, Serving, SlidingSpec
from planner.units import MIB
from planner.versions import Version

VERSIONS = st.sampled_from([Version(0, minor, 0) for minor in (6, 8, 10, 12, 14, 18, 21, 24, 27, 29, 33)])
BLOCKS = st.sampled_from([16, 32, 64])


@st.composite
def layer_specs(draw: st.DrawFn) -> LayerSpec:
    block, heads = draw(BLOCKS), draw(st.sampled_from([1, 2, 4, 8]))
    kind = draw(st.sampled_from(["full", "mla", "sliding", "chunked", "mamba"]))
    if kind == "mamba":
        return MambaSpec(block_size=block, state_bytes=draw(st.integers(1, 4 * MIB)), cache_mode="align")
    if kind == "mla":
        return MlaSpec(block_size=block, num_kv_heads=1, content_bytes=1152)
    if kind == "full":
        return FullSpec(block_size=block, num_kv_heads=heads, content_bytes=512)
    if kind == "sliding":
        window = draw(st.integers(1, 4096))
        return SlidingSpec(block_size=block, num_kv_heads=heads, content_bytes=512, sliding_window=window)
    return ChunkedSpec(block_size=block, num_kv_heads=heads, content_bytes=512, chunk_size=draw(st.integers(1, 8192)))


@st.composite
def layouts(draw: st.DrawFn) -> KvLayout:
    version, num_stages = draw(VERSIONS), draw(st.integers(1, 3))
    kinds = draw(st.lists(layer_specs(), min_size=1, max_size=4))
    layers = draw(st.lists(st.sampled_from(kinds), min_size=num_stages, max_size=24))
    placed = tuple((spec, index * num_stages // len(layers)) for index, spec in enumerate(layers))
    length = draw(st.integers(1, 200_000))
    options = PoolOptions(
        version=version,
        rules=rules_of(version),
        serving=Serving(max_in_flight_tokens=draw(st.integers(1, 32768))),
        max_model_len=length,
        longest_model_len=length,
        is_hybrid_manager_enabled=draw(st.booleans()),
        is_block_outermost=draw(st.booleans()),
        num_stages=num_stages,
    )
    return layout_of(placed, options)


POOLS = st.integers(-(2**30), 2**37)


@given(layouts())
def test_every_layer_is_in_one_group(made: KvLayout) -> None:
    held = sum(number for stage in made.stage_layers for _, number in stage)

    assert sum(group.num_layers for group in made.groups) == held


@given(layouts(), POOLS, st.integers(0, 2**33))
def test_more_bytes_never_hold_less(made: KvLayout, pool_bytes: int, more_bytes: int) -> None:
    num_stages = made.options.num_stages

    less = plan_pool(made, (pool_bytes,) * num_stages)
    more = plan_pool(made, (pool_bytes + more_bytes,) * num_stages)

    assert more.num_blocks >= less.num_blocks
    assert more.tokens >= less.tokens
    assert more.fits >= less.fits
    assert more.estimated_max_model_len >= less.estimated_max_model_len


@given(layouts(), POOLS)
def test_blocks_never_exceed_the_pool(made: KvLayout, pool_bytes: int) -> None:
    pool = plan_pool(made, (pool_bytes,) * made.options.num_stages)

    assert pool.num_blocks * max(made.bytes_per_block) <= max(pool_bytes, 0)


@given(layouts(), POOLS)
def test_longest_length_fits_and_is_the_longest(made: KvLayout, pool_bytes: int) -> None:
    pools = (pool_bytes,) * made.options.num_stages
    longest = plan_pool(made, pools).estimated_max_model_len

    assert longest == 0 or plan_pool(made, pools, longest).fits
    assert longest >= made.options.longest_model_len or not plan_pool(made, pools, longest + 1).fits


@given(layouts(), st.integers(1, 100_000), st.integers(0, 100_000))
def test_longer_requests_never_take_fewer_blocks(made: KvLayout, length: int, more: int) -> None:
    assert blocks_per_request(made, length + more) >= blocks_per_request(made, length)


@given(BLOCKS, st.integers(1, 10**6))
def test_tokens_to_blocks_to_tokens_never_loses_room(block: int, tokens: int) -> None:
    spec = FullSpec(block_size=block, num_kv_heads=1, content_bytes=4)

    blocks = spec.pages(tokens, Serving(max_in_flight_tokens=1))

    assert tokens <= blocks * block < tokens + block


def _model(caches: tuple[Cache, ...]) -> ModelFacts:
    layers = tuple(Layer(index=i, prefix=f"layers.{i}", modules=(), caches=(cache,)) for i, cache in enumerate(caches))
    return ModelFacts(
        model_id="test",
        architecture="Test",
        model_type="test",
        dtype="bfloat16",
        hidden_size=1024,
        intermediate_size=1024,
        vocab_size=1000,
        num_attention_heads=64,
        max_position=32768,
        layers=layers,
        parts=(),
        quantization=None,
    )


CACHES = st.builds(
    Cache,
    kind=st.sampled_from(["full", "sliding"]),
    num_kv_heads=st.sampled_from([1, 2, 4, 8, 16, 64]),
    head_size=st.sampled_from([64, 128, 256]),
    sliding_window=st.just(1024),
)


@settings(max_examples=50)
@given(st.lists(CACHES, min_size=1, max_size=12), st.sampled_from([1, 2, 4]))
def test_more_tensor_parallelism_never_raises_bytes_per_token(caches: list[Cache], tp: int) -> None:
    model = _model(tuple(caches))

    few = layout(model, make_resolved(tp=tp))
    many = layout(model, make_resolved(tp=2 * tp))

    assert many.kv_bytes_per_token <= few.kv_bytes_per_token
