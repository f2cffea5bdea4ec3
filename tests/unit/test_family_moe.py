"""What the expert families build, in small sums that can be followed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_documents, make_gpu, make_resolved

from planner.facts import PlanError
from planner.inventory import Experts, Layer, Linear, ModelFacts
from planner.model_config import read_model
from planner.weights import rank_weights

SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
QWEN3_MOE = SMALL | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
MIXTRAL = SMALL | {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
LLAMA4 = SMALL | {
    "architectures": ["Llama4ForCausalLM"],
    "model_type": "llama4_text",
    "head_dim": 16,
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
    "intermediate_size_mlp": 128,
    "attention_chunk_size": 128,
}
GPT_OSS = SMALL | {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "head_dim": 16,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}


def model_of(config: dict[str, Any], **changes: Any) -> ModelFacts:
    return read_model(make_documents(config | changes))


def experts_in(layer: Layer) -> int:
    return sum(isinstance(module, Experts) for module in layer.modules)


def test_experts_take_their_share_of_parameters() -> None:
    weights = rank_weights(model_of(QWEN3_MOE), make_resolved(), 0)

    # 4 layers x 8 experts x (gate, up, down) x 32 x 64 elements of 2 bytes
    assert dict(weights.by_role)["experts"] == 4 * 8 * 3 * 32 * 64 * 2


def test_tensor_parallelism_divides_each_expert() -> None:
    whole = dict(rank_weights(model_of(QWEN3_MOE), make_resolved(), 0).by_role)

    halved = dict(rank_weights(model_of(QWEN3_MOE), make_resolved(tp=2), 0).by_role)

    assert halved["experts"] * 2 == whole["experts"]


def test_expert_parallelism_deals_whole_experts() -> None:
    dealt = dict(rank_weights(model_of(QWEN3_MOE), make_resolved(tp=2, ep=2), 0).by_role)

    assert dealt["experts"] == 4 * (8 // 2) * 3 * 32 * 64 * 2


def test_router_is_whole_on_every_rank() -> None:
    whole = dict(rank_weights(model_of(QWEN3_MOE), make_resolved(), 0).by_role)

    halved = dict(rank_weights(model_of(QWEN3_MOE), make_resolved(tp=2), 0).by_role)

    assert halved["router"] == whole["router"] == 4 * 8 * 64 * 2


def test_listed_layers_keep_a_dense_mlp() -> None:
    layers = model_of(QWEN3_MOE, mlp_only_layers=[0, 2]).layers

    assert [experts_in(layer) for layer in layers] == [0, 1, 0, 1]


def test_layers_alike_share_one_tuple() -> None:
    layers = model_of(QWEN3_MOE).layers

    assert len({id(layer.modules) for layer in layers}) == 1


def test_mixtral_holds_both_tables_on_every_stage() -> None:
    first, last = (dict(rank_weights(model_of(MIXTRAL), make_resolved(pp=2), rank).by_role) for rank in (0, 1))

    table = 128 * 64 * 2
    assert [first["embedding"], first["head"], last["embedding"], last["head"]] == [table] * 4


def test_one_window_for_all_when_layers_do_not_differ() -> None:
    layers = model_of(MIXTRAL, sliding_window=32).layers

    assert {(cache.kind, cache.sliding_window) for layer in layers for cache in layer.caches} == {("sliding", 32)}


def test_window_of_zero_means_none() -> None:
    layers = model_of(MIXTRAL, sliding_window=0).layers

    assert {cache.kind for layer in layers for cache in layer.caches} == {"full"}


def test_llama4_alternates_experts_and_chunks() -> None:
    layers = model_of(LLAMA4).layers

    assert [experts_in(layer) for layer in layers] == [0, 1, 0, 1]
    assert [layer.caches[0].kind for layer in layers] == ["chunked", "chunked", "chunked", "full"]


def test_llama4_without_chunks_attends_to_everything() -> None:
    layers = model_of(LLAMA4, attention_chunk_size=0).layers

    assert {layer.caches[0].kind for layer in layers} == {"full"}


def test_gpt_oss_windows_every_other_layer() -> None:
    layers = model_of(GPT_OSS).layers

    assert [layer.caches[0].sliding_window for layer in layers] == [128, None, 128, None]


def test_gpt_oss_rotary_cache_is_float32_over_the_scaled_length() -> None:
    weights = rank_weights(model_of(GPT_OSS), make_resolved(), 0)

    # 64 positions x factor 4 x 16 columns x 4 bytes, and four scale scalars in each of 4 layers
    assert weights.buffer_bytes == 64 * 4 * 16 * 4 + 4 * 4 * 4


def test_shared_expert_gate_is_there_without_a_shared_expert() -> None:
    config = QWEN3_MOE | {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe"}

    layer = model_of(config, shared_expert_intermediate_size=0).layers[0]

    gates = [module.name for module in layer.modules if isinstance(module, Linear) and module.role == "router"]
    assert gates == ["mlp.gate", "mlp.shared_expert_gate"]


def test_missing_number_of_experts_is_named() -> None:
    config = {key: value for key, value in GPT_OSS.items() if key != "num_local_experts"} | {"model_type": "nameless"}

    with pytest.raises(PlanError, match="num_local_experts"):
        model_of(config)


def test_tensor_parallel_size_that_cuts_an_expert_unevenly_is_refused() -> None:
    config = QWEN3_MOE | {"moe_intermediate_size": 33}

    with pytest.raises(PlanError) as caught:
        rank_weights(model_of(config), make_resolved(tp=2, gpu=make_gpu()), 0)

    assert caught.value.field == "tensor_parallel_size"


ARCTIC = SMALL | {
    "architectures": ["ArcticForCausalLM"],
    "model_type": "arctic",
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_layer_frequency": 2,
    "use_residual": True,
}
GROK = SMALL | {
    "architectures": ["Grok1ForCausalLM"],
    "model_type": "grok-1",
    "num_local_experts": 4,
    "moe_intermediate_size": 48,
    "residual_moe": True,
}
DOTS = SMALL | {
    "architectures": ["Dots1ForCausalLM"],
    "model_type": "dots1",
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "topk_method": "noaux_tc",
}
GLM4 = DOTS | {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "num_nextn_predict_layers": 1}
STEP3 = SMALL | {
    "architectures": ["Step3TextForCausalLM"],
    "model_type": "step3_text",
    "head_dim": 16,
    "share_q_dim": 32,
    "moe_num_experts": 4,
    "moe_top_k": 2,
    "moe_intermediate_size": 32,
    "share_expert_dim": 32,
}


def test_arctic_adds_a_residual_mlp_where_it_has_experts() -> None:
    layers = model_of(ARCTIC).layers

    residual = [any(module.name.startswith("residual_mlp") for module in layer.modules) for layer in layers]
    assert residual == [bool(experts_in(layer)) for layer in layers] == [False, True, False, True]


def test_grok_keeps_a_dense_mlp_beside_its_experts() -> None:
    parts = dict(rank_weights(model_of(GROK), make_resolved(version="0.19.0"), 0).by_role)

    assert parts["mlp"] == 4 * 3 * 96 * 64 * 2
    assert parts["experts"] == 4 * 4 * 3 * 48 * 64 * 2


def test_dots_scores_have_a_float32_bias() -> None:
    parts = dict(rank_weights(model_of(DOTS), make_resolved(version="0.19.0"), 0).by_role)

    assert parts["router"] == 3 * (4 * 64 * 2 + 4 * 4)


def test_glm4_router_is_float32() -> None:
    parts = dict(rank_weights(model_of(GLM4), make_resolved(), 0).by_role)

    assert parts["router"] == 3 * (4 * 64 * 4 + 4 * 4)


def test_glm4_draft_layer_has_experts_of_its_own() -> None:
    drafts = model_of(GLM4).draft_layers

    assert [(draft.prefix, experts_in(draft)) for draft in drafts] == [("model.layers.4", 1)]


def test_step3_projects_queries_through_a_bottleneck_on_every_rank() -> None:
    whole, halved = (dict(rank_weights(model_of(STEP3), make_resolved(tp=tp), 0).by_role) for tp in (1, 2))

    replicated = 4 * 64 * (32 + 2 * 16) * 2
    assert halved["attention"] - replicated == (whole["attention"] - replicated) // 2


def test_step3_refuses_layer_numbers_that_are_none() -> None:
    with pytest.raises(PlanError) as caught:
        model_of(STEP3, moe_layers_enum="1,two")

    assert caught.value.field == "moe_layers_enum"


def test_hunyuan_on_transformers_keeps_frequencies_in_place_of_a_rotary_cache() -> None:
    config = SMALL | {
        "architectures": ["HunYuanMoEV1ForCausalLM"],
        "model_type": "hunyuan_v1_moe",
        "num_experts": 4,
        "moe_topk": [2] * 4,
        "moe_intermediate_size": [32] * 4,
        "num_shared_expert": [1] * 4,
        "use_mixed_mlp_moe": True,
    }

    older, newer = (
        rank_weights(read_model(make_documents(config), vllm_minor=minor), make_resolved(), 0).buffer_bytes
        for minor in (23, 32)
    )

    scales = 4 * 4 * 4
    assert (older - scales, newer - scales) == (256 * 16 * 2, 2 * 8 * 4)


def test_dbrx_without_its_attention_section_is_refused() -> None:
    config = {"architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "d_model": 64, "n_heads": 4, "n_layers": 2}

    with pytest.raises(PlanError):
        model_of(config, attn_config=3, vocab_size=128)
