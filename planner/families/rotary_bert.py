"""BERT with rotary positions, as embedding models and rerankers: Nomic, GTE and Snowflake Arctic. They keep no cache.

Source: bert_with_rope.py and config.py (what each class makes of its config) of vLLM 0.33.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    NO_CACHE,
    AttentionShape,
    attention,
    build_layers,
    gated_mlp,
    layer_norms,
    norm,
    plain_mlp,
    replicated_linear,
)
from planner.families.classifiers import num_labels
from planner.families.rope import rope_cache
from planner.inventory import Embedding, Experts, Module, Part, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    hidden: int
    wide: int
    heads: int
    layers: int
    has_bias: bool
    is_gated: bool


def _block(sizes: _Sizes, mlp: tuple[Module, ...]) -> tuple[Module, ...]:
    shape = AttentionShape(
        hidden_size=sizes.hidden,
        num_heads=sizes.heads,
        num_kv_heads=sizes.heads,
        head_size=sizes.hidden // sizes.heads,
        qkv_bias=sizes.has_bias,
        output_bias=sizes.has_bias,
    )
    projections = attention(shape, prefix="attn", qkv=("Wqkv",), output="out_proj")
    return (*projections, *mlp, *layer_norms(sizes.hidden, "attn_ln", "mlp_ln", has_bias=True))


def _mlp(sizes: _Sizes, *, gate_has_bias: bool) -> tuple[Module, ...]:
    if not sizes.is_gated:
        return plain_mlp(sizes.hidden, sizes.wide, up="mlp.up_proj", down="mlp.down_proj", has_bias=sizes.has_bias)
    up, down = gated_mlp(sizes.hidden, sizes.wide, has_bias=sizes.has_bias)
    return (replace(up, has_bias=gate_has_bias), down)


def _parts(view: ConfigView, hidden: int) -> tuple[Part, ...]:
    types = view.integer("type_vocab_size", default=0, least=0)
    tables: tuple[Module, ...] = (
        Embedding(name="word_embeddings", role="embedding", num_rows=view.integer("vocab_size"), dim=hidden),
        *(
            Embedding(name="token_type_embeddings", role="embedding", num_rows=types, dim=hidden)
            for _ in range(types > 0)
        ),
        *norm("LayerNorm", hidden, has_bias=True),
    )
    return (Part(prefix="embeddings", stage="every", modules=tables),)


def _nomic_experts(view: ConfigView, sizes: _Sizes) -> tuple[Module, ...]:
    """Nomic's experts, without gates, biases of their own or quantisation."""
    count = view.integer("num_experts")
    experts = Experts(
        name="mlp",
        num_experts=count,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.wide,
        top_k=view.integer("moe_top_k", default=2),
        prefixes=("mlp",),
        is_gated=False,
        quantizable=False,
    )
    return (
        replace(replicated_linear("mlp.router", sizes.hidden, count, role="router"), quantizable=False),
        experts,
        Tensor(name="mlp.bias", role="experts", shape=(sizes.hidden,)),
    )


def build_nomic(given: FamilyInput) -> Built:
    """Nomic Embed: gated MLPs in v1, plain ones and experts in every other layer in v2."""
    view = given.text
    sizes = _Sizes(
        hidden=view.integer("n_embd", "hidden_size"),
        wide=view.integer("n_inner", "intermediate_size"),
        heads=view.integer("num_attention_heads", "n_head", default=12),
        layers=view.integer("n_layer", "num_hidden_layers"),
        has_bias=view.flag("qkv_proj_bias", False),
        is_gated=view.text("activation_function", "swiglu") == "swiglu",
    )
    rotary = rope_cache(
        view, sizes.hidden // sizes.heads, max_position=view.integer("max_position_embeddings", default=2048)
    )
    plain = (*_block(sizes, _mlp(sizes, gate_has_bias=sizes.has_bias)), rotary)
    every = view.integer("moe_every_n_layers", default=0, least=0)
    mixed = (*_block(sizes, _nomic_experts(view, sizes)), rotary) if every else plain
    layers = build_layers(
        sizes.layers, "encoder.layers", lambda index: (mixed if every and index % every == 1 else plain, (NO_CACHE,))
    )
    return Built(layers=layers, parts=_parts(view, sizes.hidden), is_moe=bool(every), intermediate_size=sizes.wide)


def build_gte(given: FamilyInput) -> Built:
    """GTE and Snowflake Arctic Embed 2: gated MLPs whose fused gate and up have no bias."""
    view = given.text
    sizes = _Sizes(
        hidden=view.integer("hidden_size"),
        wide=view.integer("intermediate_size"),
        heads=view.integer("num_attention_heads"),
        layers=view.integer("num_hidden_layers"),
        has_bias=True,
        is_gated=True,
    )
    rotary = rope_cache(view, sizes.hidden // sizes.heads)
    block = (*_block(sizes, _mlp(sizes, gate_has_bias=False)), rotary)
    layers = build_layers(sizes.layers, "encoder.layer", lambda _: (block, (NO_CACHE,)))
    return Built(layers=layers, parts=_parts(view, sizes.hidden), intermediate_size=sizes.wide)


def build_gte_classifier(given: FamilyInput) -> Built:
    """A GTE reranker: a pooler and a classifier in float32."""
    hidden = given.text.integer("hidden_size")
    linears = (
        replicated_linear("pooler.dense", hidden, hidden, role="head", has_bias=True),
        replicated_linear("classifier", hidden, num_labels(given), role="head", has_bias=True),
    )
    modules = tuple(replace(linear, dtype="float32", quantizable=False) for linear in linears)
    built = build_gte(given)
    return replace(built, parts=(*built.parts, Part(prefix="", stage="every", modules=modules)))


BUILDERS: dict[str, Builder] = {
    "GteModel": build_gte,
    "GteNewForSequenceClassification": build_gte_classifier,
    "GteNewModel": build_gte,
    "NomicBertModel": build_nomic,
}
