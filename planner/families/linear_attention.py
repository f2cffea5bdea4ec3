"""Hybrids whose other layers are linear attention: MiniMax-Text-01 (to vLLM 0.23), Ring/Ling 2.5, and OLMo-Hybrid's delta nets.

Sources: minimax_text_01.py of vLLM 0.23, bailing_moe_linear.py and olmo_hybrid.py of 0.33.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    AttentionShape,
    attention,
    attention_shape,
    build_layers,
    column_linear,
    final_norm,
    gated_mlp,
    kv_cache,
    layer_norms,
    norm,
    replicated_linear,
    row_linear,
    vocabulary,
)
from planner.families.expert_layers import ExpertBlock
from planner.families.mamba_layers import GatedDeltaNetShape, linear_attention_cache
from planner.families.mla_layers import mla_attention, mla_cache, mla_shape
from planner.families.rope import rope_cache, rope_parameters
from planner.inventory import Buffer, Cache, Embedding, Module, Part, Tensor

_Layer = tuple[tuple[Module, ...], tuple[Cache, ...]]


# MiniMax-Text-01: lightning attention, full attention in every eighth layer, experts after both; the head is float32.


def _lightning(shape: AttentionShape) -> tuple[Module, ...]:
    hidden, width = shape.hidden_size, shape.num_heads * shape.head_size
    return (
        column_linear("self_attn.qkv_proj", hidden, 3 * width, role="mamba"),
        column_linear("self_attn.output_gate", hidden, width, role="mamba"),
        row_linear("self_attn.out_proj", width, hidden, role="mamba"),
        Tensor(name="self_attn.norm", role="norm", shape=(width,), shard_dim=0),
    )


def _minimax_mlp(view: ConfigView, index: int) -> tuple[Module, ...]:
    hidden, counts = view.integer("hidden_size"), view.values.get("num_local_experts", 1)
    count = counts[index] if isinstance(counts, list) and index < len(counts) else counts
    experts = ConfigView({"num_local_experts": count}).integer("num_local_experts")
    width = view.integer("intermediate_size")
    if experts == 1:
        return gated_mlp(hidden, width)
    top_k = view.integer("num_experts_per_tok")
    prefix = "block_sparse_moe"
    block = ExpertBlock(
        num_experts=experts, intermediate_size=width, top_k=top_k, prefix=prefix, router_dtype="float32"
    )
    modules = block.modules(hidden)
    shared = view.values.get("shared_intermediate_size", 0)
    size = (
        shared[index] if isinstance(shared, list) and index < len(shared) else 0 if isinstance(shared, list) else shared
    )
    if not size:
        return modules
    gate = replace(replicated_linear("coefficient", hidden, 1, role="router"), dtype="float32", quantizable=False)
    return (*modules, *gated_mlp(hidden, ConfigView({"shared": size}).integer("shared"), prefix="shared_mlp"), gate)


def build_minimax_text(given: FamilyInput) -> Built:
    """MiniMax-Text-01 and MiniMax-M1."""
    view = given.text
    shape, hidden = attention_shape(view), view.integer("hidden_size")
    num_layers = view.integer("num_hidden_layers")
    kinds = view.items("attn_type_list") or view.items("decoder_attention_types") or [1] * num_layers
    if len(kinds) < num_layers:
        raise PlanError(
            "attn_type_list", kinds, f"config.json: attn_type_list must name one kind for each of {num_layers} layers."
        )
    settings = dict(rope_parameters(view))
    settings["partial_rotary_factor"] = view.integer("rotary_dim", default=shape.head_size) / shape.head_size
    rotary = rope_cache(view, shape.head_size, settings=settings, dtype="float32")
    norms = layer_norms(hidden, "input_layernorm", "post_attention_layernorm")
    state, full = linear_attention_cache(shape.num_heads, shape.head_size), kv_cache(shape)

    def build(index: int) -> _Layer:
        is_full = kinds[index] == 1
        mixer = (*attention(shape), rotary) if is_full else _lightning(shape)
        return (*mixer, *_minimax_mlp(view, index), *norms), (full if is_full else state,)

    is_tied = view.flag("tie_word_embeddings", False)
    parts = tuple(_with_float_head(part) for part in vocabulary(view, ties=is_tied).parts())
    return Built(
        layers=build_layers(num_layers, "model.layers", build),
        parts=(*parts, final_norm(hidden)),
        is_hybrid=True,
        is_moe=True,
        ties_embeddings=is_tied,
    )


def _with_float_head(part: Part) -> Part:
    modules = tuple(
        replace(module, dtype="float32") if isinstance(module, Embedding) and module.role == "head" else module
        for module in part.modules
    )
    return replace(part, modules=modules)


# Ring and Ling 2.5: linear attention, latent attention in every `layer_group_size`-th layer.


def _bailing_linear(view: ConfigView, shape: AttentionShape) -> tuple[Module, ...]:
    hidden, width = shape.hidden_size, shape.num_heads * shape.head_size
    bias, qkv_bias = view.flag("use_bias", False), view.flag("use_qkv_bias", False)
    many = replace(shape, num_kv_heads=shape.num_heads, qkv_bias=bias or qkv_bias)
    fused = attention(many, prefix="attention", fused="query_key_value", qkv=("query_key_value",))[0]
    norms = (*norm("attention.query_layernorm", shape.head_size), *norm("attention.key_layernorm", shape.head_size))
    return (
        fused,
        *(norms if view.flag("use_qk_norm", False) else ()),
        column_linear("attention.g_proj", hidden, width, role="mamba"),
        row_linear("attention.dense", width, hidden, role="mamba", has_bias=bias),
        Tensor(name="attention.g_norm", role="norm", shape=(width,), shard_dim=0),
        _bailing_rotary(view, shape.head_size),
    )


def _bailing_rotary(view: ConfigView, size: int) -> Buffer:
    settings = dict(rope_parameters(view))
    if view.has("rotary_dim"):
        settings["rope_dim"] = min(view.integer("rotary_dim"), size)
    return rope_cache(view, size, settings=settings)


def _bailing_experts(view: ConfigView) -> tuple[Module, ...]:
    width = view.integer("moe_intermediate_size")
    shared = view.integer("moe_shared_expert_intermediate_size", default=width)
    has_bias = view.flag("moe_router_enable_expert_bias", False)
    block = ExpertBlock(
        num_experts=view.integer("num_experts"),
        intermediate_size=width,
        top_k=view.integer("num_experts_per_tok"),
        router_dtype="float32" if view.text("router_dtype", "fp32") == "fp32" else "bfloat16",
        score_bias_name="gate.expert_bias" if has_bias else None,
        shared_intermediate_size=shared * view.integer("num_shared_experts", default=0, least=0),
    )
    return block.modules(view.integer("hidden_size"))


def build_bailing_linear(given: FamilyInput) -> Built:
    """Ring and Ling 2.5."""
    view = given.text
    shape, latent, hidden = attention_shape(view), mla_shape(view), view.integer("hidden_size")
    group = view.integer("layer_group_size", default=1)
    dense = view.integer("first_k_dense_replace", default=0, least=0)
    whole = {key: value for key, value in rope_parameters(view).items() if key != "partial_rotary_factor"}
    rotary = replace(
        rope_cache(view, latent.rope_head_dim, settings=whole), name="latent_rotary_cache"
    )  # interleaved, so another cache
    mixers: dict[bool, tuple[Module, ...]] = {
        True: (*mla_attention(latent), rotary),
        False: _bailing_linear(view, shape),
    }
    caches = {
        True: mla_cache(latent, given.vllm_minor),
        False: linear_attention_cache(shape.num_heads, shape.head_size),
    }
    mlp: tuple[Module, ...] = gated_mlp(hidden, view.integer("intermediate_size"))
    has_experts = view.integer("num_experts", default=1) > 1
    experts = _bailing_experts(view) if has_experts else mlp
    norms = layer_norms(hidden, "input_layernorm", "post_attention_layernorm")

    def build(index: int) -> _Layer:
        is_full = (index + 1) % group == 0
        return (*mixers[is_full], *(mlp if index < dense else experts), *norms), (caches[is_full],)

    return Built(
        layers=build_layers(view.integer("num_hidden_layers"), "model.layers", build),
        parts=(*vocabulary(view, ties=False, embedding="model.word_embeddings").parts(), final_norm(hidden)),
        is_hybrid=True,
        is_mla=True,
        is_moe=has_experts,
        mla_nope_head_dim=latent.nope_head_dim,
        mla_v_head_dim=latent.v_head_dim,
        kv_lora_rank=latent.kv_lora_rank,
        qk_rope_head_dim=latent.rope_head_dim,
    )


# OLMo-Hybrid: delta nets with norms before, full attention with norms after.


def _olmo_delta_net(view: ConfigView) -> tuple[tuple[Module, ...], Cache]:
    shape = GatedDeltaNetShape(
        hidden_size=view.integer("hidden_size"),
        num_k_heads=view.integer("linear_num_key_heads"),
        num_v_heads=view.integer("linear_num_value_heads"),
        head_k_size=view.integer("linear_key_head_dim"),
        head_v_size=view.integer("linear_value_head_dim"),
        conv_kernel=view.integer("linear_conv_kernel_dim", default=4),
        is_interleaved=False,
    )
    hidden, sizes = shape.hidden_size, (shape.key_size, shape.key_size, shape.value_size, shape.value_size)
    inputs = tuple(f"linear_attn.{name}_proj" for name in "qkvg")
    conv = column_linear("linear_attn.conv1d", shape.conv_kernel, sum(sizes[:3]), role="mamba")
    modules: tuple[Module, ...] = (
        replace(column_linear("linear_attn.in_proj_qkvg", hidden, *sizes, role="mamba"), prefixes=inputs),
        column_linear("linear_attn.b_proj", hidden, shape.num_v_heads, role="mamba"),
        column_linear("linear_attn.a_proj", hidden, shape.num_v_heads, role="mamba"),
        replace(conv, quantizable=False),
        Tensor(name="linear_attn.dt_bias", role="mamba", shape=(shape.num_v_heads,), shard_dim=0),
        Tensor(name="linear_attn.A_log", role="mamba", shape=(shape.num_v_heads,), shard_dim=0),
        *norm("linear_attn.o_norm", shape.head_v_size),
        row_linear("linear_attn.o_proj", shape.value_size, hidden, role="mamba"),
    )
    return modules, shape.cache()


def build_olmo_hybrid(given: FamilyInput) -> Built:
    """An OLMo-Hybrid model; pipeline stages all hold both tables."""
    view = given.text
    hidden, num_layers = view.integer("hidden_size"), view.integer("num_hidden_layers")
    kinds = view.items("layer_types") or []
    if len(kinds) < num_layers or not set(kinds) <= {"linear_attention", "full_attention"}:
        raise PlanError(
            "layer_types", kinds, f"config.json: layer_types must name one kind for each of {num_layers} layers."
        )
    shape = attention_shape(view, qk_norm="full")
    settings = dict(rope_parameters(view))
    has_rotary = settings.get("rope_theta", view.values.get("rope_theta")) is not None
    rotary = (rope_cache(view, shape.head_size, settings=settings),) if has_rotary else ()
    net, state = _olmo_delta_net(view)
    mlp = gated_mlp(hidden, view.integer("intermediate_size"))
    before = layer_norms(hidden, "input_layernorm", "post_attention_layernorm")
    after = layer_norms(hidden, "post_attention_layernorm", "post_feedforward_layernorm")

    def build(index: int) -> _Layer:
        if kinds[index] == "linear_attention":
            return (*net, *mlp, *before), (state,)
        return (*attention(shape), *rotary, *mlp, *after), (kv_cache(shape),)

    is_tied = view.flag("tie_word_embeddings", False)
    tables = vocabulary(view, ties=is_tied, embedding_on_every_stage=True, head_on_every_stage=True)
    return Built(
        layers=build_layers(num_layers, "model.layers", build),
        parts=(*tables.parts(), final_norm(hidden, stage="every")),
        is_hybrid=True,
        ties_embeddings=is_tied,
    )


BUILDERS: dict[str, Builder] = {
    "BailingMoeV2_5ForCausalLM": build_bailing_linear,
    "MiniMaxForCausalLM": build_minimax_text,
    "MiniMaxM1ForCausalLM": build_minimax_text,
    "MiniMaxText01ForCausalLM": build_minimax_text,
    "OlmoHybridForCausalLM": build_olmo_hybrid,
}
