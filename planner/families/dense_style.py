"""`Style`: what one dense decoder class builds (an attention and an MLP a layer), and the inventory made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    NO_CACHE,
    AttentionShape,
    Vocabulary,
    attention,
    attention_shape,
    build_layers,
    final_norm,
    gated_mlp,
    kv_cache,
    layer_norms,
    vocabulary,
)
from planner.families.rope import inverse_frequencies, rope_cache
from planner.inventory import Buffer, Module, Part, Tensor

Windows = tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What one model class builds. Names are the checkpoint's; sizes come from the config.

    `extra` are modules of each layer, `parts` of the whole model. `windows`: each layer's sliding window, if any.
    """

    shape: AttentionShape
    mlp: tuple[Module, ...]
    vocabulary: Vocabulary
    windows: Windows
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    has_norm_weight: bool = True
    norm_bias: bool = False
    final_norm: str = "model.norm"
    final_norm_on_every_stage: bool = False
    layers: str = "model.layers"
    attention_prefix: str = "self_attn"
    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    fused_qkv: str = "qkv_proj"
    output: str = "o_proj"
    rope: tuple[Buffer, ...] = ()
    extra: tuple[Module, ...] = ()
    parts: tuple[Part, ...] = ()
    is_causal: bool = True  # false: an embedding model that attends both ways and keeps nothing


Restyle = Callable[[ConfigView, Style], Style]


def layer_windows(text: ConfigView, num_layers: int) -> Windows:
    """Each layer's window: `layer_types` where given, else `sliding_window` on all layers (0 or null: none)."""
    window = text.optional_integer("sliding_window") or None
    kinds = text.items("layer_types")
    if kinds and window:
        return tuple(
            window if index < len(kinds) and kinds[index] == "sliding_attention" else None
            for index in range(num_layers)
        )
    return (window,) * num_layers


def llama_style(text: ConfigView) -> Style:
    """The style of vLLM's LlamaForCausalLM for this config."""
    bias = text.flag("attention_bias", default=False) or text.flag("bias", default=False)
    shape = attention_shape(text, qkv_bias=text.flag("qkv_bias", default=bias), output_bias=bias)
    return Style(
        shape=shape,
        mlp=gated_mlp(
            shape.hidden_size, text.integer("intermediate_size"), has_bias=text.flag("mlp_bias", default=False)
        ),
        vocabulary=vocabulary(text, ties=text.flag("tie_word_embeddings", default=False)),
        rope=(rope_cache(text, shape.head_size),),
        windows=layer_windows(text, text.integer("num_hidden_layers")),
        is_causal=text.flag("is_causal", default=True),
    )


def build_style(style: Style) -> Built:
    """The whole inventory of a style."""
    hidden = style.shape.hidden_size
    modules = (
        *attention(
            style.shape, prefix=style.attention_prefix, qkv=style.qkv, output=style.output, fused=style.fused_qkv
        ),
        *style.mlp,
        *(layer_norms(hidden, *style.norms, has_bias=style.norm_bias) if style.has_norm_weight else ()),
        *style.extra,
        *style.rope,
    )
    caches = [kv_cache(style.shape, window) if style.is_causal else NO_CACHE for window in style.windows]
    layers = build_layers(len(caches), style.layers, lambda index: (modules, (caches[index],)))
    stage: Literal["every", "last"] = "every" if style.final_norm_on_every_stage else "last"
    last_norm = final_norm(hidden, name=style.final_norm, has_bias=style.norm_bias, stage=stage)
    parts = (*style.vocabulary.parts(), *((last_norm,) if style.has_norm_weight else ()), *style.parts)
    return Built(layers=layers, parts=parts, ties_embeddings=style.vocabulary.ties)


def styled(restyle: Restyle | None = None, *, transformers_since: int | None = None) -> Builder:
    """A builder of the Llama style as `restyle` changes it; from that release on the Transformers backend runs it."""

    def build(family: FamilyInput) -> Built:
        style = llama_style(family.text)
        if restyle is not None:
            style = restyle(family.text, style)
        if transformers_since is not None and family.vllm_minor >= transformers_since:
            style = on_transformers(style)
        return build_style(style)

    return build


def on_every_stage(style: Style) -> Style:
    """The style of a class that builds both tables and the last norm whatever its pipeline rank."""
    tables = replace(style.vocabulary, embedding_on_every_stage=True, head_on_every_stage=True)
    return replace(style, vocabulary=tables, final_norm_on_every_stage=True)


def on_transformers(style: Style) -> Style:
    """The style of a class on the Transformers backend: two vectors of inverse frequencies in place of each rotary cache."""
    return replace(style, rope=tuple(inverse_frequencies(cache.shape[1], 2 * cache.repeat) for cache in style.rope))


def positions(name: str, num_rows: int, dim: int) -> Part:
    """Learned position embeddings, whole on every rank and every pipeline stage."""
    return Part(prefix="", stage="every", modules=(Tensor(name=name, role="embedding", shape=(num_rows, dim)),))


def no_windows(text: ConfigView) -> Windows:
    """No window on any layer."""
    return (None,) * text.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def moved(family: FamilyInput, style: Style, since: int) -> Style:
    """The style, on the Transformers backend from that release on."""
    return on_transformers(style) if family.vllm_minor >= since else style


def own_table(
    text: ConfigView, embedding: str, head: str = "lm_head", *, ties: bool, head_bias: bool = False
) -> Vocabulary:
    """The tables of a class that builds both on every pipeline stage, under names of its own."""
    return vocabulary(
        text,
        ties=text.flag("tie_word_embeddings", default=ties),
        embedding=embedding,
        head=head,
        head_bias=head_bias,
        embedding_on_every_stage=True,
        head_on_every_stage=True,
    )
