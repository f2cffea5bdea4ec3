"""Kimi-K3: Kimi delta attention with a full-rank gate, gated latent attention, experts in a latent space, MoonViT.

Source: models/kimi_k3 of vLLM 0.32.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    build_layers,
    column_linear,
    final_norm,
    gated_mlp,
    layer_norms,
    norm,
    replicated_linear,
    vocabulary,
)
from planner.families.composite import Tower, assemble, part_of, renamed
from planner.families.expert_layers import ExpertBlock
from planner.families.kimi_linear import delta_attention, delta_cache, linear_settings
from planner.families.mla_layers import MlaShape, mla_attention, mla_cache, mla_shape
from planner.families.multimodal import frame_positions, moonvit_facts, moonvit_merge, without_compression
from planner.families.vision_towers import moonvit_tower
from planner.inventory import Buffer, Cache, Experts, Module, Part

_IN_PROJECTION_ALIGNMENT = 16  # rows of a rank's fused projection (models/kimi_k3/nvidia/kda.py)
_LEAST_EXPERT_WIDTH = 256  # per rank, without expert parallelism (min_moe_intermediate_per_partition)


def _full_rank_delta(view: ConfigView) -> tuple[Module, ...]:
    """Delta attention whose gate is as wide as the heads and part of the one projection, padded on each rank."""
    settings, hidden = linear_settings(view), view.integer("hidden_size")
    heads, size = settings.integer("num_heads"), settings.integer("head_dim")
    width, name = heads * size, "self_attn"
    kernel = settings.integer("short_conv_kernel_size", default=4)
    inputs = ("q_proj", "k_proj", "v_proj", "g_proj", "f_a_proj", "b_proj")
    fused = column_linear(f"{name}.in_proj_qkvgfab", hidden, width, width, width, width, size, heads, role="mamba")
    fused = replace(
        fused,
        max_shards=(0, 0, 0, 0, 1, 0),
        prefixes=tuple(f"{name}.{part}" for part in inputs),
        padded_to=_IN_PROJECTION_ALIGNMENT,
    )
    decode = (
        Buffer(name=f"{name}.decode_conv1d_weight", shape=(3, kernel, width), dtype="float32", shard_dim=2),
        Buffer(name=f"{name}.decode_norm_weight", shape=(size,), dtype="float32"),
    )
    low_rank = (f"{name}.in_proj_qkvgfab", f"{name}.g_a_proj", f"{name}.g_b_proj")
    rest = tuple(module for module in delta_attention(view) if module.name not in low_rank)
    return (fused, *rest, *decode)


def _gated_latent(view: ConfigView, shape: MlaShape) -> tuple[Module, ...]:
    """Latent attention with an output gate, which the down-projections' fused linear carries where queries are compressed."""
    modules = mla_attention(shape)
    unit = Buffer(name="self_attn.one_scale", shape=(1,), dtype="float32")
    if not view.flag("mla_use_output_gate", default=False):
        return (*modules, unit)
    width = shape.num_heads * shape.v_head_dim
    gate = column_linear("self_attn.g_proj", shape.hidden_size, width, role="attention")
    if shape.q_lora_rank is None:
        return (gate, *modules, unit)
    fused = replace(
        column_linear("self_attn.fused_qkv_a_g_proj", shape.hidden_size, shape.q_lora_rank, shape.latent_size, width),
        role="attention",
        max_shards=(1, 1, 0),
        prefixes=("self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.g_proj"),
    )
    return (fused, *(module for module in modules if module.name != "self_attn.fused_qkv_a_proj"), unit)


def _experts(view: ConfigView) -> tuple[Module, ...]:
    hidden, width = view.integer("hidden_size"), view.integer("moe_intermediate_size")
    latent = view.optional_integer("routed_expert_hidden_size", least=1)
    block = ExpertBlock(
        num_experts=view.integer("num_experts"),
        intermediate_size=width,
        top_k=view.integer("num_experts_per_token", "num_experts_per_tok"),
        prefix="block_sparse_moe",
        score_bias_name="gate.e_score_correction_bias",
        shared_intermediate_size=width * view.integer("num_shared_experts", default=0, least=0),
    )
    least = view.integer("min_moe_intermediate_per_partition", default=_LEAST_EXPERT_WIDTH)
    modules = tuple(_in_latent(module, latent, least) for module in block.modules(hidden))
    if latent is None:
        return modules
    prefix = "block_sparse_moe.routed_expert"
    has_norm = view.flag("latent_moe_use_norm", default=False)
    return (
        *modules,
        replicated_linear(f"{prefix}_down_proj", hidden, latent, role="experts"),
        *(norm(f"{prefix}_norm", latent) if has_norm else ()),
        replicated_linear(f"{prefix}_up_proj", latent, hidden, role="experts"),
    )


def _in_latent(module: Module, latent: int | None, least_width: int) -> Module:
    if not isinstance(module, Experts):
        return module
    return replace(module, hidden_size=latent or module.hidden_size, least_shard=least_width)


def _residual_attention(hidden: int, names: tuple[str, ...]) -> tuple[Module, ...]:
    made: list[Module] = []
    for name in names:
        projection = replicated_linear(f"{name}_res_proj", hidden, 1, role="other")
        made += [*norm(f"{name}_res_norm", hidden), replace(projection, quantizable=False)]
    return tuple(made)


def build_k3_text(given: FamilyInput) -> Built:
    """The language model of Kimi-K3."""
    view = given.text
    hidden, shape = view.integer("hidden_size"), mla_shape(view)
    full = set(linear_settings(view).integers("full_attn_layers") or [])
    dense = view.integer("first_k_dense_replace", default=0, least=0)
    has_residuals = view.has("attn_res_block_size")
    is_bounded = linear_settings(view).has("gate_lower_bound")
    state = replace(delta_cache(view), extra=(("checkpoints", 1),) if is_bounded else ())
    latent = mla_cache(shape, given.vllm_minor)
    mlp: tuple[Module, ...] = gated_mlp(hidden, view.integer("intermediate_size"))
    experts, mixers = _experts(view), {True: _gated_latent(view, shape), False: _full_rank_delta(view)}
    norms = (
        *layer_norms(hidden, "input_layernorm", "post_attention_layernorm"),
        *(_residual_attention(hidden, ("self_attention", "mlp")) if has_residuals else ()),
    )

    def build(index: int) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
        is_full = index + 1 in full  # the config counts layers from one
        rest = mlp if index < dense else experts
        return (*mixers[is_full], *rest, *norms), (latent if is_full else state,)

    is_tied = view.flag("tie_word_embeddings", False)
    last = Part(prefix="model", stage="last", modules=_residual_attention(hidden, ("output_attn",)))
    return Built(
        layers=build_layers(view.integer("num_hidden_layers"), "model.layers", build),
        parts=(*vocabulary(view, ties=is_tied).parts(), final_norm(hidden), *((last,) if has_residuals else ())),
        is_hybrid=True,
        is_mla=True,
        is_moe=True,
        ties_embeddings=is_tied,
        mla_nope_head_dim=shape.nope_head_dim,
        mla_v_head_dim=shape.v_head_dim,
        kv_lora_rank=shape.kv_lora_rank,
        qk_rope_head_dim=shape.rope_head_dim,
    )


def _projector(vision: ConfigView, text: int) -> tuple[Module, ...]:
    width = vision.integer("hidden_size", "vt_hidden_size") * moonvit_merge(vision)
    return (
        replicated_linear("linear_1", width, width, role="projector"),
        replicated_linear("linear_2", width, text, role="projector"),
        *norm("post_norm", text),
    )


def build_kimi_k3(given: FamilyInput) -> Built:
    """Kimi-K3 with its tower."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    hidden = vision.integer("hidden_size", "vt_hidden_size")
    modalities = ("image",)
    towers = [
        Tower(
            prefix="vision_tower",
            modules=(*without_compression(given, moonvit_tower(vision)), *frame_positions(vision, hidden)),
            modalities=modalities,
            facts=moonvit_facts(vision),
            whole_unless_divides=vision.integer("num_attention_heads", "vt_num_attention_heads"),
        ),
        Tower(
            prefix="mm_projector", modules=without_compression(given, _projector(vision, text)), modalities=modalities
        ),
    ]
    return assemble(given, renamed(build_k3_text(given), "model.", "language_model.model."), towers)


BUILDERS: dict[str, Builder] = {"KimiK3ForConditionalGeneration": build_kimi_k3}
