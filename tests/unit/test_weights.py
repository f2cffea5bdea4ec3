from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factories import make_documents, make_resolved

from planner.checkpoint import checkpoint_findings
from planner.facts import PlanError
from planner.inventory import CheckpointTensor, ModelFacts
from planner.model_config import read_model
from planner.request import EngineFlags
from planner.units import GIB
from planner.weights import rank_weights

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
    "torch_dtype": "bfloat16",
}
TABLE = 1024 * 256 * 2  # 1,000 rows rounded up to 64, in bytes
QKV, OUTPUT, MLP = 256 * (256 + 2 * 128), 256 * 256, 3 * 256 * 512
NORMS = 2 * 256
LAYER = 2 * (QKV + OUTPUT + MLP + NORMS)


def _model(**changes: Any) -> ModelFacts:
    return read_model(make_documents(CONFIG | changes))


def test_parameters_are_the_tables_the_layers_and_the_last_norm() -> None:
    weights = rank_weights(_model(), make_resolved(), 0)

    assert weights.parameter_bytes == 2 * TABLE + 2 * LAYER + 512


def test_a_tied_head_is_one_table() -> None:
    weights = rank_weights(_model(tie_word_embeddings=True), make_resolved(), 0)

    assert weights.parameter_bytes == TABLE + 2 * LAYER + 512


def test_a_tied_table_is_on_both_ends_of_a_pipeline() -> None:
    model = _model(tie_word_embeddings=True)

    first, last = (rank_weights(model, make_resolved(pp=2), rank).parameter_bytes for rank in (0, 1))

    assert (first, last) == (TABLE + LAYER, TABLE + LAYER + 512)


def test_key_and_value_heads_are_copied_once_there_are_more_ranks() -> None:
    weights = rank_weights(_model(), make_resolved(tp=4), 0)

    qkv = 256 * (64 + 2 * 64)  # one query head and one copied KV head of 64
    layer = 2 * (qkv + OUTPUT // 4 + MLP // 4 + NORMS)
    assert weights.parameter_bytes == 2 * TABLE // 4 + 2 * layer + 512


def test_a_tensor_parallel_size_that_does_not_divide_is_refused() -> None:
    with pytest.raises(PlanError, match="tensor_parallel_size 3") as caught:
        rank_weights(_model(), make_resolved(tp=3), 0)
    assert caught.value.field == "tensor_parallel_size"


def test_buffers_are_the_rotary_cache_and_four_scalars_a_layer() -> None:
    weights = rank_weights(_model(), make_resolved(), 0)

    assert weights.buffer_bytes == 128 * 64 * 2 + 2 * 16


def test_roles_add_up_to_the_parameters() -> None:
    weights = rank_weights(_model(), make_resolved(), 0)

    assert sum(num_bytes for _, num_bytes in weights.by_role) == weights.parameter_bytes


def test_lora_adds_a_pair_of_matrices_per_projection() -> None:
    flags = EngineFlags(enable_lora=True, max_loras=2, max_lora_rank=8)

    model = _model(architectures=["Qwen2ForCausalLM"], model_type="qwen2")  # adapts no tables

    weights = rank_weights(model, make_resolved(flags=flags), 0)

    inputs = 3 * 256 + 256 + 2 * 256 + 512  # q, k, v; output; gate, up; down
    outputs = 256 + 2 * 128 + 256 + 2 * 512 + 256
    assert weights.post_load_bytes == 2 * 2 * 8 * 2 * (inputs + outputs)


def test_offloading_takes_no_more_than_the_layers_hold() -> None:
    whole = rank_weights(_model(), make_resolved(), 0).load.best_bytes

    offloaded = rank_weights(_model(), make_resolved(flags=EngineFlags(cpu_offload_gb=1.0)), 0).load.best_bytes

    assert whole - offloaded == 2 * LAYER < GIB


def test_without_expert_parallelism_data_parallel_ranks_share_the_experts() -> None:
    config = CONFIG | {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
    model = read_model(make_documents(config))

    alone = dict(rank_weights(model, make_resolved(), 0).by_role)["experts"]
    shared = dict(rank_weights(model, make_resolved(dp=2), 0).by_role)["experts"]
    expert_parallel = dict(rank_weights(model, make_resolved(dp=2, ep=2), 0).by_role)["experts"]

    assert alone == 2 * 8 * MLP * 2
    assert shared == expert_parallel == alone // 2


def test_the_answer_is_kept_for_an_equal_question() -> None:
    model = _model()

    assert rank_weights(model, make_resolved(), 0) is rank_weights(model, make_resolved(max_num_seqs=7), 0)


def test_the_band_holds_the_best_guess() -> None:
    load = rank_weights(_model(), make_resolved(), 0).load

    assert load.low_bytes <= load.best_bytes <= load.high_bytes
    assert "GiB parameters" in load.formula


def test_a_checkpoint_of_another_size_is_shown_with_both() -> None:
    head = CheckpointTensor(name="lm_head.weight", dtype="BF16", shape=(1000, 256), num_bytes=512_000)
    built = rank_weights(_model(tie_word_embeddings=True), make_resolved(), 0).parameter_bytes
    documents = make_documents(
        CONFIG | {"tie_word_embeddings": True}, tensors=(head,), checkpoint_total_bytes=built + 512_000
    )

    findings = checkpoint_findings(read_model(documents), make_resolved())

    assert [finding.code for finding in findings] == ["checkpoint-differs"]
    assert "stored copy of the tied head" in findings[0].text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.layers.2.mlp.down_proj.weight", "multi-token-prediction part"),
        ("mtp.fc.weight", "multi-token-prediction part"),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", "rotary or mask buffers"),
    ],
)
def test_what_a_checkpoint_holds_beyond_vllms_modules_is_named(name: str, said: str) -> None:
    beyond = CheckpointTensor(name=name, dtype="BF16", shape=(1000, 256), num_bytes=512_000)
    built = rank_weights(_model(), make_resolved(), 0).parameter_bytes
    documents = make_documents(CONFIG, tensors=(beyond,), checkpoint_total_bytes=built + 512_000)

    findings = checkpoint_findings(read_model(documents), make_resolved())

    assert said in findings[0].text


def test_a_checkpoint_of_the_same_size_says_nothing() -> None:
    built = rank_weights(_model(), make_resolved(), 0).parameter_bytes

    model = read_model(make_documents(CONFIG, checkpoint_total_bytes=built))

    assert checkpoint_findings(model, make_resolved()) == ()


def test_an_unknown_architecture_is_sized_from_its_headers() -> None:
    shapes = {
        "model.embed_tokens.weight": (1000, 256),
        "lm_head.weight": (1000, 256),
        "model.norm.weight": (256,),
        **{f"model.layers.{i}.self_attn.q_proj.weight": (256, 256) for i in range(2)},
        **{f"model.layers.{i}.self_attn.o_proj.weight": (256, 256) for i in range(2)},
        **{f"model.layers.{i}.input_layernorm.weight": (256,) for i in range(2)},
    }
    tensors = tuple(
        CheckpointTensor(name=name, dtype="BF16", shape=shape, num_bytes=2 * shape[0] * (shape[1:] or (1,))[0])
        for name, shape in shapes.items()
    )
    config = CONFIG | {"architectures": ["OddForCausalLM"], "model_type": "odd"}
    model = read_model(make_documents(config, tensors=tensors))

    whole, halved = (rank_weights(model, make_resolved(tp=tp), 0).parameter_bytes for tp in (1, 2))

    assert whole == 2 * TABLE + 2 * (2 * 256 * 256 + 256) * 2 + 512
    assert halved == TABLE + 2 * (256 * 256 + 256) * 2 + 512
    assert "architecture-from-headers" in {finding.code for finding in model.findings}


def test_a_plan_for_another_card_does_not_share_the_answer() -> None:
    model, resolved = _model(), make_resolved()

    other = replace(resolved, tp=2)

    assert rank_weights(model, resolved, 0) != rank_weights(model, other, 0)
