"""Step-3.5: windowed and whole layers with different head counts and rotary settings, a gate per head, fp32 router.

Read from vLLM 0.33 step3p5.py. Older configs keep per-layer lists, newer ones objects by layer type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import AttentionShape, attention_shape, column_linear
from planner.families.expert_layers import ExpertBlock
from planner.families.moe_design import assemble, moe_design, sliding_windows
from planner.families.moe_variants import enumerated_layers, listed_sparse
from planner.families.rope import rope_cache
from planner.inventory import Module

WINDOWED = "sliding_attention"


def _layer_type(text: ConfigView, index: int) -> str:
    kinds = text.items("layer_types") or []
    return str(kinds[index]) if index < len(kinds) else "full_attention"


def _shape(text: ConfigView, index: int) -> AttentionShape:
    groups = text.integer("num_attention_groups", "num_key_value_heads")
    bias = text.flag("attention_bias", default=False)
    whole = replace(attention_shape(text), num_kv_heads=groups, qkv_bias=bias, qk_norm="head")
    if _layer_type(text, index) != WINDOWED:
        return whole
    other = text.section("attention_other_setting")
    heads = text.optional_integer("num_sliding_attention_heads", least=1)
    if heads is None and other is not None and other.text("attention_type") == WINDOWED:
        heads = other.integer("num_attention_heads")
    return replace(whole, num_heads=heads or whole.num_heads)


def _rotary_settings(text: ConfigView, index: int) -> Mapping[str, Any]:  # values are parsed JSON
    kind = _layer_type(text, index)
    by_type = text.section("rope_parameters")
    if by_type is not None and isinstance(by_type.values.get(kind), dict):
        return {"rope_type": "default", **by_type.values[kind]}
    scaled_types = text.items("yarn_only_types")
    scaling = text.section("rope_scaling") if not scaled_types or kind in scaled_types else None
    settings = {"rope_type": "default", **(scaling.values if scaling else {})}
    shares = text.items("partial_rotary_factors")
    settings["partial_rotary_factor"] = shares[index] if shares and index < len(shares) else 1.0
    return settings


def _experts(text: ConfigView) -> ExpertBlock:
    return ExpertBlock(
        num_experts=text.integer("moe_num_experts"),
        intermediate_size=text.integer("moe_intermediate_size"),
        top_k=text.integer("moe_top_k"),
        prefix="moe",
        router_dtype="float32",
        score_bias_name="router_bias",
        shared_intermediate_size=text.integer("share_expert_dim"),
        shared_prefix="share_expert",
    )


def _extras(text: ConfigView) -> Callable[[int], tuple[Module, ...]]:
    has_gate = text.flag("use_head_wise_attn_gate", default=False)

    def extras(index: int) -> tuple[Module, ...]:
        shape = _shape(text, index)
        rotary = rope_cache(text, shape.head_size, settings=_rotary_settings(text, index))
        named = replace(rotary, name=f"rotary_cache_{_layer_type(text, index)}")
        gate = column_linear("self_attn.g_proj", shape.hidden_size, shape.num_heads, role="attention")
        return (gate, named) if has_gate else (named,)

    return extras


def _step3p5(given: FamilyInput) -> Built:
    text = given.text
    is_sparse = listed_sparse(text) if text.items("mlp_layer_types") else enumerated_layers(text)
    design = replace(
        moe_design(text, _shape(text, 0), _experts(text)),
        is_sparse=is_sparse,
        window_of=sliding_windows(text),
        shape_of=lambda index: _shape(text, index),
        has_rotary=lambda _: False,  # by layer type, among the extras
        extras_of=_extras(text),
        ties=text.flag("tie_word_embeddings", default=False),
    )
    return assemble(design)


BUILDERS: dict[str, Builder] = {"Step3p5ForCausalLM": _step3p5}
