"""Dense decoders: one attention and one MLP a layer. A `Style` says what sets a class apart from Llama."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    AttentionShape,
    Vocabulary,
    attention,
    attention_shape,
    build_layers,
    final_norm,
    gated_mlp,
    kv_cache,
    layer_norms,
    plain_mlp,
    vocabulary,
)
from planner.families.rope import inverse_frequencies, rope_cache
from planner.inventory import Buffer, Module, Part, Tensor

Rope = Literal["cache", "inverse_frequencies", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What one model class builds. Names are the checkpoint's; sizes come from the config through `shape` and `mlp`."""

    shape: AttentionShape
    mlp: tuple[Module, ...]
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    norm_bias: bool = False
    vocabulary: Vocabulary
    final_norm: str = "model.norm"
    final_norm_on_every_stage: bool = False
    layers: str = "model.layers"
    attention_prefix: str = "self_attn"
    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    fused_qkv: str = "qkv_proj"
    output: str = "o_proj"
    rope: tuple[Buffer, ...] = ()
    extra: tuple[Module, ...] = ()  # of each layer


Restyle = Callable[[ConfigView, Style], Style]


def layer_windows(text: ConfigView, num_layers: int) -> tuple[int | None, ...]:
    """Each layer's window: `layer_types` where given, else `sliding_window` on all layers (0 or null: none)."""
    is_used = text.flag("use_sliding_window", default=True)  # Qwen2 and Qwen3 state a window that they do not use
    window = (text.optional_integer("sliding_window") or None) if is_used else None
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
    mlp = gated_mlp(shape.hidden_size, text.integer("intermediate_size"), has_bias=text.flag("mlp_bias", default=False))
    return Style(
        shape=shape,
        mlp=mlp,
        vocabulary=vocabulary(text, ties=text.flag("tie_word_embeddings", default=False)),
        rope=(rope_cache(text, shape.head_size),),
    )


def build_style(style: Style, num_layers: int, windows: tuple[int | None, ...]) -> Built:
    """The whole inventory of a style."""
    hidden = style.shape.hidden_size
    modules = (
        *attention(
            style.shape,
            prefix=style.attention_prefix,
            qkv=style.qkv,
            output=style.output,
            fused=style.fused_qkv,
        ),
        *style.mlp,
        *layer_norms(hidden, *style.norms, has_bias=style.norm_bias),
        *style.extra,
        *style.rope,
    )
    layers = build_layers(num_layers, style.layers, lambda index: (modules, (kv_cache(style.shape, windows[index]),)))
    norm_stage: Literal["every", "last"] = "every" if style.final_norm_on_every_stage else "last"
    parts = (
        *style.vocabulary.parts(),
        final_norm(hidden, name=style.final_norm, has_bias=style.norm_bias, stage=norm_stage),
    )
    return Built(layers=layers, parts=parts, ties_embeddings=style.vocabulary.ties)


def _builder(restyle: Restyle | None = None) -> Builder:
    def build(family: FamilyInput) -> Built:
        text = family.text
        style = llama_style(text)
        if restyle is not None:
            style = restyle(text, style)
        num_layers = text.integer("num_hidden_layers")
        return build_style(style, num_layers, layer_windows(text, num_layers))

    return build


llama_like = _builder()


def _on_every_stage(style: Style) -> Style:
    """Classes that build both tables and the last norm on each pipeline rank."""
    tables = replace(style.vocabulary, embedding_on_every_stage=True, head_on_every_stage=True)
    return replace(style, vocabulary=tables, final_norm_on_every_stage=True)


def _transformers(style: Style) -> Style:
    """A class that runs on the Transformers backend keeps inverse frequencies in place of a rotary cache."""
    sizes = {buffer.shape[1] for buffer in style.rope}
    return replace(style, rope=tuple(inverse_frequencies(size) for size in sorted(sizes)))


def _qwen2(text: ConfigView, style: Style) -> Style:
    qk_norm = "head" if text.flag("qk_norm", default=False) else None
    head_size = style.shape.hidden_size // style.shape.num_heads
    shape = replace(style.shape, qkv_bias=True, output_bias=False, qk_norm=qk_norm, head_size=head_size)
    return replace(style, shape=shape, rope=(rope_cache(text, head_size),))


def _qwen3(text: ConfigView, style: Style) -> Style:
    del text
    return replace(style, shape=replace(style.shape, qk_norm="head", output_bias=False))


def _phi3(text: ConfigView, style: Style) -> Style:
    del text
    mlp = gated_mlp(
        style.shape.hidden_size,
        style.mlp[1].in_features,  # type: ignore[union-attr]  # the down projection
        names=("gate_up_proj", "gate_up_proj", "down_proj"),
    )
    return replace(style, qkv=("qkv_proj",), mlp=mlp)


def _olmo2(text: ConfigView, style: Style) -> Style:
    del text
    style = replace(style, shape=replace(style.shape, qk_norm="full"))
    return _transformers(replace(style, norms=("post_attention_layernorm", "post_feedforward_layernorm")))


def _plain_transformers(text: ConfigView, style: Style) -> Style:
    del text
    return _transformers(style)


def _seed_oss(text: ConfigView, style: Style) -> Style:
    bias = text.flag("attention_out_bias", default=False)
    return _transformers(replace(style, shape=replace(style.shape, output_bias=bias)))


def _gpt2(family: FamilyInput) -> Built:
    text = family.text
    hidden = text.integer("n_embd", "hidden_size")
    inner = text.integer("n_inner", default=4 * hidden)
    shape = attention_shape(text, qkv_bias=True, output_bias=True)
    style = Style(
        shape=shape,
        mlp=plain_mlp(hidden, inner, up="mlp.c_fc", down="mlp.c_proj", has_bias=True),
        norms=("ln_1", "ln_2"),
        norm_bias=True,
        vocabulary=Vocabulary(
            num_rows=text.integer("vocab_size"),
            dim=hidden,
            ties=text.flag("tie_word_embeddings", default=True),
            embedding="transformer.wte",
            embedding_on_every_stage=True,
            head_on_every_stage=True,
        ),
        final_norm="transformer.ln_f",
        final_norm_on_every_stage=True,
        layers="transformer.h",
        attention_prefix="attn",
        qkv=("c_attn",),
        fused_qkv="c_attn",
        output="c_proj",
    )
    num_layers = text.integer("n_layer", "num_hidden_layers")
    built = build_style(style, num_layers, (None,) * num_layers)
    return _with_positions(built, "transformer.wpe", text.integer("n_positions", "max_position_embeddings"), hidden)


def _with_positions(built: Built, name: str, num_rows: int, dim: int) -> Built:
    """Learned position embeddings, whole on every rank and every pipeline stage."""
    table = Tensor(name=name, role="embedding", shape=(num_rows, dim))
    return replace(built, parts=(*built.parts, Part(prefix="", stage="every", modules=(table,))))


BUILDERS: dict[str, Builder] = {
    **dict.fromkeys(("LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "GraniteForCausalLM"), llama_like),
    "Qwen2ForCausalLM": _builder(_qwen2),
    "Qwen3ForCausalLM": _builder(_qwen3),
    "Phi3ForCausalLM": _builder(_phi3),
    "Olmo2ForCausalLM": _builder(_olmo2),
    "SeedOssForCausalLM": _builder(_seed_oss),
    "GPT2LMHeadModel": _gpt2,
    "SmolLM3ForCausalLM": _builder(_plain_transformers),
}
