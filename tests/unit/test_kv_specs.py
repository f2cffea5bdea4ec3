"""From a model's caches to the specs of one rank: heads, formats, windows, states, drafts, by card and release."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factories import make_gpu, make_resolved

from planner.inventory import Cache, Layer, ModelFacts, Part, StateTensor
from planner.kv_cache import host_blocks, layout
from planner.kv_specs import cache_refusal, model_caches
from planner.layer_specs import CrossSpec, FullSpec, MambaSpec, MlaSpec, SlidingMlaSpec, SlidingSpec
from planner.request import EngineFlags, SpeculativeConfig
from planner.units import GIB

FULL = Cache(kind="full", num_kv_heads=8, head_size=128)
WINDOW = Cache(kind="sliding", num_kv_heads=8, head_size=128, sliding_window=1024)
LATENT = Cache(kind="mla", num_kv_heads=1, head_size=576, head_size_v=0)
INDEXER = Cache(kind="indexer", num_kv_heads=1, head_size=132, head_size_v=0)
GDN = Cache(
    kind="gdn",
    states=(
        StateTensor(shape=(3, 8192), shard_dim=1, dtype_rule="conv", conv_extra_dim=0),
        StateTensor(shape=(32, 128, 128), shard_dim=0, dtype_rule="ssm"),
    ),
)
HOPPER, BLACKWELL, ADA = make_gpu(), make_gpu(capability=(10, 0)), make_gpu(capability=(8, 9))


def model(*caches: Cache | tuple[Cache, ...], **changes: Any) -> ModelFacts:
    """A model with one layer a cache (a tuple: several caches in one layer)."""
    layers = tuple(
        Layer(index=index, prefix=f"layers.{index}", modules=(), caches=held if isinstance(held, tuple) else (held,))
        for index, held in enumerate(caches)
    )
    values: dict[str, Any] = {
        "model_id": "test",
        "architecture": "TestForCausalLM",
        "model_type": "test",
        "dtype": "bfloat16",
        "hidden_size": 4096,
        "intermediate_size": 8192,
        "vocab_size": 1000,
        "num_attention_heads": 64,
        "max_position": 131072,
        "layers": layers,
        "parts": (),
        "quantization": None,
        "mla_nope_head_dim": 128,
    }
    return ModelFacts(**(values | changes))


def specs(made: ModelFacts, **changes: Any) -> list[Any]:
    return [spec for spec, _ in model_caches(made, make_resolved(**changes)).layers]


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1)])
def test_kv_heads_are_divided_until_one_is_left(tp: int, heads: int) -> None:
    assert specs(model(FULL), tp=tp)[0].num_kv_heads == heads


@pytest.mark.parametrize("tp", [1, 8])
def test_latent_and_indexer_are_whole_on_every_rank(tp: int) -> None:
    indexer, latent = specs(model((INDEXER, LATENT)), tp=tp)

    assert (indexer.page_bytes, latent.page_bytes) == (64 * 132, 64 * 1152)
    assert type(latent) is MlaSpec


@pytest.mark.parametrize(
    ("kind", "gpu", "changes", "block"),
    [
        (FULL, HOPPER, {}, 16),
        (FULL, make_gpu(vendor="Intel", capability=None), {}, 64),
        (FULL, make_gpu(vendor="CPU", capability=None), {}, 32),
        (FULL, make_gpu(vendor="CPU", capability=None), {"version": "0.23.0"}, 128),
        (FULL, make_gpu(vendor="AMD", capability=None), {}, 16),
        (LATENT, HOPPER, {}, 16),
        (LATENT, HOPPER, {"version": "0.11.0"}, 64),
        (LATENT, HOPPER, {"kv_cache_dtype": "fp8_e4m3"}, 64),
        (LATENT, BLACKWELL, {}, 32),
        (LATENT, BLACKWELL, {"version": "0.11.0"}, 128),
        (LATENT, ADA, {}, 16),
        (LATENT, HOPPER, {"flags": EngineFlags(attention_backend="CUTLASS_MLA")}, 128),
        (FULL, HOPPER, {"flags": EngineFlags(block_size=32)}, 32),
        (Cache(kind="full", num_kv_heads=2, head_size=512), HOPPER, {"kv_cache_dtype": "fp8_e4m3"}, 64),
        (FULL, make_gpu(vendor="AMD", capability=None), {"kv_cache_dtype": "ultraquant_4bit"}, 64),
    ],
)
def test_block_size_follows_the_backend(kind: Cache, gpu: Any, changes: dict[str, Any], block: int) -> None:
    caches = model_caches(model(*[kind] * 8), make_resolved(gpu=gpu, **changes))

    assert caches.layers[4][0].block_size == block


def test_packed_dtypes_leave_boundary_layers_alone() -> None:
    made = specs(model(*[FULL] * 6), kv_cache_dtype="turboquant_4bit_nc")

    assert [spec.kv_format for spec in made] == ["bfloat16"] * 2 + ["turboquant_4bit_nc"] * 2 + ["bfloat16"] * 2
    assert made[2].content_bytes == 134
    assert made[2].page_bytes >= 16 * 8 * 512  # covers the smallest page of an unquantised layer


def test_windows_can_be_switched_off() -> None:
    assert type(specs(model(WINDOW))[0]) is SlidingSpec
    assert type(specs(model(WINDOW), flags=EngineFlags(disable_sliding_window=True))[0]) is FullSpec


def test_windowed_latents_have_a_spec_of_their_own() -> None:
    cache = Cache(kind="mla", num_kv_heads=1, head_size=576, head_size_v=0, sliding_window=512)

    assert type(specs(model(cache))[0]) is SlidingMlaSpec


def test_sharing_layers_keep_nothing() -> None:
    assert len(specs(model(FULL, Cache(kind="shared"), Cache(kind="none")))) == 1


def test_cross_attention_holds_the_batchs_token_budget() -> None:
    cross = Cache(kind="cross", num_kv_heads=20, head_size=64)

    made = specs(model((FULL, cross)), max_num_batched_tokens=8192)

    assert isinstance(made[1], CrossSpec)
    assert made[1].max_encoder_tokens == 8192


def test_caches_of_parts_are_placed_by_their_stage() -> None:
    part = Part(prefix="draft", stage="last", modules=(), caches=(FULL,))

    caches = model_caches(model(FULL, FULL, parts=(part,)), make_resolved(pp=2))

    assert [stage for _, stage in caches.layers] == [0, 1, 1]


@pytest.mark.parametrize(
    ("mode", "version", "block", "checkpoints"),
    [("none", "0.32.0", 1056, 0), ("align", "0.32.0", 1056, 0), ("align", "0.33.0", 1088, 1)],
)
def test_attention_block_grows_to_hold_a_state(mode: str, version: str, block: int, checkpoints: int) -> None:
    hybrid = model(
        GDN, GDN, GDN, Cache(kind="full", num_kv_heads=2, head_size=256), text_config={"mamba_ssm_dtype": "float32"}
    )

    made = specs(hybrid, mamba_cache_mode=mode, version=version)

    assert made[0].state_bytes == 3 * 8192 * 2 + 32 * 128 * 128 * 4
    assert made[3].block_size == block
    assert made[0].page_bytes == made[3].page_bytes
    assert (made[0].cache_mode, made[0].num_checkpoint_blocks) == (mode, checkpoints)


def test_draft_tokens_lengthen_the_convolution_and_hold_states() -> None:
    config = SpeculativeConfig(method="mtp", num_speculative_tokens=3)
    made = specs(
        model(GDN, FULL), num_speculative_tokens=3, version="0.24.0", flags=EngineFlags(speculative_config=config)
    )

    assert isinstance(made[0], MambaSpec)
    assert made[0].state_bytes == (6 * 8192 + 32 * 128 * 128) * 2
    assert made[0].num_speculative_blocks == 3


@pytest.mark.parametrize(
    ("flags", "dtype_bytes"),
    [
        (EngineFlags(), 2),
        (EngineFlags(mamba_ssm_cache_dtype="float32"), 4),
        (EngineFlags(mamba_cache_dtype="float32"), 4),
    ],
)
def test_state_dtype_follows_the_flags(flags: EngineFlags, dtype_bytes: int) -> None:
    state = StateTensor(shape=(4, 4), shard_dim=0, dtype_rule="ssm")

    made = specs(model(Cache(kind="mamba2", states=(state,)), FULL), flags=flags, version="0.31.0")

    assert made[0].state_bytes == 16 * dtype_bytes


@pytest.mark.parametrize(("kind", "expected"), [("kda", 4), ("mamba1", 2)])
def test_kda_states_are_float32_by_default(kind: Any, expected: int) -> None:
    state = StateTensor(shape=(4,), shard_dim=None, dtype_rule="ssm")

    assert specs(model(Cache(kind=kind, states=(state,)), FULL))[0].state_bytes == 4 * expected


def test_all_mode_keeps_blocks_on_the_scans_chunk() -> None:
    state = StateTensor(shape=(100_000,), shard_dim=None, dtype_rule="float32")
    hybrid = model(Cache(kind="mamba2", states=(state,)), FULL, text_config={"chunk_size": 256})

    made = specs(hybrid, mamba_cache_mode="all", version="0.27.1")

    assert made[1].block_size == 256
    assert made[0].pages(2560, None) == 10


def test_mtp_layers_join_the_last_stage() -> None:
    draft = Layer(index=2, prefix="mtp", modules=(), caches=(FULL,))
    config = SpeculativeConfig(method="mtp", num_speculative_tokens=1)

    caches = model_caches(
        model(FULL, FULL, draft_layers=(draft,)), make_resolved(pp=2, flags=EngineFlags(speculative_config=config))
    )

    assert [stage for _, stage in caches.layers] == [0, 1, 1]


@pytest.mark.parametrize(
    ("method", "num_layers", "codes"),
    [
        ("ngram", 2, []),
        ("eagle3", 3, ["draft-not-sized"]),
        ("draft_model", 2, ["draft-not-sized"]),
    ],
)
def test_unknown_drafts_are_said_to_be_assumed(method: str, num_layers: int, codes: list[str]) -> None:
    config = SpeculativeConfig(method=method, num_speculative_tokens=3, model="some/draft")

    sizes = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 512}

    caches = model_caches(
        model(FULL, FULL, text_config=sizes), make_resolved(flags=EngineFlags(speculative_config=config))
    )

    assert len(caches.layers) == num_layers
    assert [finding.code for finding in caches.findings] == codes


def test_a_known_draft_brings_its_own_layers() -> None:
    config = SpeculativeConfig(method="draft_model", num_speculative_tokens=3, model="some/draft")
    small = Cache(kind="full", num_kv_heads=2, head_size=64)

    target = replace(model(FULL), draft=model(small, small))

    made = layout(target, make_resolved(flags=EngineFlags(speculative_config=config)))

    assert [group.num_layers for group in made.groups] == [3]


@pytest.mark.parametrize(
    ("asked", "kv_cache_dtype", "page_bytes", "is_refused"),
    [
        ("fp8", "fp8_e4m3", 64 * 656, False),
        ("auto", "fp8_e4m3", 64 * 656, True),
        ("fp8_ds_mla", "fp8_ds_mla", 64 * 656, False),
        ("auto", "bfloat16", 64 * 1152, False),
    ],
)
def test_sparse_mla_on_hopper_has_one_fp8_layout(
    asked: str, kv_cache_dtype: str, page_bytes: int, *, is_refused: bool
) -> None:
    resolved = make_resolved(version="0.32.0", kv_cache_dtype=kv_cache_dtype, flags=EngineFlags(kv_cache_dtype=asked))

    caches = model_caches(model((INDEXER, LATENT)), resolved)

    assert caches.layers[1][0].page_bytes == page_bytes
    assert (cache_refusal(model((INDEXER, LATENT)), resolved) is not None) == is_refused


def test_sparse_mla_on_blackwell_keeps_plain_fp8() -> None:
    made = specs(model((INDEXER, LATENT)), gpu=BLACKWELL, kv_cache_dtype="fp8_e4m3")

    assert made[1].page_bytes == 64 * 576


def test_v0_pool_leaves_states_out_and_swaps_to_host() -> None:
    made = layout(model(GDN, FULL), make_resolved(version="0.6.6", runner="v0", mamba_cache_mode="none"))

    assert [group.num_layers for group in made.groups] == [1]
    assert host_blocks(made, 4 * GIB) == 4 * GIB // (16 * 8 * 512)


def test_equal_questions_share_one_layout() -> None:
    made = model(FULL)

    assert layout(made, make_resolved()) is layout(made, make_resolved(gpu_memory_utilization=0.5))
    assert layout(made, make_resolved()) is not layout(made, make_resolved(tp=2))


def test_context_parallel_windows_are_refused() -> None:
    caches = model_caches(model(WINDOW, FULL), make_resolved(dcp=2))

    assert [finding.code for finding in caches.findings] == ["kv-dcp-window"]
