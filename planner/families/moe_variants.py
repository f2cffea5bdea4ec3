"""Mixture-of-experts decoders that differ by layer or in layout: windows, gates and head counts per layer, odd names.

Read from vLLM 0.33 model_executor/models/; DBRX, AFMoE, EXAONE-MoE, HY3, MiMo-V2, Step-3 and 3.5, Cohere2-MoE, Laguna.
Classes that newer releases dropped (dots.llm1, Grok, Arctic, FlexOlmo, Hunyuan-MoE) are in `moe_retired`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    AttentionShape,
    attention_scales,
    attention_shape,
    column_linear,
    norm,
    replicated_linear,
    row_linear,
)
from planner.families.expert_layers import ExpertBlock
from planner.families.moe import scored_experts
from planner.families.moe_design import MoeDesign, assemble, attention_sinks, moe_design, sliding_windows
from planner.families.rope import rope_cache
from planner.inventory import Buffer, Module


def _layer_kinds(text: ConfigView, name: str, wanted: str) -> Callable[[int], bool]:
    """Whether entry `index` of the config's list `name` is `wanted`; layers past its end are not."""
    chosen = {index for index, kind in enumerate(text.items(name) or []) if kind == wanted}
    return lambda index: index in chosen


def _dbrx(given: FamilyInput) -> Built:
    text = given.text
    inner, ffn = text.section("attn_config"), text.section("ffn_config")
    if inner is None or ffn is None:
        raise PlanError(
            "attn_config", None, "config.json of a DBRX model needs the objects attn_config and ffn_config."
        )
    hidden, heads = text.integer("d_model"), text.integer("n_heads")
    shape = AttentionShape(
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=inner.integer("kv_n_heads", default=1),
        head_size=hidden // heads,
    )
    experts = ExpertBlock(
        num_experts=ffn.integer("moe_num_experts"),
        intermediate_size=ffn.integer("ffn_hidden_size"),
        top_k=ffn.integer("moe_top_k", default=1),
        prefix="ffn",
        router_name="router.layer",
    )
    design = MoeDesign(
        text=text,
        shape=shape,
        experts=experts,
        dense_intermediate_size=experts.intermediate_size,
        rotary=rope_cache(text, shape.head_size, max_position=text.integer("max_seq_len"), settings=_PLAIN_ROPE),
        num_layers=text.integer("n_layers"),
        attention_prefix="norm_attn_norm.attn",
        attention_names=("Wqkv",),
        output_name="out_proj",
        norms=("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"),  # LayerNorms whose bias is taken away again
        is_on_every_stage=True,
        embedding="transformer.wte",
    )
    return assemble(design)


_PLAIN_ROPE = {"rope_type": "default"}


def _afmoe(given: FamilyInput) -> Built:
    text = given.text
    shape = attention_shape(text, qk_norm="head")
    experts = scored_experts(text, score_bias="expert_bias", router_dtype="float32")
    gate = column_linear("self_attn.gate_proj", shape.hidden_size, shape.q_size, role="attention")
    first_sparse = text.integer("num_dense_layers", default=0, least=0)
    design = replace(
        moe_design(text, shape, experts),
        is_sparse=lambda index: index >= first_sparse,
        window_of=sliding_windows(text),
        has_rotary=_layer_kinds(text, "layer_types", "sliding_attention"),
        extras_of=lambda _: (gate,),
        norms=("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"),
        ties=False,
    )
    return assemble(design)


def _exaone_moe(given: FamilyInput) -> Built:
    text = given.text
    bias = text.flag("attention_bias", default=text.flag("bias", default=False))
    shape = attention_shape(text, qkv_bias=bias, output_bias=bias, qk_norm="head")
    experts = scored_experts(text, score_bias="e_score_correction_bias")
    design = replace(
        moe_design(text, shape, experts),
        is_sparse=listed_sparse(text),
        window_of=_exaone_windows(text),
        dense_has_bias=text.flag("mlp_bias", default=False),
    )
    return assemble(design)


def _exaone_windows(text: ConfigView) -> Callable[[int], int | None]:
    plain = sliding_windows(text)
    listed = text.items("sliding_windows")
    if not listed:
        return plain
    is_whole = _layer_kinds(text, "layer_types", "full_attention")
    return lambda index: None if is_whole(index) or index >= len(listed) else listed[index]


def _hy_v3(given: FamilyInput) -> Built:
    text = given.text
    shape = attention_shape(text, qk_norm="head" if text.flag("qk_norm", default=False) else None)
    size = text.integer("expert_hidden_dim", "moe_intermediate_size")
    experts = ExpertBlock(
        num_experts=text.integer("num_experts"),
        intermediate_size=size,
        top_k=text.integer("num_experts_per_tok"),
        router_dtype="float32",
        score_bias_name="expert_bias",
        shared_intermediate_size=size * text.integer("num_shared_experts", default=0, least=0),
        shared_prefix="mlp.shared_mlp",
    )
    first_sparse = text.integer("first_k_dense_replace", default=0, least=0)
    design = replace(
        moe_design(text, shape, experts), is_sparse=lambda index: index >= first_sparse, is_on_every_stage=True
    )
    return assemble(design)


def _cohere2_moe(given: FamilyInput) -> Built:
    text = given.text
    shape = attention_shape(text)
    width = text.integer("intermediate_size")
    experts = ExpertBlock(
        num_experts=text.integer("num_experts"),
        intermediate_size=width,
        top_k=text.integer("num_experts_per_tok"),
        shared_intermediate_size=width * text.integer("num_shared_experts", default=0, least=0),
    )
    is_dense = _layer_kinds(text, "mlp_layer_types", "dense")
    length = text.optional_integer("model_max_length", least=1)
    dense = text.integer("prefix_dense_intermediate_size", default=width)
    design = replace(
        moe_design(text, shape, experts, dense),
        is_sparse=lambda index: not is_dense(index),
        window_of=sliding_windows(text, extra_tokens=1),
        rotary=rope_cache(text, shape.head_size, max_position=length),
        norms=("input_layernorm",),
        is_on_every_stage=True,
        ties=True,  # the class has no head of its own
    )
    return assemble(design)


def _mimo_v2(given: FamilyInput) -> Built:
    text = given.text
    bias = text.flag("attention_bias", default=False)
    whole = attention_shape(text, qkv_bias=bias, head_size_v=text.optional_integer("v_head_dim", least=1))
    windowed = AttentionShape(
        hidden_size=whole.hidden_size,
        num_heads=text.integer("swa_num_attention_heads", default=whole.num_heads),
        num_kv_heads=text.integer("swa_num_key_value_heads", default=whole.num_kv_heads),
        head_size=text.integer("swa_head_dim", default=whole.head_size),
        head_size_v=text.optional_integer("swa_v_head_dim", least=1),
        qkv_bias=bias,
    )
    pattern, sparse = text.items("hybrid_layer_pattern") or [], text.items("moe_layer_freq") or []
    has_sinks = text.flag("add_swa_attention_sink_bias", default=False)
    window = text.integer("sliding_window_size", "sliding_window")

    def is_windowed(index: int) -> bool:
        return index < len(pattern) and pattern[index] == 1

    def extras(index: int) -> tuple[Module, ...]:
        shape = windowed if is_windowed(index) else whole
        sinks = (attention_sinks(shape),) if has_sinks and is_windowed(index) else ()
        return (*sinks, replace(_mimo_rotary(text, shape), name=f"rotary_cache_{is_windowed(index)}"))

    names = text.text("moe_router_dtype", "float32")
    experts = scored_experts(text, score_bias="gate.e_score_correction_bias", router_dtype=names)
    experts = replace(experts, shared_intermediate_size=0)
    design = replace(
        moe_design(text, whole, experts),
        is_sparse=lambda index: index < len(sparse) and bool(sparse[index]),
        window_of=lambda index: window if is_windowed(index) else None,
        shape_of=lambda index: windowed if is_windowed(index) else whole,
        has_rotary=lambda _: False,  # one per base frequency, among the extras
        extras_of=extras,
    )
    return assemble(design)


def _mimo_rotary(text: ConfigView, shape: AttentionShape) -> Buffer:
    settings = {"rope_type": "default", "partial_rotary_factor": text.number("partial_rotary_factor", 1.0)}
    return rope_cache(text, shape.head_size, settings=settings)


def _step3_text(given: FamilyInput) -> Built:
    """Step-3: one key and value head, queries through a bottleneck that every rank holds."""
    text = given.text
    hidden, heads = text.integer("hidden_size"), text.integer("num_attention_heads")
    head_size = text.integer("head_dim")
    shared_query = text.integer("share_q_dim", default=heads * head_size)
    shape = AttentionShape(hidden_size=hidden, num_heads=heads, num_kv_heads=1, head_size=head_size)
    experts = ExpertBlock(
        num_experts=text.integer("moe_num_experts"),
        intermediate_size=text.integer("moe_intermediate_size"),
        top_k=text.integer("moe_top_k"),
        prefix="moe",
        shared_intermediate_size=text.integer("share_expert_dim"),
        shared_prefix="share_expert",
    )
    design = replace(
        moe_design(text, shape, experts),
        is_sparse=enumerated_layers(text),
        rotary=rope_cache(
            text, head_size, max_position=text.integer("max_position_embedding", "max_position_embeddings")
        ),
    )
    return _with_bottleneck(assemble(design), shape, shared_query)


def _with_bottleneck(built: Built, shape: AttentionShape, shared_query: int) -> Built:
    """`built` with Step-3's query bottleneck in place of its fused QKV and output linears."""
    size = shape.num_heads * shape.head_size
    own: tuple[Module, ...] = (
        replicated_linear(
            "self_attn.qkv_proj", shape.hidden_size, shared_query + 2 * shape.head_size, role="attention"
        ),
        row_linear("self_attn.o_proj", size, shape.hidden_size, role="attention"),
        *norm("self_attn.inter_norm", shared_query),
        column_linear("self_attn.wq", shared_query, size, role="attention"),
        attention_scales(),
    )
    plain = 3  # the fused QKV, the output projection and the scales come first in each layer
    known = {id(layer.modules): own + layer.modules[plain:] for layer in built.layers}
    return replace(built, layers=tuple(replace(layer, modules=known[id(layer.modules)]) for layer in built.layers))


def enumerated_layers(text: ConfigView) -> Callable[[int], bool]:
    """Sparse layers as "4,5,6" in `moe_layers_enum`; without it, all but the first."""
    listed = text.text("moe_layers_enum")
    if listed is None:
        return lambda index: index > 0
    try:
        chosen = {int(part) for part in listed.split(",")}
    except ValueError:
        message = f"config.json: moe_layers_enum is {listed!r:.60}, but layer numbers with commas between are needed."
        raise PlanError("moe_layers_enum", listed, message) from None
    return lambda index: index in chosen


def _laguna(given: FamilyInput) -> Built:
    text = given.text
    bias = text.flag("attention_bias", default=False)
    base = attention_shape(text, qkv_bias=bias, output_bias=bias, qk_norm="head")
    per_layer = text.items("num_attention_heads_per_layer")
    size = text.integer("shared_expert_intermediate_size", default=0, least=0)
    experts = ExpertBlock(
        num_experts=text.integer("num_experts"),
        intermediate_size=text.integer("moe_intermediate_size"),
        top_k=text.integer("num_experts_per_tok"),
        score_bias_name="experts.e_score_correction_bias",
        shared_intermediate_size=size,
        shared_prefix="mlp.shared_expert",
    )
    gating = text.values.get("gating")

    def shape_of(index: int) -> AttentionShape:
        return replace(base, num_heads=int(per_layer[index])) if per_layer else base

    def extras(index: int) -> tuple[Module, ...]:
        shape = shape_of(index)
        if not gating:
            return ()
        width = shape.num_heads if gating in (True, "per-head") else shape.q_size
        return (column_linear("self_attn.g_proj", shape.hidden_size, width, role="attention"),)

    design = replace(
        moe_design(text, base, experts),
        is_sparse=listed_sparse(text),
        window_of=sliding_windows(text),
        shape_of=shape_of,
        extras_of=extras,
    )
    return assemble(design)


def listed_sparse(text: ConfigView) -> Callable[[int], bool]:
    """Sparse layers by `mlp_layer_types`; without it, all after the first `first_k_dense_replace` (one)."""
    if text.items("mlp_layer_types"):
        return _layer_kinds(text, "mlp_layer_types", "sparse")
    first_sparse = text.integer("first_k_dense_replace", default=1, least=0)
    return lambda index: index >= first_sparse


def _param2_moe(given: FamilyInput) -> Built:
    text = given.text
    has_norms = text.flag("use_qk_norm", default=False)
    shape = attention_shape(
        text,
        qkv_bias=text.flag("use_qkv_bias", default=False),
        output_bias=text.flag("use_bias", default=False),
        qk_norm="head" if has_norms else None,
    )
    is_biased = text.flag("moe_router_enable_expert_bias", default=True)
    name = "gate.e_score_correction_bias" if is_biased else None
    experts = scored_experts(text, score_bias=name, router_dtype="float32")
    width = text.optional_integer("moe_shared_expert_intermediate_size", least=1)
    if width and experts.shared_intermediate_size:  # then it is the width of all shared experts together
        experts = replace(experts, shared_intermediate_size=width)
    first_sparse = text.integer("first_k_dense_replace", default=1, least=0)
    return assemble(replace(moe_design(text, shape, experts), is_sparse=lambda index: index >= first_sparse))


BUILDERS: dict[str, Builder] = {
    "DbrxForCausalLM": _dbrx,
    "AfmoeForCausalLM": _afmoe,
    "ExaoneMoeForCausalLM": _exaone_moe,
    "ExaoneMoEForCausalLM": _exaone_moe,
    "HYV3ForCausalLM": _hy_v3,
    "Cohere2MoeForCausalLM": _cohere2_moe,
    "MiMoV2FlashForCausalLM": _mimo_v2,
    "MiMoV2ForCausalLM": _mimo_v2,
    "Step3TextForCausalLM": _step3_text,
    "LagunaForCausalLM": _laguna,
    "Param2MoEForCausalLM": _param2_moe,
}
