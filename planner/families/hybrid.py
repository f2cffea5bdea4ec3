"""Hybrids of Mamba or short convolutions with attention: Granite-4.0-H, Bamba, Falcon-H1, Jamba, Zamba2, LFM2, pure Mamba.

Sources: the modules of the same names in vLLM 0.33 (bamba.py in 0.23). Qwen3-Next and Nemotron-H have modules of their own.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    attention,
    attention_shape,
    build_layers,
    column_linear,
    final_norm,
    gated_mlp,
    kv_cache,
    norm,
    replicated_linear,
    row_linear,
    vocabulary,
)
from planner.families.expert_layers import ExpertBlock
from planner.families.mamba_layers import Mamba1Shape, Mamba2Shape, short_conv_cache, short_conv_modules
from planner.families.rope import rope_cache, rope_parameters
from planner.inventory import Buffer, Cache, Experts, Linear, Module


def _attention(view: ConfigView, prefix: str, *, output: str = "o_proj", bias: bool = False) -> tuple[Module, ...]:
    shape = attention_shape(view, qkv_bias=bias, output_bias=bias)
    return attention(shape, prefix=prefix, output=output)


def _attention_cache(view: ConfigView) -> Cache:
    return kv_cache(attention_shape(view))


def _kinds(view: ConfigView, name: str, known: tuple[str, ...]) -> list[str]:
    """The listed kind of each layer, checked."""
    kinds = view.items(name)
    num_layers = view.integer("num_hidden_layers")
    if kinds is None or len(kinds) < num_layers or not set(kinds) <= set(known):
        wanted = ", ".join(known)
        raise PlanError(name, kinds, f"config.json: {name} must name one of {wanted} for each of {num_layers} layers.")
    return kinds[:num_layers]


# Granite-4.0-H: Mamba-2 or attention, then routed experts and a shared MLP in every layer.


def _granite_mamba(view: ConfigView) -> Mamba2Shape:
    return _mamba2(view, view.integer("mamba_expand", default=2) * view.integer("hidden_size"))


def _mamba2(view: ConfigView, inner: int) -> Mamba2Shape:
    """The state layer of `inner` channels that Granite, Bamba and Falcon-H1 describe with the same keys."""
    heads = view.integer("mamba_n_heads", default=128)
    size = view.values.get("mamba_d_head")
    return Mamba2Shape(
        hidden_size=view.integer("hidden_size"),
        num_heads=heads,
        head_size=inner // heads if size in (None, "auto") else view.integer("mamba_d_head"),
        state_size=view.integer("mamba_d_state", default=256),
        num_groups=view.integer("mamba_n_groups", default=1),
        conv_kernel=view.integer("mamba_d_conv", default=4),
        intermediate_size=inner,
        has_conv_bias=view.flag("mamba_conv_bias", True),
        has_bias=view.flag("mamba_proj_bias", False),
    )


def _granite_mlp(view: ConfigView) -> tuple[Module, ...]:
    hidden = view.integer("hidden_size")
    shared = view.integer("shared_intermediate_size", default=1024, least=0)
    count = view.integer("num_local_experts", default=8, least=0)
    modules: tuple[Module, ...] = ()
    if count:
        block = ExpertBlock(
            num_experts=count,
            intermediate_size=view.integer("intermediate_size"),
            top_k=view.integer("num_experts_per_tok", default=2),
            prefix="block_sparse_moe",
        )
        modules = block.modules(hidden)
    if shared:
        gate_up = column_linear("shared_mlp.input_linear", hidden, shared, shared)
        modules += (gate_up, row_linear("shared_mlp.output_linear", shared, hidden))
    return modules


def build_granite_hybrid(given: FamilyInput) -> Built:
    """A Granite-4.0-H model; pipeline stages all hold the table."""
    view = given.text
    hidden = view.integer("hidden_size")
    kinds = ["attention" if kind == "full_attention" else kind for kind in _granite_kinds(view)]
    mamba, cache = _granite_mamba(view), _attention_cache(view)
    attention = _attention(view, "self_attn", bias=view.flag("attention_bias", False))
    if view.text("position_embedding_type") == "rope":
        attention += (rope_cache(view, cache.head_size),)
    mixers = {"attention": attention, "mamba": mamba.modules("mamba")}
    rest = (*_granite_mlp(view), *norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden))
    is_tied = view.flag("tie_word_embeddings", False)
    return Built(
        layers=build_layers(
            len(kinds),
            "model.layers",
            lambda index: (
                (*mixers[kinds[index]], *rest),
                (cache,) if kinds[index] == "attention" else (mamba.cache(),),
            ),
        ),
        parts=(
            *vocabulary(view, ties=is_tied, embedding_on_every_stage=True, head_on_every_stage=True).parts(),
            final_norm(hidden, stage="every"),
        ),
        is_hybrid="mamba" in kinds,
        is_moe=view.integer("num_local_experts", default=8, least=0) > 0,
        ties_embeddings=is_tied,
    )


def _granite_kinds(view: ConfigView) -> list[str]:
    if view.has("layer_types"):
        kinds = _kinds(view, "layer_types", ("mamba", "attention", "full_attention", "linear_attention"))
        return ["mamba" if kind == "linear_attention" else kind for kind in kinds]
    if view.has("layers_block_type"):
        return _kinds(view, "layers_block_type", ("mamba", "attention"))
    return ["mamba"] * view.integer("num_hidden_layers")


# Bamba (to vLLM 0.23): Mamba-2 or attention, and a gated MLP.


def build_bamba(given: FamilyInput) -> Built:
    """A Bamba model."""
    view = given.text
    hidden = view.integer("hidden_size")
    attention_layers = set(view.integers("attn_layer_indices") or [])
    mamba, cache = _granite_mamba(view), _attention_cache(view)
    share = view.number("attn_rotary_emb", 64) / cache.head_size
    settings = dict(rope_parameters(view)) | {"partial_rotary_factor": share}
    attended = (*_attention(view, "self_attn"), rope_cache(view, cache.head_size, settings=settings))
    mlp = gated_mlp(
        hidden, view.integer("intermediate_size"), prefix="feed_forward", has_bias=view.flag("mlp_bias", False)
    )
    rest: tuple[Module, ...] = (*mlp, *norm("input_layernorm", hidden), *norm("pre_ff_layernorm", hidden))
    mixers: dict[bool, tuple[Module, ...]] = {False: mamba.modules("mamba"), True: attended}
    is_tied = view.flag("tie_word_embeddings", False)
    return Built(
        layers=build_layers(
            view.integer("num_hidden_layers"),
            "model.layers",
            lambda index: (
                (*mixers[index in attention_layers], *rest),
                (cache,) if index in attention_layers else (mamba.cache(),),
            ),
        ),
        parts=(
            *vocabulary(view, ties=is_tied, embedding_on_every_stage=True, head_on_every_stage=True).parts(),
            final_norm(hidden, name="model.final_layernorm", stage="every"),
        ),
        is_hybrid=True,
        ties_embeddings=is_tied,
    )


# Falcon-H1: attention and Mamba-2 side by side in every layer.


def _falcon_mamba(view: ConfigView) -> Mamba2Shape:
    expanded = int(view.number("mamba_expand", 2) * view.integer("hidden_size"))
    inner = view.integer("mamba_d_ssm", default=expanded if "mamba_d_ssm" in view.values else 1024)
    return replace(_mamba2(view, inner), has_norm=view.flag("mamba_rms_norm", False))


def build_falcon_h1(given: FamilyInput) -> Built:
    """A Falcon-H1 model; each layer has an attention cache and a state."""
    view = given.text
    hidden = view.integer("hidden_size")
    mamba, cache = _falcon_mamba(view), _attention_cache(view)
    width = 2 * mamba.intermediate_size + mamba.grouped_size + mamba.num_heads
    multipliers = Buffer(
        name="mamba.mup_vector",
        shape=(1, width),
        shard_dim=1,
        grouped_size=mamba.grouped_size,
        num_groups=mamba.num_groups,
    )
    modules = (
        *_attention(view, "self_attn"),
        rope_cache(view, cache.head_size),
        *mamba.modules("mamba"),
        multipliers,
        *gated_mlp(
            hidden, view.integer("intermediate_size"), prefix="feed_forward", has_bias=view.flag("mlp_bias", False)
        ),
        *norm("input_layernorm", hidden),
        *norm("pre_ff_layernorm", hidden),
    )
    is_tied = view.flag("tie_word_embeddings", False)
    return Built(
        layers=build_layers(
            view.integer("num_hidden_layers"), "model.layers", lambda _: (modules, (cache, mamba.cache()))
        ),
        parts=(*vocabulary(view, ties=is_tied).parts(), final_norm(hidden, name="model.final_layernorm")),
        is_hybrid=True,
        ties_embeddings=is_tied,
    )


# Jamba: Mamba-1 or attention, each followed by an MLP or experts.


def _jamba_experts(view: ConfigView) -> tuple[Module, ...]:
    hidden, count = view.integer("hidden_size"), view.integer("num_experts", default=16)
    routed = Experts(
        name="feed_forward.experts",
        num_experts=count,
        hidden_size=hidden,
        intermediate_size=view.integer("intermediate_size"),
        top_k=view.integer("num_experts_per_tok", default=2),
        prefixes=("feed_forward.experts",),
    )
    router = replace(replicated_linear("feed_forward.router", hidden, count, role="router"), quantizable=False)
    return (router, routed)


def build_jamba(given: FamilyInput) -> Built:
    """A Jamba model; pipeline stages all hold both tables."""
    view = given.text
    hidden = view.integer("hidden_size")
    mamba = Mamba1Shape(
        hidden_size=hidden,
        intermediate_size=view.integer("mamba_expand", default=2) * hidden,
        state_size=view.integer("mamba_d_state", default=16),
        conv_kernel=view.integer("mamba_d_conv", default=4),
        time_step_rank=view.integer("mamba_dt_rank", default=-(-hidden // 16)),
        has_conv_bias=view.flag("mamba_conv_bias", True),
        has_bias=view.flag("mamba_proj_bias", False),
        has_inner_norms=True,
    )
    cache = _attention_cache(view)
    count = view.integer("num_experts", default=16)
    period, offset = (
        view.integer("expert_layer_period", default=2),
        view.integer("expert_layer_offset", default=1, least=0),
    )
    every, first = view.integer("attn_layer_period", default=8), view.integer("attn_layer_offset", default=4, least=0)
    mlp = gated_mlp(hidden, view.integer("intermediate_size"), prefix="feed_forward")
    experts = _jamba_experts(view) if count > 1 else mlp
    norms = (*norm("input_layernorm", hidden), *norm("pre_ff_layernorm", hidden))
    mixers = (mamba.modules("mamba"), _attention(view, ""))

    def is_attention(index: int) -> bool:
        return index % every == first

    return Built(
        layers=build_layers(
            view.integer("num_hidden_layers"),
            "model.layers",
            lambda index: (
                (*mixers[is_attention(index)], *(experts if index % period == offset else mlp), *norms),
                (cache,) if is_attention(index) else (mamba.cache(),),
            ),
        ),
        parts=(
            *vocabulary(view, ties=False, embedding_on_every_stage=True, head_on_every_stage=True).parts(),
            final_norm(hidden, name="model.final_layernorm", stage="every"),
        ),
        is_hybrid=True,
        is_moe=count > 1,
    )


# LFM2: short convolutions and attention, each followed by a gated MLP (or, in the later layers of LFM2-MoE, experts).


def _lfm_width(view: ConfigView) -> int:
    width = view.integer("block_ff_dim", "intermediate_size")
    if not view.flag("block_auto_adjust_ff_dim", True):
        return width
    adjusted = int(2 * width / 3)
    if view.has("block_ffn_dim_multiplier"):
        adjusted = int(view.number("block_ffn_dim_multiplier", 1.0) * adjusted)
    multiple = view.integer("block_multiple_of", default=256)
    return -(-adjusted // multiple) * multiple


def _lfm_mlp(hidden: int, width: int) -> tuple[Linear, ...]:
    gate_up = replace(
        column_linear("feed_forward.w13", hidden, width, width), prefixes=("feed_forward.w1", "feed_forward.w3")
    )
    return (gate_up, row_linear("feed_forward.w2", width, hidden))


def _lfm_kinds(view: ConfigView) -> list[str]:
    if view.has("layer_types"):
        return _kinds(view, "layer_types", ("full_attention", "conv"))
    full = list(view.items("full_attn_idxs") or range(view.integer("num_hidden_layers")))
    return ["full_attention" if index in full else "conv" for index in range(view.integer("num_hidden_layers"))]


def build_lfm2(given: FamilyInput) -> Built:
    """An LFM2 or LFM2-MoE model; the table is tied, on every stage."""
    view = given.text
    hidden = view.integer("hidden_size")
    is_moe = given.architecture.startswith("Lfm2Moe")
    kinds, cache = _lfm_kinds(view), _attention_cache(view)
    kernel, bias = view.integer("conv_L_cache", default=3), view.flag("conv_bias", False)
    inner_norms = (*norm("self_attn.q_layernorm", cache.head_size), *norm("self_attn.k_layernorm", cache.head_size))
    attention = (*_attention(view, "self_attn", output="out_proj"), *inner_norms, rope_cache(view, cache.head_size))
    mixers = {"full_attention": attention, "conv": short_conv_modules("conv", hidden, kernel, bias=bias)}
    norms = (*norm("operator_norm", hidden), *norm("ffn_norm", hidden))
    dense = _lfm_mlp(hidden, view.integer("intermediate_size") if is_moe else _lfm_width(view))
    num_dense = view.integer("num_dense_layers", default=2, least=0) if is_moe else len(kinds)
    experts = _lfm_experts(view) if is_moe else dense
    return Built(
        layers=build_layers(
            len(kinds),
            "model.layers",
            lambda index: (
                (*mixers[kinds[index]], *(dense if index < num_dense else experts), *norms),
                (cache if kinds[index] == "full_attention" else short_conv_cache(hidden, kernel),),
            ),
        ),
        parts=(
            *vocabulary(view, ties=True, embedding_on_every_stage=True, head_on_every_stage=True).parts(),
            final_norm(hidden, name="model.embedding_norm"),
        ),
        is_hybrid=True,
        is_moe=is_moe,
        ties_embeddings=True,
    )


def _lfm_experts(view: ConfigView) -> tuple[Module, ...]:
    block = ExpertBlock(
        num_experts=view.integer("num_experts"),
        intermediate_size=view.integer("moe_intermediate_size"),
        top_k=view.integer("num_experts_per_tok"),
        prefix="feed_forward",
        score_bias_name="expert_bias" if view.flag("use_expert_bias", True) else None,
        quantizes_router=True,
    )
    return block.modules(view.integer("hidden_size"))


BUILDERS: dict[str, Builder] = {
    "GraniteMoeHybridForCausalLM": build_granite_hybrid,
    "BambaForCausalLM": build_bamba,
    "FalconH1ForCausalLM": build_falcon_h1,
    "JambaForCausalLM": build_jamba,
    "Lfm2ForCausalLM": build_lfm2,
    "Lfm2MoeForCausalLM": build_lfm2,
}
