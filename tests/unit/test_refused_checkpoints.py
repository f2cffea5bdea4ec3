"""Checkpoints and sizes that vLLM 0.32 stops with are refused, each with the field that the reader has to change."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_documents

from planner.answer import Plan
from planner.facts import PlanError
from planner.planning import answer
from planner.request import PlanRequest

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 1024,
    "intermediate_size": 1664,  # 13 groups of 128
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}


def _plan(version: str = "0.32.0", tp: int = 1, pp: int = 1, **changes: Any) -> Plan:
    record = {"model": "m", "gpu": "H100 80GB SXM", "vllm_version": version}
    sizes = {"tensor_parallel_size": tp, "pipeline_parallel_size": pp}
    made, _ = answer(PlanRequest.from_mapping({**record, **sizes}), make_documents({**LLAMA, **changes}, model_id="m"))
    return made


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("architectures", {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan"}),
        ("tensor_parallel_size", {"tp": 2, "quantization_config": AWQ}),
        ("pipeline_parallel_size", {"pp": 2, "architectures": ["BertModel"], "model_type": "bert"}),
        (
            "dual_chunk_attention_config",
            {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "dual_chunk_attention_config": {"a": 1}},
        ),
        (
            "max_window_layers",
            {
                "architectures": ["Qwen2ForCausalLM"],
                "model_type": "qwen2",
                "use_sliding_window": True,
                "sliding_window": 512,
                "max_window_layers": 1,
            },
        ),
    ],
)
def test_the_field_to_change_is_named(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as caught:
        _plan(**changes)

    assert caught.value.field == field


@pytest.mark.parametrize("form", [{"desc_act": True}, {"sym": False}])
def test_forms_of_gptq_that_left_are_refused(form: dict[str, Any]) -> None:
    made = _plan(quantization_config={**GPTQ, **form})

    assert not made.will_start
    assert "quantization-refused" in {finding.code for finding in made.findings}


def test_gptq_in_order_still_plans() -> None:
    assert _plan(quantization_config={**GPTQ, "desc_act": False, "sym": True}).will_start


def test_a_quantisation_without_a_method_is_told_and_not_applied() -> None:
    made = _plan(quantization_config={"quant_algo": "FP8", "producer": {"name": "modelopt"}})

    assert made.ranks[0].weights.parameter_bytes == _plan().ranks[0].weights.parameter_bytes
    assert "quantization-ignored" in {finding.code for finding in made.findings}


def test_awq_groups_that_tp_leaves_whole_plan() -> None:
    assert _plan(tp=2, intermediate_size=2048, quantization_config=AWQ).will_start
