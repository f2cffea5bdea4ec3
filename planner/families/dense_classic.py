"""Older dense decoders with layouts of their own: GPT-2 and its kin, OPT, BLOOM, Falcon, MPT, ChatGLM, Phi, Qwen 1."""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    AttentionShape,
    attention_shape,
    layer_norms,
    norm,
    plain_mlp,
    replicated_linear,
    vocabulary,
)
from planner.families.dense_style import (
    Style,
    build_style,
    moved,
    no_windows,
    on_every_stage,
    own_table,
    positions,
)
from planner.families.rope import rope_cache, rope_parameters
from planner.inventory import Buffer, Part


def _gpt2(family: FamilyInput) -> Built:
    text = family.text
    hidden = text.integer("n_embd", "hidden_size")
    style = Style(
        shape=attention_shape(text, qkv_bias=True, output_bias=True),
        mlp=plain_mlp(
            hidden, text.integer("n_inner", default=4 * hidden), up="mlp.c_fc", down="mlp.c_proj", has_bias=True
        ),
        norms=("ln_1", "ln_2"),
        norm_bias=True,
        vocabulary=own_table(text, "transformer.wte", ties=True),
        final_norm="transformer.ln_f",
        final_norm_on_every_stage=True,
        layers="transformer.h",
        attention_prefix="attn",
        qkv=("c_attn",),
        fused_qkv="c_attn",
        output="c_proj",
        windows=no_windows(text),
        parts=(positions("transformer.wpe", text.integer("n_positions", "max_position_embeddings"), hidden),),
    )
    return build_style(style)


def _gpt_bigcode(family: FamilyInput) -> Built:
    """StarCoder: GPT-2 with one KV head; since 0.24 on the Transformers backend, with a mask and an undivided MLP."""
    text = family.text
    hidden = text.integer("n_embd", "hidden_size")
    heads = 1 if text.flag("multi_query", default=True) else text.integer("n_head", "num_attention_heads")
    num_positions = text.integer("n_positions", "max_position_embeddings")
    mlp = plain_mlp(
        hidden, text.integer("n_inner", default=4 * hidden), up="mlp.c_fc", down="mlp.c_proj", has_bias=True
    )
    parts = [positions("transformer.wpe", num_positions, hidden)]
    if family.vllm_minor >= 24:
        mlp = (replace(mlp[0], parallel="replicated"), replace(mlp[1], parallel="replicated"))
        mask = Buffer(name="bias", shape=(num_positions, num_positions), dtype="bool")
        parts.append(Part(prefix="transformer", stage="every", modules=(mask,)))
    style = Style(
        shape=attention_shape(text, qkv_bias=True, output_bias=True, num_kv_heads=heads),
        mlp=mlp,
        norms=("ln_1", "ln_2"),
        norm_bias=True,
        vocabulary=replace(
            own_table(text, "transformer.wte", ties=True), embedding_on_every_stage=False, head_on_every_stage=False
        ),
        final_norm="transformer.ln_f",
        layers="transformer.h",
        attention_prefix="attn",
        qkv=("c_attn",),
        fused_qkv="c_attn",
        output="c_proj",
        windows=no_windows(text),
        parts=tuple(parts),
    )
    return build_style(style)


def _gpt_j(family: FamilyInput) -> Built:
    text = family.text
    hidden = text.integer("n_embd", "hidden_size")
    shape = attention_shape(text)
    settings = {"rope_type": "default", "rope_dim": text.integer("rotary_dim", default=shape.head_size)}
    style = Style(
        shape=shape,
        mlp=plain_mlp(
            hidden, text.integer("n_inner", default=4 * hidden), up="mlp.fc_in", down="mlp.fc_out", has_bias=True
        ),
        norms=("ln_1",),
        norm_bias=True,
        vocabulary=own_table(text, "transformer.wte", ties=False, head_bias=True),
        final_norm="transformer.ln_f",
        final_norm_on_every_stage=True,
        layers="transformer.h",
        attention_prefix="attn",
        output="out_proj",
        rope=(rope_cache(text, shape.head_size, settings=settings),),
        windows=no_windows(text),
    )
    return build_style(style)


def _gpt_neox(family: FamilyInput) -> Built:
    text = family.text
    bias = text.flag("attention_bias", default=True)
    shape = attention_shape(text, qkv_bias=bias, output_bias=bias)
    settings = dict(rope_parameters(text))
    settings.setdefault("partial_rotary_factor", 0.25)
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
        vocabulary=vocabulary(
            text, ties=text.flag("tie_word_embeddings", default=False), embedding="gpt_neox.embed_in", head="embed_out"
        ),
        final_norm="gpt_neox.final_layer_norm",
        layers="gpt_neox.layers",
        attention_prefix="attention",
        qkv=("query_key_value",),
        fused_qkv="query_key_value",
        output="dense",
        rope=(rope_cache(text, shape.head_size, settings=settings),),
        windows=no_windows(text),
    )
    return build_style(moved(family, style, 32))


def _opt(family: FamilyInput) -> Built:
    text = family.text
    hidden, bias = text.integer("hidden_size"), text.flag("enable_bias", default=True)
    width = text.integer("word_embed_proj_dim", default=hidden)
    has_norms = text.flag("layer_norm_elementwise_affine", default=True)
    has_last = text.flag("do_layer_norm_before", default=True) and not text.flag(
        "_remove_final_layer_norm", default=False
    )
    style = Style(
        shape=attention_shape(text, qkv_bias=bias, output_bias=bias),
        mlp=plain_mlp(hidden, text.integer("ffn_dim"), up="fc1", down="fc2", has_bias=bias),
        norms=("self_attn_layer_norm", "final_layer_norm"),
        norm_bias=True,
        has_norm_weight=has_norms,
        vocabulary=replace(own_table(text, "model.decoder.embed_tokens", ties=True), dim=width),
        final_norm="model.decoder.final_layer_norm",
        final_norm_on_every_stage=True,
        layers="model.decoder.layers",
        output="out_proj",
        windows=no_windows(text),
        parts=(
            positions("model.decoder.embed_positions", text.integer("max_position_embeddings") + 2, hidden),
            *_opt_projections(hidden, width),
        ),
    )
    built = build_style(style)
    if has_norms and not has_last:
        return replace(built, parts=tuple(part for part in built.parts if not _is_norm_part(part)))
    return built


def _opt_projections(hidden: int, width: int) -> tuple[Part, ...]:
    if hidden == width:
        return ()
    modules = (
        replicated_linear("project_in", width, hidden, role="other"),
        replicated_linear("project_out", hidden, width, role="other"),
    )
    return (Part(prefix="model.decoder", stage="every", modules=modules),)


def _is_norm_part(part: Part) -> bool:
    return all(getattr(module, "role", "") == "norm" for module in part.modules)


def _bloom(family: FamilyInput) -> Built:
    text = family.text
    hidden = text.integer("hidden_size", "n_embed")
    first_norm = Part(
        prefix="", stage="every", modules=norm("transformer.word_embeddings_layernorm", hidden, has_bias=True)
    )
    style = Style(
        shape=attention_shape(text, qkv_bias=True, output_bias=True),
        mlp=plain_mlp(hidden, 4 * hidden, up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h", has_bias=True),
        norm_bias=True,
        vocabulary=own_table(text, "transformer.word_embeddings", ties=True),
        final_norm="transformer.ln_f",
        final_norm_on_every_stage=True,
        layers="transformer.h",
        attention_prefix="self_attention",
        qkv=("query_key_value",),
        fused_qkv="query_key_value",
        output="dense",
        windows=no_windows(text),
        parts=(first_norm,),
    )
    return build_style(style)


def _falcon_heads(text: ConfigView, heads: int) -> int:
    if text.flag("new_decoder_architecture", default=False):
        return text.integer("num_kv_heads", "n_head_kv", default=heads)
    return 1 if text.flag("multi_query", default=True) else heads


def _falcon_norms(text: ConfigView) -> tuple[str, ...]:
    is_new = text.flag("new_decoder_architecture", default=False)
    if not text.flag("parallel_attn", default=True):
        return ("input_layernorm", "post_attention_layernorm")
    is_double = text.integer("num_ln_in_parallel_attn", default=2 if is_new else 1) == 2
    return ("ln_attn", "ln_mlp") if is_double else ("input_layernorm",)


def _falcon(family: FamilyInput) -> Built:
    text = family.text
    hidden, heads = text.integer("hidden_size"), text.integer("num_attention_heads", "n_head")
    bias = text.flag("bias", default=False)
    shape = AttentionShape(
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=_falcon_heads(text, heads),
        head_size=hidden // heads,
        qkv_bias=bias,
        output_bias=bias,
    )
    style = Style(
        shape=shape,
        mlp=plain_mlp(hidden, 4 * hidden, up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h", has_bias=bias),
        norms=_falcon_norms(text),
        norm_bias=True,
        vocabulary=own_table(text, "transformer.word_embeddings", ties=True),
        final_norm="transformer.ln_f",
        layers="transformer.h",
        attention_prefix="self_attention",
        qkv=("query_key_value",),
        fused_qkv="query_key_value",
        output="dense",
        rope=() if text.flag("alibi", default=False) else (rope_cache(text, shape.head_size),),
        windows=no_windows(text),
    )
    return build_style(on_every_stage(style))


def _mpt(family: FamilyInput) -> Built:
    """MPT: removed from vLLM with 0.23; ALiBi or learned positions."""
    text = family.text
    hidden, bias = text.integer("d_model"), not text.flag("no_bias", default=True)
    inner = text.section("attn_config") or ConfigView({})
    heads = text.integer("n_heads")
    style = Style(
        shape=attention_shape(
            text, qkv_bias=bias, output_bias=bias, num_kv_heads=inner.integer("kv_n_heads", default=heads)
        ),
        mlp=plain_mlp(
            hidden,
            hidden * text.integer("expansion_ratio", default=4),
            up="ffn.up_proj",
            down="ffn.down_proj",
            has_bias=bias,
        ),
        norms=("norm_1", "norm_2"),
        norm_bias=bias,
        vocabulary=own_table(text, "transformer.wte", ties=True),
        final_norm="transformer.norm_f",
        layers="transformer.blocks",
        attention_prefix="attn",
        qkv=("Wqkv",),
        fused_qkv="Wqkv",
        output="out_proj",
        windows=no_windows(text),
        extra=layer_norms(hidden, "attn.q_ln", "attn.k_ln", has_bias=bias)
        if inner.flag("qk_ln", default=False)
        else (),
    )
    return build_style(on_every_stage(style))


CLASSIC_BUILDERS: dict[str, Builder] = {
    "GPT2LMHeadModel": _gpt2,
    "GPTBigCodeForCausalLM": _gpt_bigcode,
    "GPTJForCausalLM": _gpt_j,
    "GPTNeoXForCausalLM": _gpt_neox,
    "OPTForCausalLM": _opt,
    "BloomForCausalLM": _bloom,
    "FalconForCausalLM": _falcon,
    "RWForCausalLM": _falcon,
    "MPTForCausalLM": _mpt,
    "MptForCausalLM": _mpt,
}
