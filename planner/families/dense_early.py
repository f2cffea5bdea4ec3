"""Dense decoders of 2023 and 2024 with layouts of their own: ChatGLM, Phi-2, StarCoder 2, the first Qwen, Persimmon."""

from __future__ import annotations

from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    AttentionShape,
    Vocabulary,
    attention_shape,
    gated_mlp,
    norm,
    plain_mlp,
    vocabulary,
)
from planner.families.dense_style import (
    Style,
    build_style,
    layer_windows,
    moved,
    no_windows,
    on_every_stage,
    own_table,
)
from planner.families.rope import rope_cache, rope_parameters
from planner.inventory import Module


def _chatglm(family: FamilyInput) -> Built:
    text = family.text
    hidden, heads = text.integer("hidden_size"), text.integer("num_attention_heads")
    bias = text.flag("add_bias_linear", default=False)
    is_grouped = text.flag("multi_query_attention", default=False)
    shape = AttentionShape(
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=text.integer("multi_query_group_num", default=1) if is_grouped else heads,
        head_size=hidden // heads,
        qkv_bias=bias or text.flag("add_qkv_bias", default=False),
        output_bias=bias,
    )
    rope = {"rope_type": "default", "partial_rotary_factor": 0.5}
    names = ("dense_h_to_4h", "dense_h_to_4h", "dense_4h_to_h")
    table = Vocabulary(
        num_rows=text.integer("padded_vocab_size", "vocab_size"),
        dim=hidden,
        ties=text.flag("tie_word_embeddings", default=False),
        embedding="transformer.embedding.word_embeddings",
        head="transformer.output_layer",
    )
    style = Style(
        shape=shape,
        mlp=gated_mlp(hidden, text.integer("ffn_hidden_size"), has_bias=bias, names=names),
        norm_bias=not text.flag("rmsnorm", default=True),
        vocabulary=table,
        final_norm="transformer.encoder.final_layernorm",
        layers="transformer.encoder.layers",
        attention_prefix="self_attention",
        qkv=("query_key_value",),
        fused_qkv="query_key_value",
        output="dense",
        rope=(rope_cache(text, shape.head_size, max_position=text.integer("seq_length", default=8192), settings=rope),),
        windows=no_windows(text),
    )
    return build_style(on_every_stage(style))


def _phi(family: FamilyInput) -> Built:
    """Phi-1 and Phi-2: biases everywhere, one norm, attention and MLP in parallel."""
    text = family.text
    shape = attention_shape(text, qkv_bias=True, output_bias=True)
    norms: tuple[Module, ...] = ()
    if text.flag("qk_layernorm", default=False):
        norms = tuple(
            tensor
            for name in ("self_attn.q_layernorm", "self_attn.k_layernorm")
            for tensor in norm(name, shape.head_size, has_bias=True)
        )
    style = Style(
        shape=shape,
        mlp=plain_mlp(
            shape.hidden_size, text.integer("intermediate_size"), up="mlp.fc1", down="mlp.fc2", has_bias=True
        ),
        norms=("input_layernorm",),
        norm_bias=True,
        vocabulary=vocabulary(text, ties=text.flag("tie_word_embeddings", default=False)),
        final_norm="model.final_layernorm",
        output="dense",
        rope=(rope_cache(text, shape.head_size),),
        windows=no_windows(text),
        extra=norms,
    )
    return build_style(moved(family, style, 32))


def _starcoder2(family: FamilyInput) -> Built:
    text = family.text
    bias = text.flag("use_bias", default=True)
    shape = attention_shape(text, qkv_bias=bias, output_bias=bias)
    style = Style(
        shape=shape,
        mlp=plain_mlp(
            shape.hidden_size, text.integer("intermediate_size"), up="mlp.c_fc", down="mlp.c_proj", has_bias=bias
        ),
        norm_bias=True,
        vocabulary=vocabulary(text, ties=text.flag("tie_word_embeddings", default=True)),
        rope=(rope_cache(text, shape.head_size),),
        windows=layer_windows(text, text.integer("num_hidden_layers")),
    )
    return build_style(moved(family, style, 24))


def _qwen1(family: FamilyInput) -> Built:
    """Qwen (first generation, removed with 0.24): half of intermediate_size for each of gate and up."""
    text = family.text
    hidden = text.integer("hidden_size")
    shape = attention_shape(text, qkv_bias=True)
    style = Style(
        shape=shape,
        mlp=gated_mlp(hidden, text.integer("intermediate_size") // 2, names=("w2", "w1", "c_proj")),
        norms=("ln_1", "ln_2"),
        vocabulary=own_table(text, "transformer.wte", ties=False),
        final_norm="transformer.ln_f",
        layers="transformer.h",
        attention_prefix="attn",
        qkv=("c_attn",),
        fused_qkv="c_attn",
        output="c_proj",
        rope=(rope_cache(text, shape.head_size, max_position=text.integer("max_position_embeddings", default=8192)),),
        windows=no_windows(text),
    )
    return build_style(on_every_stage(style))


def _persimmon(family: FamilyInput) -> Built:
    text = family.text
    shape = attention_shape(text, qkv_bias=True, output_bias=True)
    settings = dict(rope_parameters(text))
    settings.setdefault("partial_rotary_factor", 0.5)
    norms = tuple(
        tensor
        for name in ("self_attn.q_layernorm", "self_attn.k_layernorm")
        for tensor in norm(name, shape.head_size, has_bias=True)
    )
    style = Style(
        shape=shape,
        mlp=plain_mlp(
            shape.hidden_size,
            text.integer("intermediate_size"),
            up="mlp.dense_h_to_4h",
            down="mlp.dense_4h_to_h",
            has_bias=True,
        ),
        norm_bias=True,
        vocabulary=own_table(text, "model.embed_tokens", ties=False),
        final_norm="model.final_layernorm",
        qkv=("query_key_value",),
        fused_qkv="query_key_value",
        output="dense",
        rope=(rope_cache(text, shape.head_size, settings=settings),),
        windows=no_windows(text),
        extra=norms if text.flag("qk_layernorm", default=True) else (),
    )
    return build_style(on_every_stage(style))


EARLY_BUILDERS: dict[str, Builder] = {
    "ChatGLMModel": _chatglm,
    "ChatGLMForConditionalGeneration": _chatglm,
    "PhiForCausalLM": _phi,
    "Starcoder2ForCausalLM": _starcoder2,
    "QWenLMHeadModel": _qwen1,
    "PersimmonForCausalLM": _persimmon,
}
