"""MiniMax-Text-01, which vLLM 0.23 was the last to build: parameters counted by hand from minimax_text_01.py."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_documents, make_resolved

from planner.facts import PlanError
from planner.inventory import ModelFacts
from planner.kv_specs import model_caches
from planner.model_config import read_model
from planner.weights import rank_weights

CONFIG: dict[str, Any] = {
    "architectures": ["MiniMaxText01ForCausalLM"],
    "model_type": "minimax_text_01",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 4,
    "attn_type_list": [0, 0, 0, 1],
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 32,
    "rotary_dim": 8,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def _read(**changes: Any) -> ModelFacts:
    return read_model(make_documents(CONFIG | changes), vllm_minor=23)


def _parameter_bytes(**changes: Any) -> int:
    return rank_weights(_read(**changes), make_resolved(version="0.23.0"), 0).parameter_bytes


LIGHTNING = 64 * 3 * 128 + 64 * 128 + 128 * 64 + 128  # qkv, gate, out and norm over 8 heads of 16
FULL = 64 * (8 + 2 * 2) * 16 + 128 * 64  # qkv, out
NORMS = 4 * 2 * 64 + 64
TABLE = 1024 * 64


def test_every_part_is_counted_in_its_own_dtype() -> None:
    experts = 4 * 3 * 64 * 96
    shared = 3 * 64 * 32
    float32 = 4 * (64 * 4 + 64) + TABLE  # routers and coefficients of four layers; the head

    bfloat16 = 3 * LIGHTNING + FULL + 4 * (experts + shared) + NORMS + TABLE
    assert _parameter_bytes() == 2 * bfloat16 + 4 * float32


def test_one_expert_is_a_plain_mlp() -> None:
    bfloat16 = 3 * LIGHTNING + FULL + 4 * 3 * 64 * 96 + NORMS + TABLE

    assert _parameter_bytes(num_local_experts=1) == 2 * bfloat16 + 4 * TABLE


def test_experts_may_be_listed_by_layer() -> None:
    listed = _parameter_bytes(num_local_experts=[4, 4, 4, 4], shared_intermediate_size=[32, 32, 32, 32])

    assert listed == _parameter_bytes()


def test_lightning_layers_keep_a_state_and_the_others_keys() -> None:
    kinds = [cache.kind for layer in _read().layers for cache in layer.caches]

    assert kinds == ["linear_attention"] * 3 + ["full"]
    assert len(model_caches(_read(), make_resolved(version="0.23.0", max_model_len=4096)).layers) == 4


def test_too_few_kinds_are_refused_by_name() -> None:
    with pytest.raises(PlanError, match="attn_type_list must name one kind for each of 4 layers"):
        _read(attn_type_list=[0, 1])
