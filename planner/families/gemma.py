"""Gemma 1, 2, 3, 3n and 4 (their language parts): local and global layers, shared KV, per-layer embeddings.

All of these classes build embedding, head and last norm on every pipeline stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    NO_CACHE,
    AttentionShape,
    attention,
    attention_scales,
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
from planner.families.rope import rope_cache, rope_parameters
from planner.inventory import Buffer, Cache, Embedding, Experts, Linear, Module, Part, Tensor

_SLIDING, _FULL = "sliding_attention", "full_attention"
_TWO_NORMS = ("input_layernorm", "post_attention_layernorm")
_FOUR_NORMS = (*_TWO_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
_SCALAR = (1,)


def layer_kinds(text: ConfigView, default_pattern: int) -> tuple[str, ...]:
    """Each layer's kind: `layer_types`, or every `sliding_window_pattern`-th layer full and the others sliding."""
    num_layers = text.integer("num_hidden_layers")
    listed = text.items("layer_types")
    if listed is not None:
        if len(listed) != num_layers or not all(kind in {_SLIDING, _FULL} for kind in listed):
            field = f"{text.path}layer_types"
            raise PlanError(
                field,
                len(listed),
                f"config.json: {field} must name sliding_attention or full_attention for each of {num_layers} layers.",
            )
        return tuple(listed)
    pattern = text.integer("sliding_window_pattern", "_sliding_window_pattern", default=default_pattern)
    return tuple(_SLIDING if (index + 1) % pattern else _FULL for index in range(num_layers))


def _whole(text: ConfigView, layers: Any, *extra: Part, ties: bool = True) -> Built:
    hidden = text.integer("hidden_size")
    table = vocabulary(text, ties=ties, embedding_on_every_stage=True, head_on_every_stage=True)
    normalizer = Part(prefix="", stage="every", modules=(Buffer(name="normalizer", shape=_SCALAR),))
    parts = (*table.parts(), final_norm(hidden, stage="every"), normalizer, *extra)
    return Built(layers=layers, parts=parts, ties_embeddings=ties)


def _ties(text: ConfigView) -> bool:
    return text.flag("tie_word_embeddings", default=True)


def _named_rope(text: ConfigView, kind: str, head_size: int, settings: Mapping[str, Any] | None = None) -> Buffer:
    return replace(rope_cache(text, head_size, settings=settings), name=f"rotary_cache.{kind}")


def _gemma1(family: FamilyInput) -> Built:
    text = family.text
    shape = attention_shape(text)
    modules = (
        *attention(shape),
        *gated_mlp(shape.hidden_size, text.integer("intermediate_size")),
        *layer_norms(shape.hidden_size, *_TWO_NORMS),
        rope_cache(text, shape.head_size),
    )
    layers = build_layers(text.integer("num_hidden_layers"), "model.layers", lambda _: (modules, (kv_cache(shape),)))
    return _whole(text, layers, ties=_ties(text))


def _windowed(text: ConfigView, shape: AttentionShape, kind: str) -> Cache:
    return kv_cache(shape, text.optional_integer("sliding_window") if kind == _SLIDING else None)


def _gemma2(family: FamilyInput) -> Built:
    text = family.text
    bias = text.flag("attention_bias", default=False)
    shape = attention_shape(text, qkv_bias=bias, output_bias=bias)
    modules = (
        *attention(shape),
        *gated_mlp(shape.hidden_size, text.integer("intermediate_size")),
        *layer_norms(shape.hidden_size, *_FOUR_NORMS),
        rope_cache(text, shape.head_size),
    )
    kinds = layer_kinds(text, 2)
    layers = build_layers(len(kinds), "model.layers", lambda i: (modules, (_windowed(text, shape, kinds[i]),)))
    return _whole(text, layers)


def _gemma3_rope(text: ConfigView, kind: str) -> Mapping[str, Any]:
    """Global layers follow the config's scaling, local ones their own plain base (Gemma3TextConfig)."""
    nested = text.values.get("rope_parameters")
    if isinstance(nested, dict) and isinstance(nested.get(kind), dict):
        return rope_parameters(text, kind)
    return rope_parameters(text) if kind == _FULL else {"rope_type": "default"}


def _gemma3(family: FamilyInput, *, is_causal: bool = True) -> Built:
    text = family.text
    bias = text.flag("attention_bias", default=False)
    shape = attention_shape(text, qkv_bias=bias, output_bias=bias, qk_norm="head")
    kinds = layer_kinds(text, 6)

    def layer(index: int) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
        kind = kinds[index]
        modules = (
            *attention(shape),
            *gated_mlp(shape.hidden_size, text.integer("intermediate_size")),
            *layer_norms(shape.hidden_size, *_FOUR_NORMS),
            _named_rope(text, kind, shape.head_size, _gemma3_rope(text, kind)),
        )
        return modules, (_windowed(text, shape, kind) if is_causal else NO_CACHE,)

    return _whole(text, build_layers(len(kinds), "model.layers", layer), ties=_ties(text))


def _gemma3_text(family: FamilyInput) -> Built:
    """EmbeddingGemma: no cache where its config says that attention goes both ways."""
    goes_both_ways = family.text.flag("use_bidirectional_attention", default=False)
    return _gemma3(family, is_causal=not goes_both_ways)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedLayers:
    """Which layers borrow another's keys and values: all from `first` on."""

    num_layers: int
    first: int

    @classmethod
    def of(cls, text: ConfigView) -> _SharedLayers:
        num_layers = text.integer("num_hidden_layers")
        shared = text.integer("num_kv_shared_layers", default=0, least=0)
        return cls(num_layers=num_layers, first=num_layers - min(shared, num_layers))

    def holds(self, index: int) -> bool:
        return index >= self.first


def _borrowing_attention(shape: AttentionShape) -> tuple[Module, ...]:
    """A layer without K and V of its own: queries only."""
    return (
        column_linear("self_attn.q_proj", shape.hidden_size, shape.q_size, role="attention", has_bias=shape.qkv_bias),
        row_linear("self_attn.o_proj", shape.q_size, shape.hidden_size, role="attention", has_bias=shape.output_bias),
        *norm("self_attn.q_norm", shape.head_size),
        attention_scales(),
    )


def _layer_attention(shape: AttentionShape, *, is_shared: bool) -> tuple[Module, ...]:
    return _borrowing_attention(shape) if is_shared else attention(shape)


def _per_layer_input(hidden: int, width: int) -> tuple[Module, ...]:
    """The gate and projection through which a layer reads its own slice of the per-layer embedding."""
    return (
        replicated_linear("per_layer_input_gate", hidden, width, role="other"),
        replicated_linear("per_layer_projection", width, hidden, role="other"),
        *norm("post_per_layer_input_norm", hidden),
    )


def _per_layer_table(text: ConfigView, num_layers: int, width: int, num_scalars: int) -> Part:
    """The table of per-layer embeddings and the projection beside it."""
    rows = text.integer("vocab_size_per_layer_input", default=text.integer("vocab_size"))
    modules: tuple[Module, ...] = (
        Embedding(
            name="embed_tokens_per_layer",
            role="embedding",
            num_rows=rows,
            dim=num_layers * width,
            prefixes=("embed_tokens_per_layer",),
        ),
        column_linear("per_layer_model_projection", text.integer("hidden_size"), num_layers * width, role="other"),
        *norm("per_layer_projection_norm", width),
        Buffer(name="per_layer_scales", shape=_SCALAR, repeat=num_scalars),
    )
    return Part(prefix="model", stage="every", modules=modules)


def _gemma4_shape(text: ConfigView, kind: str) -> AttentionShape:
    """Local layers by head_dim; global ones by global_head_dim, and where K is V by their own KV heads."""
    bias = text.flag("attention_bias", default=False)
    shape = attention_shape(text, qkv_bias=bias, output_bias=bias, qk_norm="head")
    if kind == _SLIDING:
        return shape
    heads = shape.num_kv_heads
    if text.flag("attention_k_eq_v", default=False):
        heads = text.integer("num_global_key_value_heads", default=heads)
    return replace(shape, head_size=text.integer("global_head_dim", default=512), num_kv_heads=heads)


def _gemma4_rope(text: ConfigView, kind: str) -> Mapping[str, Any]:
    if text.has("rope_parameters"):
        return rope_parameters(text, kind)
    return {"rope_type": "default" if kind == _SLIDING else "proportional"}


def _gemma4_experts(text: ConfigView, hidden: int) -> tuple[Module, ...]:
    """The routed experts that stand beside the dense MLP, their router and three more norms."""
    num_experts = text.optional_integer("num_experts")
    if not num_experts:
        return ()
    return (
        replace(replicated_linear("router.proj", hidden, num_experts, role="router"), quantizable=False),
        Tensor(name="router.scale", role="router", shape=(hidden,)),
        Tensor(name="router.per_expert_scale", role="router", shape=(num_experts,)),
        Buffer(name="router.root_size", shape=_SCALAR),
        Experts(
            name="experts",
            num_experts=num_experts,
            hidden_size=hidden,
            intermediate_size=text.integer("moe_intermediate_size", "expert_intermediate_size"),
            top_k=text.integer("top_k_experts", default=1),
            prefixes=("experts",),
        ),
        *layer_norms(
            hidden, "post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"
        ),
    )


def _gemma4(family: FamilyInput) -> Built:
    text = family.text
    hidden, width = text.integer("hidden_size"), text.integer("intermediate_size")
    kinds = layer_kinds(text, 6)
    shared = _SharedLayers.of(text)
    per_layer = text.integer("hidden_size_per_layer_input", default=0, least=0)
    widens = text.flag("use_double_wide_mlp", default=False)

    def layer(index: int) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
        kind, is_shared = kinds[index], shared.first > 0 and shared.holds(index)
        shape = _gemma4_shape(text, kind)
        modules = (
            *_layer_attention(shape, is_shared=is_shared),
            *gated_mlp(hidden, width * (2 if widens and is_shared else 1)),
            *layer_norms(hidden, *_FOUR_NORMS),
            *_gemma4_experts(text, hidden),
            *(_per_layer_input(hidden, per_layer) if per_layer else ()),
            Buffer(name="layer_scalar", shape=_SCALAR),
            _named_rope(text, kind, shape.head_size, _gemma4_rope(text, kind)),
        )
        return modules, (Cache(kind="shared") if is_shared else _windowed(text, shape, kind),)

    layers = build_layers(len(kinds), "model.layers", layer)
    extra = (_per_layer_table(text, len(kinds), per_layer, 3),) if per_layer else ()
    return replace(_whole(text, layers, *extra, ties=_ties(text)), is_moe=bool(text.optional_integer("num_experts")))


def _altup(hidden: int, num_inputs: int) -> tuple[Module, ...]:
    return (
        replicated_linear("altup.correction_coefs", num_inputs, num_inputs, role="other"),
        replicated_linear("altup.prediction_coefs", num_inputs, num_inputs**2, role="other"),
        replicated_linear("altup.modality_router", hidden, num_inputs, role="other"),
        *norm("altup.router_norm", hidden),
        Buffer(name="altup.router_input_scale", shape=_SCALAR),
        Tensor(name="altup.correct_output_scale", role="other", shape=(hidden,), dtype="float32"),
    )


def _laurel(hidden: int, rank: int) -> tuple[Module, ...]:
    return (
        column_linear("laurel.linear_left", hidden, rank, role="other"),
        row_linear("laurel.linear_right", rank, hidden, role="other"),
        *norm("laurel.post_laurel_norm", hidden),
    )


def _widths(text: ConfigView, num_layers: int) -> Callable[[int], int]:
    """Each layer's MLP width: one number for all, or one a layer."""
    value = text.values.get("intermediate_size")
    if not isinstance(value, list):
        width = text.integer("intermediate_size")
        return lambda _: width
    if len(value) != num_layers:
        field = f"{text.path}intermediate_size"
        raise PlanError(field, len(value), f"config.json: {field} must have one width for each of {num_layers} layers.")
    return lambda index: ConfigView({"intermediate_size": value[index]}, text.path).integer("intermediate_size")


def _gemma3n(family: FamilyInput) -> Built:
    text = family.text
    hidden, per_layer = text.integer("hidden_size"), text.integer("hidden_size_per_layer_input", default=256)
    num_inputs = text.integer("altup_num_inputs", default=4)
    kinds = layer_kinds(text, 5)
    shared, width = _SharedLayers.of(text), _widths(text, len(kinds))
    bias = text.flag("attention_bias", default=False)
    shape = attention_shape(text, qkv_bias=bias, output_bias=bias, qk_norm="head")

    def layer(index: int) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
        kind, is_shared = kinds[index], shared.holds(index)
        modules = (
            *_altup(hidden, num_inputs),
            *_layer_attention(shape, is_shared=is_shared),
            *gated_mlp(hidden, width(index)),
            *_laurel(hidden, text.integer("laurel_rank", default=64)),
            *_per_layer_input(hidden, per_layer),
            *layer_norms(hidden, *_FOUR_NORMS),
            _named_rope(text, kind, shape.head_size, _gemma3_rope(text, kind)),
        )
        return modules, (Cache(kind="shared") if is_shared else _windowed(text, shape, kind),)

    layers = build_layers(len(kinds), "model.layers", layer)
    names = ("altup_projections", "altup_unembed_projections")
    projections: tuple[Linear, ...] = tuple(
        column_linear(f"{name}.{index}", hidden, hidden, role="other")
        for name in names
        for index in range(num_inputs - 1)
    )
    table = _per_layer_table(text, len(kinds), per_layer, 3)
    return _whole(text, layers, table, Part(prefix="model", stage="every", modules=projections))


BUILDERS: dict[str, Builder] = {
    "GemmaForCausalLM": _gemma1,
    "GemmaModel": _gemma1,
    "Gemma2ForCausalLM": _gemma2,
    "Gemma2Model": _gemma2,
    "Gemma3ForCausalLM": _gemma3,
    "Gemma3TextModel": _gemma3_text,
    "Gemma3nForCausalLM": _gemma3n,
    "Gemma4ForCausalLM": _gemma4,
}
