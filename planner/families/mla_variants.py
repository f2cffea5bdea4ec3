"""Relatives of DeepSeek's latent attention in other layouts: LongCat-Flash, openPangu, MiniCPM3, Sarvam.

Read from vLLM 0.33 model_executor/models/longcat_flash.py, openpangu.py, minicpm3.py and sarvam.py.
"""

from __future__ import annotations

from dataclasses import replace

from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    attention_scales,
    build_layers,
    column_linear,
    final_norm,
    gated_mlp,
    layer_norms,
    norm,
    replicated_linear,
    row_linear,
    same_layers,
    vocabulary,
)
from planner.families.draft_layers import draft_vocabulary, eagle_inputs
from planner.families.expert_layers import ExpertBlock
from planner.families.mla import MlaDesign, assemble_mla, mla_design, mla_rotary
from planner.families.mla_layers import MlaShape, mla_attention, mla_cache, mla_shape
from planner.families.rope import rope_cache
from planner.inventory import Cache, Linear, Module

SHORTCUT_BLOCKS = 2  # LongCat's layer: two attentions and two dense MLPs around one expert block


def _longcat(given: FamilyInput) -> Built:
    text = given.text
    shape = mla_shape(text)
    width = shape.hidden_size
    dense_size = text.integer("ffn_hidden_size", "intermediate_size")
    routed = text.integer("n_routed_experts")
    experts = ExpertBlock(
        num_experts=routed,
        intermediate_size=text.integer("expert_ffn_hidden_size", "moe_intermediate_size"),
        top_k=text.integer("moe_topk", "num_experts_per_tok"),
        router_name="router.classifier",
        router_rows=routed + text.integer("zero_expert_num", default=0, least=0),
        router_dtype="float32",
        score_bias_name="router.e_score_correction_bias",
    )
    modules: list[Module] = []
    for block in range(SHORTCUT_BLOCKS):
        modules += mla_attention(shape, f"self_attn.{block}")
        modules += gated_mlp(width, dense_size, prefix=f"mlps.{block}")
        modules += layer_norms(width, f"input_layernorm.{block}", f"post_attention_layernorm.{block}")
    modules += (*experts.modules(width), *mla_rotary(text))
    caches = (mla_cache(shape, given.vllm_minor),) * SHORTCUT_BLOCKS
    num_layers = text.integer("num_layers", "num_hidden_layers")
    return Built(
        layers=same_layers(num_layers, "model.layers", tuple(modules), *caches),
        parts=(*vocabulary(text, ties=False).parts(), final_norm(width)),
        is_mla=True,
        is_moe=True,
        intermediate_size=dense_size,
        mla_nope_head_dim=shape.nope_head_dim,
        mla_v_head_dim=shape.v_head_dim,
        kv_lora_rank=shape.kv_lora_rank,
        qk_rope_head_dim=shape.rope_head_dim,
    )


def _pangu_ultra(given: FamilyInput) -> Built:
    """OpenPangu Ultra: DeepSeek's attention and experts, with norms on both sides where the config says so."""
    text = given.text
    design = mla_design(text, given.vllm_minor)
    plain = {"rope_type": "default"}  # whatever the config says, the class asks for a factor of 1
    rotary = rope_cache(text, design.shape.rope_head_dim, settings=plain)
    design = replace(design, rotary=(rotary,), experts=_pangu_experts(design))
    if text.flag("sandwich_norm", default=False):
        design = replace(design, norms=(*design.norms, "pre_mlp_layernorm", "post_mlp_layernorm"))
    return assemble_mla(design)


def _pangu_experts(design: MlaDesign) -> ExpertBlock | None:
    is_biased = design.text.flag("router_enable_expert_bias", default=False)
    if design.experts is None:
        return None
    return replace(design.experts, score_bias_name="gate.e_score_correction_bias" if is_biased else None)


def _minicpm3(given: FamilyInput) -> Built:
    """MiniCPM3: latent projections, but plain attention that caches every head in full."""
    text = given.text
    shape = mla_shape(text)
    width = shape.hidden_size
    modules = (
        *_unfused_projections(shape),
        *gated_mlp(width, text.integer("intermediate_size")),
        *layer_norms(width, "input_layernorm", "post_attention_layernorm"),
        rope_cache(text, shape.rope_head_dim),
    )
    cache = Cache(kind="full", num_kv_heads=shape.num_heads, head_size=shape.query_head_dim)
    ties = text.flag("tie_word_embeddings", default=True)
    tables = vocabulary(text, ties=ties, embedding_on_every_stage=True, head_on_every_stage=True)
    return Built(
        layers=same_layers(text.integer("num_hidden_layers"), "model.layers", modules, cache),
        parts=(*tables.parts(), final_norm(width, stage="every")),
        ties_embeddings=ties,
        intermediate_size=text.integer("intermediate_size"),
    )


def _unfused_projections(shape: MlaShape) -> tuple[Module, ...]:
    if shape.q_lora_rank is None:
        raise PlanError(
            "q_lora_rank", None, "config.json has no q_lora_rank; a MiniCPM3 model cannot be sized without."
        )
    rank, heads = shape.q_lora_rank, shape.num_heads
    key_value = heads * (shape.nope_head_dim + shape.v_head_dim)
    return (
        replicated_linear("self_attn.q_a_proj", shape.hidden_size, rank, role="attention"),
        *norm("self_attn.q_a_layernorm", rank),
        column_linear("self_attn.q_b_proj", rank, heads * shape.query_head_dim, role="attention"),
        replicated_linear("self_attn.kv_a_proj_with_mqa", shape.hidden_size, shape.latent_size, role="attention"),
        *norm("self_attn.kv_a_layernorm", shape.kv_lora_rank),
        column_linear("self_attn.kv_b_proj", shape.kv_lora_rank, key_value, role="attention"),
        row_linear("self_attn.o_proj", heads * shape.v_head_dim, shape.hidden_size, role="attention"),
        attention_scales(),
    )


def _sarvam_mla(given: FamilyInput) -> Built:
    text = given.text
    size = text.integer("moe_intermediate_size")
    shared = text.integer("moe_shared_expert_intermediate_size", default=size)
    is_biased = text.flag("moe_router_enable_expert_bias", default=True)
    experts = ExpertBlock(
        num_experts=text.integer("num_experts"),
        intermediate_size=size,
        top_k=text.integer("num_experts_per_tok"),
        score_bias_name="gate.e_score_correction_bias" if is_biased else None,
        shared_intermediate_size=shared * text.integer("num_shared_experts", default=0, least=0),
    )
    first = text.integer("first_k_dense_replace", default=1, least=0)
    design = replace(mla_design(text, given.vllm_minor), experts=experts, first_sparse_layer=first)
    return assemble_mla(design)


def _eagle3_draft(given: FamilyInput) -> Built:
    """An EAGLE-3 draft of DeepSeek shape: latent attention that reads token and hidden state, a dense MLP, its own head."""
    text = given.text
    shape = mla_shape(text)
    width = shape.hidden_size
    first, *rest = mla_attention(shape)
    if not isinstance(first, Linear):
        raise TypeError("latent attention starts with a linear")
    layer = (
        *rest,
        *gated_mlp(width, text.integer("intermediate_size")),
        *layer_norms(width, "input_layernorm", "post_attention_layernorm", "hidden_norm"),
        *mla_rotary(text),
    )
    target_width = text.integer("target_hidden_size", default=width)
    own = (
        replace(first, in_features=2 * width),
        *eagle_inputs(text, width, target_width, is_third=True),
        *layer_norms(width, "norm"),
        *draft_vocabulary(text, width, text.integer("vocab_size")),
    )
    cache = mla_cache(shape, given.vllm_minor)
    return Built(
        layers=build_layers(
            text.integer("num_hidden_layers", default=1),
            "model.layers",
            lambda index: (layer + (own if index == 0 else (first,)), (cache,)),
        ),
        parts=(),
        is_mla=True,
        intermediate_size=text.integer("intermediate_size"),
    )


BUILDERS: dict[str, Builder] = {
    "Eagle3DeepseekV2ForCausalLM": _eagle3_draft,
    "Eagle3DeepseekV3ForCausalLM": _eagle3_draft,
    "LongcatFlashForCausalLM": _longcat,
    "PanguUltraMoEForCausalLM": _pangu_ultra,
    "MiniCPM3ForCausalLM": _minicpm3,
    "SarvamMLAForCausalLM": _sarvam_mla,
}
