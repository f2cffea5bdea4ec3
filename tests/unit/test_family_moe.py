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
