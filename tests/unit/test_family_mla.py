"""What the latent-attention families build, in small sums that can be followed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_documents, make_resolved

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families.draft_layers import eagle_draft
from planner.inventory import Cache, Linear, ModelFacts
from planner.model_config import read_model
from planner.request import EngineFlags, SpeculativeConfig
from planner.weights import rank_weights

DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 1,
    "rope_scaling": None,
}
SPARSE = DEEPSEEK | {
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "index_topk": 16,
    "index_n_heads": 2,
    "index_head_dim": 128,
}
V4: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_hash_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 32,
    "o_lora_rank": 32,
    "o_groups": 2,
    "sliding_window": 128,
    "index_n_heads": 2,
    "index_head_dim": 128,
    "index_topk": 16,
    "hc_mult": 2,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "topk_method": "noaux_tc",
    "compress_ratios": [0, 4, 128, 4],
    "num_nextn_predict_layers": 1,
}
MTP = EngineFlags(speculative_config=SpeculativeConfig(method="mtp", num_speculative_tokens=1))


def model_of(config: dict[str, Any], *, vllm_minor: int = 33, **changes: Any) -> ModelFacts:
    return read_model(make_documents(config | changes), vllm_minor=vllm_minor)


def roles(model: ModelFacts, **changes: Any) -> dict[str, int]:
    return dict(rank_weights(model, make_resolved(**changes), 0).by_role)


def test_one_latent_vector_is_cached_per_token() -> None:
    caches = {cache for layer in model_of(DEEPSEEK).layers for cache in layer.caches}

    assert caches == {Cache(kind="mla", num_kv_heads=1, head_size=16 + 4, head_size_v=0)}


def test_releases_before_latent_attention_cache_every_padded_head() -> None:
    caches = {cache for layer in model_of(DEEPSEEK, vllm_minor=6).layers for cache in layer.caches}

    assert caches == {Cache(kind="full", num_kv_heads=4, head_size=256)}


def test_down_projections_are_whole_on_every_rank() -> None:
    whole, halved = (roles(model_of(DEEPSEEK), tp=tp)["attention"] for tp in (1, 2))

    replicated = 4 * (24 + 16 + 4) * 64 * 2  # 4 layers x (query, latent, rotary) x hidden x 2 bytes
    assert halved - replicated == (whole - replicated) // 2


def test_first_layers_are_dense() -> None:
    names = [
        {module.name for module in layer.modules if isinstance(module, Linear)} for layer in model_of(DEEPSEEK).layers
    ]

    assert ["mlp.gate_up_proj" in found for found in names] == [True, False, False, False]


def test_shared_experts_are_one_mlp_of_their_widths() -> None:
    # 3 sparse layers x (gate, up, down) x 2 experts x 32 x 64 elements of 2 bytes
    assert roles(model_of(DEEPSEEK))["shared_experts"] == 3 * 3 * (2 * 32) * 64 * 2


def test_shared_experts_are_whole_where_tokens_are_split() -> None:
    dealt = roles(model_of(DEEPSEEK), tp=2, dp=2, ep=4)

    assert dealt["shared_experts"] == roles(model_of(DEEPSEEK))["shared_experts"]


def test_query_may_come_without_a_bottleneck() -> None:
    layer = model_of(DEEPSEEK, q_lora_rank=None).layers[0]

    names = [module.name for module in layer.modules if isinstance(module, Linear)]
    assert names[:2] == ["self_attn.q_proj", "self_attn.kv_a_proj_with_mqa"]


def test_mtp_layer_waits_for_speculative_decoding() -> None:
    plain, drafting = (
        rank_weights(model_of(DEEPSEEK), make_resolved(flags=flags), 0) for flags in (EngineFlags(), MTP)
    )

    layer = (
        plain.parameter_bytes
        - rank_weights(model_of(DEEPSEEK, num_hidden_layers=3), make_resolved(), 0).parameter_bytes
    )
    around = (2 * 64 * 64 + 3 * 64) * 2  # the 2h-to-h projection and three norms
    assert drafting.parameter_bytes - plain.parameter_bytes == layer + around


def test_indexer_adds_a_cache_of_float8_keys_with_scales() -> None:
    caches = model_of(SPARSE).layers[0].caches

    assert [(cache.kind, cache.head_size) for cache in caches] == [("mla", 20), ("indexer", 128 + 4)]


def test_only_chosen_layers_index_where_the_config_says_so() -> None:
    layers = model_of(SPARSE, index_topk_freq=2, index_skip_topk_offset=1).layers

    assert [len(layer.caches) for layer in layers] == [2, 1, 2, 1]


def test_pattern_names_the_layers_that_skip() -> None:
    layers = model_of(SPARSE, index_topk_pattern="FSSF").layers

    assert [len(layer.caches) for layer in layers] == [2, 1, 1, 2]


def test_draft_layer_indexes_for_itself() -> None:
    draft = model_of(SPARSE, index_topk_freq=4).draft_layers[0]

    assert [cache.kind for cache in draft.caches] == ["mla", "indexer"]


def test_chosen_keys_table_grows_with_the_batch() -> None:
    small, large = (
        rank_weights(model_of(SPARSE), make_resolved(max_num_batched_tokens=tokens), 0).post_load_bytes
        for tokens in (1024, 2048)
    )

    assert large - small == 1024 * 16 * 4


@pytest.mark.parametrize(("minor", "is_fused"), [(19, False), (33, True)])
def test_indexer_projections_fuse_in_newer_releases(minor: int, is_fused: bool) -> None:
    names = {
        module.name for module in model_of(SPARSE, vllm_minor=minor).layers[0].modules if isinstance(module, Linear)
    }

    assert ("self_attn.indexer.wk_weights_proj" in names) is is_fused


def test_deepseek_v4_keeps_a_window_beside_compressed_keys() -> None:
    layers = model_of(V4).layers

    assert [len(layer.caches) for layer in layers] == [1, 5, 3, 5]
    assert {cache.kind for layer in layers for cache in layer.caches} == {"deepseek_v4"}


def test_deepseek_v4_state_is_584_bytes() -> None:
    window = model_of(V4).layers[0].caches[0]

    # 448 float8, 64 rotary elements of 2 bytes, 7 group scales and one byte of padding
    assert dict(window.extra)["state_bytes"] == 448 + 128 + 8


def test_deepseek_v4_stage_without_plain_windows_has_one_rotary_cache() -> None:
    model = model_of(V4)

    first, last = (rank_weights(model, make_resolved(pp=2), rank).buffer_bytes for rank in (0, 1))

    assert (first, last) == (2 * 256 * 64 * 4, 256 * 64 * 4)


def test_deepseek_v4_hashed_layer_has_a_table_in_place_of_score_bias() -> None:
    router = [
        {module.name for module in layer.modules if getattr(module, "role", "") == "router"}
        for layer in model_of(V4).layers[:2]
    ]

    assert router == [
        {"ffn.gate", "ffn.gate.tid2eid"},
        {"ffn.gate", "ffn.gate.e_score_correction_bias"},
    ]


def test_deepseek_v4_refuses_a_ratio_that_is_no_number() -> None:
    with pytest.raises(PlanError) as caught:
        model_of(V4, compress_ratios=["4", 4, 4, 4])

    assert caught.value.field == "compress_ratios"


def test_eagle3_reads_token_and_hidden_state_in_its_first_layer() -> None:
    draft = ConfigView(
        {
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_attention_heads": 4,
            "num_hidden_layers": 1,
            "vocab_size": 128,
            "draft_vocab_size": 100,
        }
    )

    layers = eagle_draft(draft, method="eagle3", target_hidden_size=80, target_vocab_size=128)

    inputs = {module.name: module.in_features for module in layers[0].modules if isinstance(module, Linear)}
    assert (inputs["self_attn.qkv_proj"], inputs["fc"]) == (2 * 64, 3 * 80)


def test_eagle_draft_is_a_model_that_can_be_read() -> None:
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "vocab_size": 128,
        "draft_vocab_size": 64,
        "torch_dtype": "bfloat16",
        "max_position_embeddings": 256,
    }

    weights = rank_weights(read_model(make_documents(config)), make_resolved(), 0)

    attention = (2 * 64) * (64 + 32 + 32) + 64 * 64
    assert (
        weights.parameter_bytes == 2 * (attention + 3 * 64 * 96 + 4 * 64 + (3 * 64) * 64 + 64 * 64) + 8 * 64
    )  # fc, the draft's head, and the table to the target's vocabulary in int64


@pytest.mark.parametrize(("version", "workspace_mib"), [("0.11.0", 0), ("0.19.0", 128), ("0.27.1", 0)])
def test_releases_that_try_flashinfer_hold_its_workspace(version: str, workspace_mib: int) -> None:
    weights = rank_weights(model_of(DEEPSEEK), make_resolved(version=version), 0)

    assert weights.post_load_bytes == workspace_mib * 2**20


def test_eagle3_draft_of_deepseek_shape_caches_one_latent_vector() -> None:
    config = DEEPSEEK | {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 64,
    }

    layer = model_of(config).layers[0]

    inputs = {module.name: module.in_features for module in layer.modules if isinstance(module, Linear)}
    assert (inputs["self_attn.fused_qkv_a_proj"], inputs["fc"]) == (2 * 64, 3 * 64)
    assert [cache.kind for cache in layer.caches] == ["mla"]
