"""Kimi-Linear: Kimi delta attention in most layers, latent attention without positions in every fourth, experts after both.

Source: models/kimi_k3 of vLLM 0.33 (its KimiLinearForCausalLM).
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    build_layers,
    column_linear,
    final_norm,
    gated_mlp,
    layer_norms,
    norm,
    replicated_linear,
    row_linear,
    vocabulary,
)
from planner.families.expert_layers import ExpertBlock
from planner.families.mla_layers import mla_attention, mla_cache, mla_shape
from planner.inventory import Buffer, Cache, Module, StateTensor, Tensor


def linear_settings(view: ConfigView) -> ConfigView:
    """The section that tells linear attention's layers and sizes; raises `PlanError` where it is missing."""
    section = view.section("linear_attn_config")
    if section is None:
        raise PlanError(
            "linear_attn_config", None, "config.json has no linear_attn_config; the layers cannot be told apart."
        )
    return section


def delta_attention(view: ConfigView, name: str = "self_attn") -> tuple[Module, ...]:
    """The modules of Kimi delta attention: q, k, v, a gate of low rank and beta in one projection, the decay's parts apart."""
    settings, hidden = linear_settings(view), view.integer("hidden_size")
    heads, size = settings.integer("num_heads"), settings.integer("head_dim")
    width, kernel = heads * size, settings.integer("short_conv_kernel_size", default=4)
    inputs = ("q_proj", "k_proj", "v_proj", "f_a_proj", "b_proj")
    fused = column_linear(f"{name}.in_proj_qkvgfab", hidden, width, width, width, size, heads, role="mamba")
    conv = column_linear(f"{name}.conv1d", kernel, width, width, width, role="mamba")
    return (
        replace(fused, max_shards=(0, 0, 0, 1, 0), prefixes=tuple(f"{name}.{part}" for part in inputs)),
        column_linear(f"{name}.f_b_proj", size, width, role="mamba"),
        replicated_linear(f"{name}.g_a_proj", hidden, size, role="mamba"),
        column_linear(f"{name}.g_b_proj", size, width, role="mamba"),
        replace(conv, quantizable=False, dtype="float32"),
        Tensor(name=f"{name}.dt_bias", role="mamba", shape=(width,), shard_dim=0, dtype="float32"),
        Tensor(name=f"{name}.A_log", role="mamba", shape=(heads,), shard_dim=0, dtype="float32"),
        *norm(f"{name}.o_norm", size),
        row_linear(f"{name}.o_proj", width, hidden, role="mamba"),
    )


def delta_cache(view: ConfigView) -> Cache:
    """The convolution window and the recurrent state of one sequence, the latter in float32 unless a flag says otherwise."""
    settings = linear_settings(view)
    heads, size = settings.integer("num_heads"), settings.integer("head_dim")
    window = settings.integer("short_conv_kernel_size", default=4) - 1
    return Cache(
        kind="kda",
        states=(
            StateTensor(shape=(window, 3 * heads * size), shard_dim=1, dtype_rule="conv", conv_extra_dim=0),
            StateTensor(shape=(heads, size, size), shard_dim=0, dtype_rule="float32"),
        ),
    )


def _experts(view: ConfigView) -> tuple[Module, ...]:
    hidden, width = view.integer("hidden_size"), view.integer("moe_intermediate_size")
    block = ExpertBlock(
        num_experts=view.integer("num_experts"),
        intermediate_size=width,
        top_k=view.integer("num_experts_per_token", "num_experts_per_tok"),
        prefix="block_sparse_moe",
        score_bias_name="gate.e_score_correction_bias",
        shared_intermediate_size=width * view.integer("num_shared_experts", default=0, least=0),
    )
    return block.modules(hidden)


def build_kimi_linear(given: FamilyInput) -> Built:
    """A Kimi-Linear language model."""
    view = given.text
    hidden, shape = view.integer("hidden_size"), mla_shape(view)
    full = set(linear_settings(view).integers("full_attn_layers") or [])
    dense = view.integer("first_k_dense_replace", default=0, least=0)
    latent, state = mla_cache(shape, given.vllm_minor), delta_cache(view)
    unit = Buffer(name="self_attn.one_scale", shape=(1,), dtype="float32")  # this class's own, beside the four scales
    mixers: dict[bool, tuple[Module, ...]] = {True: (*mla_attention(shape), unit), False: delta_attention(view)}
    norms = layer_norms(hidden, "input_layernorm", "post_attention_layernorm")
    mlp: tuple[Module, ...] = gated_mlp(hidden, view.integer("intermediate_size"))
    has_experts = view.has("num_experts")
    experts = _experts(view) if has_experts else mlp
    is_tied = view.flag("tie_word_embeddings", False)

    def build(index: int) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
        is_full = index + 1 in full  # the config counts layers from one
        rest = mlp if index < dense else experts
        return (*mixers[is_full], *rest, *norms), (latent if is_full else state,)

    return Built(
        layers=build_layers(view.integer("num_hidden_layers"), "model.layers", build),
        parts=(*vocabulary(view, ties=is_tied).parts(), final_norm(hidden)),
        is_hybrid=True,
        is_mla=True,
        is_moe=has_experts,
        ties_embeddings=is_tied,
        mla_nope_head_dim=shape.nope_head_dim,
        mla_v_head_dim=shape.v_head_dim,
        kv_lora_rank=shape.kv_lora_rank,
        qk_rope_head_dim=shape.rope_head_dim,
    )


BUILDERS: dict[str, Builder] = {"KimiLinearForCausalLM": build_kimi_linear}
