"""gpt-oss: biased attention with sinks, every other layer in a sliding window, biased experts. Read from vLLM 0.33 gpt_oss.py."""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import attention_shape
from planner.families.expert_layers import ExpertBlock
from planner.families.moe_design import assemble, attention_sinks, moe_design
from planner.families.rope import rope_cache


def _experts(text: ConfigView) -> ExpertBlock:
    return ExpertBlock(
        num_experts=text.integer("num_local_experts", "num_experts"),
        intermediate_size=text.integer("intermediate_size"),
        top_k=text.integer("num_experts_per_tok", "experts_per_token"),
        router_name="router",
        has_router_bias=True,
        has_expert_bias=True,
    )


def _gpt_oss(given: FamilyInput) -> Built:
    text = given.text
    shape = attention_shape(text, qkv_bias=True, output_bias=True)
    window = text.integer("sliding_window", default=128)
    return assemble(
        replace(
            moe_design(text, shape, _experts(text)),
            window_of=lambda index: window if index % 2 == 0 else None,  # by position, whatever layer_types says
            rotary=rope_cache(text, shape.head_size, dtype="float32"),
            extras_of=lambda _: (attention_sinks(shape),),
            is_on_every_stage=True,
            ties=False,
        )
    )


BUILDERS: dict[str, Builder] = {"GptOssForCausalLM": _gpt_oss}
