"""Mixture-of-experts classes that newer releases dropped: dots.llm1, Grok, Arctic, FlexOlmo and Hunyuan-MoE.

Read from the last release that had them (vLLM 0.23 and 0.27). FlexOlmo and Hunyuan-MoE go on through the Transformers
backend, which keeps inverse frequencies instead of a rotary cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import attention_shape, gated_mlp, layer_norms
from planner.families.expert_layers import ExpertBlock
from planner.families.moe import local_experts, scored_experts
from planner.families.moe_design import MoeDesign, assemble, moe_design
from planner.families.rope import inverse_frequencies
from planner.inventory import Module

FIRST_MINOR_ON_TRANSFORMERS = 28  # both classes are in 0.27.1 and gone in 0.31


def _dots1(given: FamilyInput) -> Built:
    text = given.text
    shape = attention_shape(text, qkv_bias=text.flag("attention_bias", default=False), qk_norm="head")
    has_score_bias = text.text("topk_method", "noaux_tc") == "noaux_tc"
    experts = scored_experts(text, score_bias="gate.e_score_correction_bias" if has_score_bias else None)
    first, step = text.integer("first_k_dense_replace", default=0, least=0), text.integer("moe_layer_freq", default=1)
    design = moe_design(text, shape, experts)
    return assemble(replace(design, is_sparse=lambda i: i >= first and i % step == 0, ties=False))


def _grok1(given: FamilyInput) -> Built:
    text = given.text
    plain = attention_shape(text)
    shape = replace(plain, head_size=plain.hidden_size // plain.num_heads)
    experts = ExpertBlock(
        num_experts=text.integer("num_experts", "num_local_experts", default=8),
        intermediate_size=text.integer("moe_intermediate_size", "intermediate_size"),
        top_k=text.integer("num_experts_per_tok", default=2),
        prefix="moe_block",
    )
    residual: tuple[Module, ...] = ()
    if text.flag("residual_moe", default=False):
        residual = gated_mlp(shape.hidden_size, text.integer("intermediate_size"))
    design = replace(
        moe_design(text, shape, experts),
        attention_prefix="attn",
        norms=("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"),
        extras_of=lambda _: residual,
        is_on_every_stage=True,
    )
    return assemble(design)


def _arctic(given: FamilyInput) -> Built:
    """Arctic: experts in every n-th layer, and there a dense residual MLP as wide as the hidden states."""
    text = given.text
    shape = attention_shape(text)
    width = shape.hidden_size
    step = text.integer("moe_layer_frequency", default=2)
    has_residual = text.flag("use_residual", default=True)
    residual: tuple[Module, ...] = (
        *gated_mlp(width, width, prefix="residual_mlp"),
        *layer_norms(width, "residual_layernorm"),
    )

    def is_sparse(index: int) -> bool:
        return (index + 1) % step == 0

    design = replace(
        moe_design(text, shape, local_experts(text)),
        is_sparse=is_sparse,
        mlp_prefix="block_sparse_moe.mlp",
        extras_of=lambda index: residual if has_residual and is_sparse(index) else (),
        is_on_every_stage=True,
    )
    return assemble(design)


def _flex_olmo(given: FamilyInput) -> Built:
    text = given.text
    design = replace(
        moe_design(text, attention_shape(text, qk_norm="full"), local_experts(text, prefix="mlp")),
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        is_on_every_stage=given.vllm_minor < FIRST_MINOR_ON_TRANSFORMERS,
        ties=False,
    )
    return assemble(_on_transformers(design, given.vllm_minor))


def _hunyuan_moe(given: FamilyInput) -> Built:
    text = given.text
    bias = text.flag("attention_bias", default=False)
    has_norms = text.flag("use_qk_norm", default=True) or given.vllm_minor >= FIRST_MINOR_ON_TRANSFORMERS
    shape = attention_shape(text, qkv_bias=bias, output_bias=bias, qk_norm="head" if has_norms else None)
    size = _first_of_list(text, "moe_intermediate_size", "intermediate_size")
    num_shared = _first_of_list(text, "num_shared_expert", default=1)
    is_retired = given.vllm_minor >= FIRST_MINOR_ON_TRANSFORMERS
    has_shared = is_retired or bool(text.values.get("use_mixed_mlp_moe"))
    experts = ExpertBlock(
        num_experts=text.integer("num_experts"),
        intermediate_size=size,
        top_k=_first_of_list(text, "moe_topk", "num_experts_per_tok"),
        router_name="gate.wg",
        shared_intermediate_size=text.integer("intermediate_size") * num_shared if has_shared else 0,
        shared_prefix="mlp.shared_mlp",
    )
    return assemble(_on_transformers(moe_design(text, shape, experts), given.vllm_minor))


def _first_of_list(text: ConfigView, *names: str, default: int | None = None) -> int:
    """A size that Hunyuan writes once, or as a list with one entry a layer (all alike in every known model)."""
    plain = {name: text.values[name] for name in names if text.values.get(name) is not None}
    flat = {name: value[0] if isinstance(value, list) and value else value for name, value in plain.items()}
    return ConfigView(flat, text.path).integer(*names, default=default)


def _on_transformers(design: MoeDesign, vllm_minor: int) -> MoeDesign:
    if vllm_minor < FIRST_MINOR_ON_TRANSFORMERS:
        return design
    frequencies: tuple[Module, ...] = (inverse_frequencies(design.shape.head_size),)
    others: Callable[[int], tuple[Module, ...]] = design.extras_of
    return replace(design, has_rotary=lambda _: False, extras_of=lambda index: (*others(index), *frequencies))


BUILDERS: dict[str, Builder] = {
    "Dots1ForCausalLM": _dots1,
    "Grok1ModelForCausalLM": _grok1,
    "Grok1ForCausalLM": _grok1,
    "ArcticForCausalLM": _arctic,
    "FlexOlmoForCausalLM": _flex_olmo,
    "HunYuanMoEV1ForCausalLM": _hunyuan_moe,
}
