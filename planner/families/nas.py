"""Models whose blocks differ one by one (DeciLM, Llama-Nemotron): `block_configs` says which attention and MLP each has."""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    AttentionShape,
    attention,
    attention_shape,
    build_layers,
    final_norm,
    gated_mlp,
    kv_cache,
    layer_norms,
    vocabulary,
)
from planner.families.dense import llama_like
from planner.families.rope import rope_cache
from planner.inventory import Cache, Module
from planner.units import round_up

_MLP_MULTIPLE = 256  # vLLM nemotron_nas.py: two thirds of ffn_mult x hidden size, rounded up to this


def _mlp_width(ffn: ConfigView, hidden_size: int) -> int:
    if ffn.has("ffn_mult"):
        return round_up(int(2 * ffn.number("ffn_mult", 1.0) * hidden_size / 3), _MLP_MULTIPLE)
    return ffn.integer("intermediate_size")


def _blocks(text: ConfigView, num_layers: int) -> tuple[tuple[ConfigView, ConfigView], ...]:
    """Each block's attention and MLP sections."""
    listed = text.items("block_configs") or []
    field = f"{text.path}block_configs"
    if len(listed) != num_layers:
        raise PlanError(
            field,
            len(listed),
            f"config.json: {field} has {len(listed)} blocks for {num_layers} layers; take the file from the repository.",
        )
    blocks = []
    for index, block in enumerate(listed):
        view = ConfigView(block if isinstance(block, dict) else {}, f"{field}.{index}.")
        attention_view, mlp_view = view.section("attention"), view.section("ffn")
        if attention_view is None or mlp_view is None:
            raise PlanError(field, index, f"config.json: {field} {index} lacks its attention or ffn part.")
        blocks.append((attention_view, mlp_view))
    return tuple(blocks)


def _attention_part(
    block: ConfigView, shape: AttentionShape, rotary: Module
) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
    if block.flag("no_op", default=False) or block.flag("replace_with_linear", default=False):
        return (), (Cache(kind="none"),)
    own = replace(shape, num_kv_heads=shape.num_heads // block.integer("n_heads_in_group"))
    modules = (*attention(own), *layer_norms(shape.hidden_size, "input_layernorm"), rotary)
    return modules, (kv_cache(own),)


def _mlp_part(block: ConfigView, text: ConfigView, hidden_size: int) -> tuple[Module, ...]:
    if block.flag("no_op", default=False):
        return ()
    width = _mlp_width(block, hidden_size)
    return (
        *gated_mlp(hidden_size, width, has_bias=text.flag("mlp_bias", default=False)),
        *layer_norms(hidden_size, "post_attention_layernorm"),
    )


def _build(family: FamilyInput) -> Built:
    text = family.text
    if not text.has("block_configs"):
        return llama_like(family)
    bias = text.flag("attention_bias", default=False) or text.flag("bias", default=False)
    shape = attention_shape(text, qkv_bias=text.flag("qkv_bias", default=bias), output_bias=bias)
    num_layers = text.integer("num_hidden_layers")
    blocks = _blocks(text, num_layers)
    rotary = rope_cache(text, shape.head_size)

    def layer(index: int) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
        attention_block, mlp_block = blocks[index]
        modules, caches = _attention_part(attention_block, shape, rotary)
        return (*modules, *_mlp_part(mlp_block, text, shape.hidden_size)), caches

    ties = text.flag("tie_word_embeddings", default=False)
    widths = [_mlp_width(mlp, shape.hidden_size) for _, mlp in blocks if not mlp.flag("no_op", default=False)]
    return Built(
        layers=build_layers(num_layers, "model.layers", layer),
        parts=(*vocabulary(text, ties=ties).parts(), final_norm(shape.hidden_size)),
        ties_embeddings=ties,
        intermediate_size=max(widths, default=1),
    )


BUILDERS: dict[str, Builder] = {"DeciLMForCausalLM": _build}
