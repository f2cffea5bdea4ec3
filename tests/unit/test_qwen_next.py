"""Qwen3-Next and Qwen3.5: layer kinds, the gated query, and the draft layers of the checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_documents, make_resolved

from planner.facts import PlanError
from planner.inventory import ModelFacts
from planner.model_config import read_model
from planner.request import EngineFlags, SpeculativeConfig
from planner.weights import rank_weights

TEXT: dict[str, Any] = {  # parsed JSON
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "max_position_embeddings": 4096,
    "mtp_num_hidden_layers": 1,
    "vocab_size": 1024,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def _model(**changes: Any) -> ModelFacts:
    return read_model(make_documents(TEXT | changes))


def test_every_fourth_layer_attends_where_the_config_lists_no_kinds() -> None:
    kinds = [layer.caches[0].kind for layer in _model().layers]

    assert kinds == ["gdn", "gdn", "gdn", "full"] * 2


def test_a_list_of_kinds_that_is_too_short_is_refused() -> None:
    with pytest.raises(PlanError, match="layer_types"):
        _model(layer_types=["full_attention"])


def test_an_unknown_kind_of_layer_is_refused() -> None:
    with pytest.raises(PlanError, match="layer_types"):
        _model(layer_types=["full_attention"] * 7 + ["strange"])


def test_the_output_gate_doubles_the_query() -> None:
    gated, plain = (rank_weights(_model(attn_output_gate=flag), make_resolved(), 0) for flag in (True, False))

    assert gated.parameter_bytes - plain.parameter_bytes == 2 * (
        2 * 256 * 256
    )  # two attention layers, 4 x 64 rows of 256


def test_the_draft_layer_is_built_only_for_speculation() -> None:
    flags = EngineFlags(speculative_config=SpeculativeConfig(method="mtp", num_speculative_tokens=1))
    model = _model()
    attention = (2 * 256 + 128 + 128) * 256 + 256 * 256 + 2 * 64
    mlp, norms, projection = 3 * 256 * 512, 5 * 256, 512 * 256

    bare = rank_weights(model, make_resolved(), 0).parameter_bytes
    drafting = rank_weights(model, make_resolved(flags=flags), 0).parameter_bytes

    assert drafting - bare == 2 * (attention + mlp + norms + projection)


def test_awq_cannot_cut_the_gates_and_keeps_them_whole() -> None:
    settings = {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["linear_attn"]}
    gates = 2 * 4 * 256 * 2  # two gates, 4 heads, 256 inputs, bfloat16

    whole = rank_weights(_model(quantization_config=settings), make_resolved(tp=2, quantization="awq"), 0)
    cut = rank_weights(_model(), make_resolved(tp=2), 0)

    assert dict(whole.by_role)["mamba"] - dict(cut.by_role)["mamba"] == 6 * gates // 2
