"""How a mixture-of-experts decoder with grouped-query attention is put together from what its architecture chose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.config_view import ConfigView
from planner.families import Built
from planner.families.blocks import (
    AttentionShape,
    attention,
    build_layers,
    final_norm,
    gated_mlp,
    kv_cache,
    layer_norms,
    vocabulary,
)
from planner.families.draft_layers import mtp_layers, num_mtp_layers
from planner.families.expert_layers import ExpertBlock
from planner.families.rope import rope_cache
from planner.inventory import Buffer, Cache, Module, Tensor


def _everywhere(_: int) -> bool:
    return True


def _whole_context(_: int) -> int | None:
    return None


def _nothing(_: int) -> tuple[Module, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MoeDesign:
    """One model's choices; those that differ by layer are functions of its index.

    `is_sparse`: the layer has experts, else a dense MLP; `window_of`: its sliding window; `shape_of`: its attention
    where that is not `shape`; `extras_of`: what it has beside attention, MLP, norms and the rotary cache.
    """

    text: ConfigView
    shape: AttentionShape
    experts: ExpertBlock
    dense_intermediate_size: int
    rotary: Buffer
    num_layers: int
    is_sparse: Callable[[int], bool] = _everywhere
    window_of: Callable[[int], int | None] = _whole_context
    has_rotary: Callable[[int], bool] = _everywhere
    shape_of: Callable[[int], AttentionShape] | None = None
    extras_of: Callable[[int], tuple[Module, ...]] = _nothing
    mlp_prefix: str = "mlp"
    attention_names: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    attention_prefix: str = "self_attn"
    output_name: str = "o_proj"
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    norms_have_bias: bool = False
    dense_has_bias: bool = False
    is_on_every_stage: bool = False  # the class builds tables and final norm without asking for its pipeline rank
    ties: bool = False
    embedding: str = "model.embed_tokens"
    head_has_bias: bool = False


def moe_design(
    text: ConfigView, shape: AttentionShape, experts: ExpertBlock, dense_intermediate_size: int | None = None
) -> MoeDesign:
    """The usual design: experts in every layer, one rotary cache, whole attention, tables on the outer stages."""
    dense = dense_intermediate_size or text.integer("intermediate_size", default=experts.intermediate_size)
    return MoeDesign(
        text=text,
        shape=shape,
        experts=experts,
        dense_intermediate_size=dense,
        rotary=rope_cache(text, shape.head_size),
        num_layers=text.integer("num_hidden_layers", "n_layers"),
        window_of=uniform_window(text),
        ties=text.flag("tie_word_embeddings", default=False),
    )


def uniform_window(text: ConfigView) -> Callable[[int], int | None]:
    """The window that vLLM gives every layer of a class that knows no windows: the config's, unless layers differ.

    0 means none, and so does a window that `use_sliding_window` turns off (engine/arg_utils.py, create_engine_config).
    """
    window = text.optional_integer("sliding_window") if text.flag("use_sliding_window", default=True) else None
    kinds = text.items("layer_types") or []
    differs = any(kind != "sliding_attention" for kind in kinds)
    return lambda _: None if differs else window or None


def sliding_windows(text: ConfigView, *, extra_tokens: int = 0) -> Callable[[int], int | None]:
    """The window of each layer by the config's `layer_types`; without them, the same for all."""
    kinds = text.items("layer_types")
    if not kinds:
        return uniform_window(text)
    window = text.optional_integer("sliding_window")
    sliding = {index for index, kind in enumerate(kinds) if kind == "sliding_attention"}
    return lambda index: window + extra_tokens if window and index in sliding else None


def attention_sinks(shape: AttentionShape, name: str = "self_attn.sinks") -> Tensor:
    """One sink logit per head, divided by TP with the heads."""
    return Tensor(name=name, role="attention", shape=(shape.num_heads,), shard_dim=0)


def layer_modules(design: MoeDesign, index: int) -> tuple[Module, ...]:
    """The modules of layer `index`."""
    width = design.shape.hidden_size
    mixing = attention(
        layer_shape(design, index),
        prefix=design.attention_prefix,
        qkv=design.attention_names,
        output=design.output_name,
    )
    feed_forward = design.experts.modules(width) if design.is_sparse(index) else _dense(design)
    norms = layer_norms(width, *design.norms, has_bias=design.norms_have_bias)
    rotary = (design.rotary,) if design.has_rotary(index) else ()
    return (*mixing, *design.extras_of(index), *feed_forward, *norms, *rotary)


def layer_shape(design: MoeDesign, index: int) -> AttentionShape:
    """The attention of layer `index`."""
    return design.shape if design.shape_of is None else design.shape_of(index)


def _dense(design: MoeDesign) -> tuple[Module, ...]:
    return gated_mlp(
        design.shape.hidden_size,
        design.dense_intermediate_size,
        prefix=design.mlp_prefix,
        has_bias=design.dense_has_bias,
    )


def assemble(design: MoeDesign) -> Built:
    """What vLLM builds for `design`."""

    def build(index: int) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
        return layer_modules(design, index), (kv_cache(layer_shape(design, index), design.window_of(index)),)

    everywhere = design.is_on_every_stage
    tables = vocabulary(
        design.text,
        ties=design.ties,
        embedding=design.embedding,
        head_bias=design.head_has_bias,
        embedding_on_every_stage=everywhere,
        head_on_every_stage=everywhere,
    )
    last_norm = final_norm(
        design.shape.hidden_size, has_bias=design.norms_have_bias, stage="every" if everywhere else "last"
    )
    return Built(
        layers=build_layers(design.num_layers, "model.layers", build),
        parts=(*tables.parts(), last_norm),
        is_moe=True,
        ties_embeddings=design.ties,
        intermediate_size=design.dense_intermediate_size,
    )


def with_mtp(design: MoeDesign) -> Built:
    """What vLLM builds for `design`, with the checkpoint's MTP layers as drafts: each like the decoder layer of its index."""

    def build(index: int) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
        return layer_modules(design, index), (kv_cache(layer_shape(design, index), design.window_of(index)),)

    count = num_mtp_layers(design.text)
    drafts = mtp_layers(count, design.num_layers, design.shape.hidden_size, build)
    return replace(assemble(design), draft_layers=drafts)
