"""Models of state-space layers alone (Mamba, Mamba-2, Falcon-Mamba) and Zamba2, whose attention blocks share their weights.

Sources: mamba.py, mamba2.py and zamba2.py of vLLM 0.33.
"""

from __future__ import annotations

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    AttentionShape,
    attention,
    attention_scales,
    build_layers,
    column_linear,
    final_norm,
    gated_mlp,
    norm,
    replicated_linear,
    row_linear,
    vocabulary,
)
from planner.families.mamba_layers import Mamba1Shape, Mamba2Shape
from planner.families.rope import rope_cache
from planner.inventory import Cache, Module, Part


def build_mamba(given: FamilyInput) -> Built:
    """A Mamba, Mamba-2 or Falcon-Mamba model; pipeline stages all hold the tables."""
    view = given.text
    hidden = view.integer("hidden_size", "d_model")
    shape = _mamba2(view, hidden) if given.architecture.startswith("Mamba2") else _mamba1(view, hidden)
    modules: tuple[Module, ...] = (*shape.modules("mixer"), *norm("norm", hidden))
    is_tied = view.flag("tie_word_embeddings", not given.architecture.startswith("Mamba2"))
    return Built(
        layers=build_layers(
            view.integer("num_hidden_layers", "n_layer"), "backbone.layers", lambda _: (modules, (shape.cache(),))
        ),
        parts=(
            *vocabulary(
                view,
                ties=is_tied,
                embedding="backbone.embeddings",
                embedding_on_every_stage=True,
                head_on_every_stage=True,
            ).parts(),
            final_norm(hidden, name="backbone.norm_f", stage="every"),
        ),
        is_hybrid=False,
        ties_embeddings=is_tied,
        intermediate_size=shape.intermediate_size,
    )


def _mamba1(view: ConfigView, hidden: int) -> Mamba1Shape:
    rank = view.values.get("time_step_rank", "auto")
    return Mamba1Shape(
        hidden_size=hidden,
        intermediate_size=view.integer("intermediate_size", default=view.integer("expand", default=2) * hidden),
        state_size=view.integer("state_size", default=16),
        conv_kernel=view.integer("conv_kernel", default=4),
        time_step_rank=-(-hidden // 16) if rank == "auto" else view.integer("time_step_rank"),
        has_conv_bias=view.flag("use_conv_bias", True),
        has_bias=view.flag("use_bias", False),
    )


def _mamba2(view: ConfigView, hidden: int) -> Mamba2Shape:
    return Mamba2Shape(
        hidden_size=hidden,
        num_heads=view.integer("num_heads", default=128),
        head_size=view.integer("head_dim", default=64),
        state_size=view.integer("state_size", default=128),
        num_groups=view.integer("n_groups", default=8),
        conv_kernel=view.integer("conv_kernel", default=4),
        intermediate_size=view.integer("expand", default=2) * hidden,
        has_conv_bias=view.flag("use_conv_bias", True),
        has_bias=view.flag("use_bias", False),
    )


# Zamba2: `num_mem_blocks` transformer blocks take turns over the hybrid layers, each layer with adapters and a cache of its own.


def _zamba_kinds(view: ConfigView) -> list[str]:
    num_layers = view.integer("num_hidden_layers")
    kinds = view.items("layers_block_type")
    if kinds is None:
        hybrid = set(view.integers("hybrid_layer_ids") or [])
        kinds = ["hybrid" if index in hybrid else "mamba" for index in range(num_layers)]
    if len(kinds) < num_layers or any(kind not in ("hybrid", "mamba") for kind in kinds):
        raise PlanError(
            "layers_block_type", kinds, "config.json: layers_block_type must name hybrid or mamba for each layer."
        )
    return kinds[:num_layers]


def _zamba_mamba(view: ConfigView) -> Mamba2Shape:
    hidden = view.integer("hidden_size")
    inner = view.integer("mamba_expand", default=2) * hidden
    heads = view.integer("n_mamba_heads", default=8)
    return Mamba2Shape(
        hidden_size=hidden,
        num_heads=heads,
        head_size=inner // heads,
        state_size=view.integer("mamba_d_state", default=64),
        num_groups=view.integer("mamba_ngroups", default=1),
        conv_kernel=view.integer("mamba_d_conv", default=4),
        intermediate_size=inner,
        has_conv_bias=view.flag("use_conv_bias", True),
        has_bias=view.flag("add_bias_linear", False),
    )


def _zamba_shared_block(view: ConfigView) -> tuple[Module, ...]:
    """One of the transformer blocks whose weights several layers share; it reads hidden state and embedding side by side."""
    hidden, wide = (
        view.integer("hidden_size"),
        view.integer("attention_hidden_size", default=2 * view.integer("hidden_size")),
    )
    heads = view.integer("num_attention_heads")
    size = view.integer("attention_head_dim", default=wide // heads)
    shape = AttentionShape(hidden_size=wide, num_heads=heads, num_kv_heads=heads, head_size=size)
    width, bias = view.integer("intermediate_size", default=4 * hidden), view.flag("add_bias_linear", False)
    return (
        attention(shape)[0],
        row_linear("self_attn.o_proj", wide, hidden, role="attention"),
        *gated_mlp(hidden, width, prefix="feed_forward", has_bias=bias),
        *norm("input_layernorm", wide),
        *norm("pre_ff_layernorm", hidden),
    )


def _zamba_adapters(view: ConfigView) -> tuple[Module, ...]:
    """The low-rank adapters that a hybrid layer adds to its shared block."""
    hidden, rank = view.integer("hidden_size"), view.integer("adapter_rank", default=128)
    wide, width = (
        view.integer("attention_hidden_size", default=2 * hidden),
        view.integer("intermediate_size", default=4 * hidden),
    )
    mlp = "shared_transformer.feed_forward.gate_up_proj_adapter"
    modules: tuple[Module, ...] = (
        column_linear(f"{mlp}.A", hidden, rank),
        column_linear(f"{mlp}.B", rank, width, width),
    )
    if view.flag("use_shared_attention_adapter", False):
        for name in ("q", "k", "v"):
            at = f"shared_transformer.self_attn.linear_{name}_adapter"
            modules += (
                column_linear(f"{at}.A", wide, rank, role="attention"),
                column_linear(f"{at}.B", rank, wide, role="attention"),
            )
    return modules


def build_zamba2(given: FamilyInput) -> Built:
    """A Zamba2 model; vLLM does not split it into pipeline stages."""
    view = given.text
    hidden = view.integer("hidden_size")
    kinds, mamba = _zamba_kinds(view), _zamba_mamba(view)
    heads = view.integer("num_attention_heads")
    size = view.integer(
        "attention_head_dim", default=view.integer("attention_hidden_size", default=2 * hidden) // heads
    )
    cache = Cache(kind="full", num_kv_heads=heads, head_size=size)
    state = (*mamba.modules("mamba"), *norm("input_layernorm", hidden))
    link = replicated_linear("linear", hidden, hidden, role="attention")
    joined = (*state, link, *_zamba_adapters(view), attention_scales())
    if view.flag("use_mem_rope", False):
        joined += (rope_cache(view, size),)
    num_blocks = min(view.integer("num_mem_blocks", default=1), kinds.count("hybrid"))
    blocks = tuple(
        Part(prefix=f"model.shared_transformer.{index}", stage="every", modules=_zamba_shared_block(view))
        for index in range(num_blocks)
    )
    layers = build_layers(
        len(kinds),
        "model.layers",
        lambda index: (
            joined if kinds[index] == "hybrid" else state,
            (cache, mamba.cache()) if kinds[index] == "hybrid" else (mamba.cache(),),
        ),
    )
    table = (
        *vocabulary(view, ties=True, embedding_on_every_stage=True, head_on_every_stage=True).parts(),
        final_norm(hidden, name="model.final_layernorm", stage="every"),
    )
    return Built(layers=layers, parts=(*table, *blocks), is_hybrid=True, ties_embeddings=True)


BUILDERS: dict[str, Builder] = {
    "MambaForCausalLM": build_mamba,
    "FalconMambaForCausalLM": build_mamba,
    "Mamba2ForCausalLM": build_mamba,
    "Zamba2ForCausalLM": build_zamba2,
}
