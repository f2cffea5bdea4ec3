"""Whisper, with its encoder, decoder and cross attention, and encoders alone (BERT, RoBERTa, ModernBERT), which keep no cache.

Sources: whisper.py, bert.py, roberta.py and modernbert.py of vLLM 0.33.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.audio_models import whisper_encoder
from planner.families.blocks import (
    NO_CACHE,
    AttentionShape,
    attention,
    attention_scales,
    build_layers,
    column_linear,
    kv_cache,
    layer_norms,
    norm,
    plain_mlp,
    row_linear,
)
from planner.families.rope import rope_cache
from planner.inventory import Buffer, Cache, Embedding, EncoderFacts, Linear, Module, Part, Tensor


def build_whisper(given: FamilyInput) -> Built:
    """Whisper: cross attention keeps the encoder's keys and values; the output table is the decoder's input table."""
    view = given.root
    hidden, heads = view.integer("d_model"), view.integer("decoder_attention_heads")
    positions = view.integer("max_source_positions", default=1500)
    shape = AttentionShape(
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=heads,
        head_size=hidden // heads,
        qkv_bias=True,  # vLLM's fused projection has one for the key too, which Whisper lacks
        output_bias=True,
    )
    modules = (
        *attention(shape, output="out_proj"),
        *_cross_attention(shape),
        *plain_mlp(hidden, view.integer("decoder_ffn_dim"), up="fc1", down="fc2", has_bias=True),
        *layer_norms(hidden, "self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm", has_bias=True),
    )
    cross = Cache(kind="cross", num_kv_heads=heads, head_size=shape.head_size)
    return Built(
        layers=build_layers(
            view.integer("decoder_layers"), "model.decoder.layers", lambda _: (modules, (kv_cache(shape), cross))
        ),
        parts=_whisper_parts(view, hidden),
        is_encoder_decoder=True,
        is_multimodal=True,
        ties_embeddings=True,
        encoders=(_whisper_facts(view, hidden, positions),),
        max_encoder_tokens=positions,
        intermediate_size=view.integer("decoder_ffn_dim"),
    )


def _cross_attention(shape: AttentionShape) -> tuple[Module, ...]:
    fused, output, *_ = attention(shape, prefix="encoder_attn", output="out_proj")
    if not isinstance(fused, Linear):
        raise TypeError("attention() starts with the fused projection")
    keys = ("encoder_attn.k_proj", "encoder_attn.v_proj")
    query = column_linear("encoder_attn.q_proj", shape.hidden_size, shape.q_size, role="attention", has_bias=True)
    pair = column_linear(
        "encoder_attn.kv_proj", shape.hidden_size, shape.kv_size, shape.kv_size, role="attention", has_bias=True
    )
    return (query, replace(pair, prefixes=keys), output, attention_scales())


def _whisper_parts(view: ConfigView, hidden: int) -> tuple[Part, ...]:
    table = Embedding(
        name="embed_tokens",
        role="embedding",
        num_rows=view.integer("vocab_size"),
        dim=hidden,
        is_padded=False,
        is_sharded=False,
    )
    positions = Tensor(
        name="embed_positions", role="embedding", shape=(view.integer("max_target_positions", default=448), hidden)
    )
    last_norm = norm("layer_norm", hidden, has_bias=True)
    return (
        Part(prefix="model.encoder", stage="every", modules=whisper_encoder(view)),
        Part(prefix="model.decoder", stage="every", modules=(table, positions, *last_norm)),
    )


def _whisper_facts(view: ConfigView, hidden: int, positions: int) -> EncoderFacts:
    return EncoderFacts(
        modality="audio",
        hidden_size=hidden,
        intermediate_size=view.integer("encoder_ffn_dim"),
        num_layers=view.integer("encoder_layers"),
        num_heads=view.integer("encoder_attention_heads"),
        patch_tokens_per_item=positions,
        output_tokens_per_item=positions,
    )


# Encoders alone: attention over the whole input, no cache.


def _encoder_shape(view: ConfigView, *, bias: bool) -> AttentionShape:
    hidden, heads = view.integer("hidden_size"), view.integer("num_attention_heads")
    return AttentionShape(
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=heads,
        head_size=hidden // heads,
        qkv_bias=bias,
        output_bias=bias,
    )


def build_bert(given: FamilyInput) -> Built:
    """BERT and RoBERTa as embedding models; word, position and type tables are all divided by TP."""
    view = given.text
    hidden, positions = view.integer("hidden_size"), view.integer("max_position_embeddings", default=512)
    fused, _, scales = attention(
        _encoder_shape(view, bias=True), prefix="attention.self", qkv=("query", "key", "value")
    )
    modules = (
        fused,
        row_linear("attention.output.dense", hidden, hidden, role="attention", has_bias=True),
        scales,
        *plain_mlp(
            hidden, view.integer("intermediate_size"), up="intermediate.dense", down="output.dense", has_bias=True
        ),
        *layer_norms(hidden, "attention.output.LayerNorm", "output.LayerNorm", has_bias=True),
    )
    tables: tuple[Module, ...] = (
        _table("word_embeddings", view.integer("vocab_size"), hidden),
        _table("position_embeddings", positions, hidden),
        _table("token_type_embeddings", view.integer("type_vocab_size", default=2), hidden),
        *norm("LayerNorm", hidden, has_bias=True),
        Buffer(name="position_ids", shape=(1, positions), dtype="int64"),
    )
    return Built(
        layers=build_layers(view.integer("num_hidden_layers"), "encoder.layer", lambda _: (modules, (NO_CACHE,))),
        parts=(Part(prefix="embeddings", stage="every", modules=tables),),
    )


def _table(name: str, rows: int, hidden: int) -> Embedding:
    return Embedding(name=name, role="embedding", num_rows=rows, dim=hidden)


def build_modernbert(given: FamilyInput) -> Built:
    """ModernBERT: global attention in every few layers, local in the rest, with a rotary cache for each."""
    view = given.text
    hidden, wide = view.integer("hidden_size"), view.integer("intermediate_size")
    shape = _encoder_shape(view, bias=view.flag("attention_bias", False))
    fused, _, scales = attention(shape, prefix="attn", fused="Wqkv", qkv=("Wqkv",))
    bias = view.flag("mlp_bias", False)
    up = column_linear("mlp.Wi", hidden, 2 * wide, has_bias=bias)
    block: tuple[Module, ...] = (
        fused,
        row_linear("attn.Wo", hidden, hidden, role="attention", has_bias=shape.output_bias),
        scales,
        up,
        row_linear("mlp.Wo", wide, hidden, has_bias=bias),
        *layer_norms(hidden, "mlp_norm", has_bias=view.flag("norm_bias", False)),
    )
    entry = layer_norms(hidden, "attn_norm", has_bias=view.flag("norm_bias", False))  # the first layer has none
    rotary = rope_cache(view, shape.head_size, settings={"rope_type": "default"})
    local = replace(rotary, name="local_rotary_cache")
    with_bias = view.flag("norm_bias", False)
    parts = (
        Part(
            prefix="embeddings",
            stage="every",
            modules=(
                _table("tok_embeddings", view.integer("vocab_size"), hidden),
                *norm("norm", hidden, has_bias=with_bias),
            ),
        ),
        Part(prefix="", stage="every", modules=(*norm("final_norm", hidden, has_bias=with_bias), rotary, local)),
    )
    return Built(
        layers=build_layers(
            view.integer("num_hidden_layers"),
            "layers",
            lambda index: ((*block, *(entry if index else ())), (NO_CACHE,)),
        ),
        parts=parts,
        intermediate_size=wide,
    )


BUILDERS: dict[str, Builder] = {
    "BertModel": build_bert,
    "ModernBertModel": build_modernbert,
    "RobertaModel": build_bert,
    "WhisperForConditionalGeneration": build_whisper,
    "XLMRobertaModel": build_bert,
}
