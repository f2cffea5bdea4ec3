"""Llama 4's language part: experts in every n-th layer, chunked attention but for the layers without rotary position.

Read from vLLM 0.33 llama4.py. Its q/k norm has no weight. The vision tower is the multimodal builder's.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import (
    attention,
    attention_shape,
    build_layers,
    final_norm,
    gated_mlp,
    kv_cache,
    layer_norms,
    vocabulary,
)
from planner.families.expert_layers import ExpertBlock
from planner.families.rope import rope_cache
from planner.inventory import Cache, Module

ROTARY_INTERVAL = 4  # transformers' Llama4TextConfig: every fourth layer goes without, unless the config lists them


def llama4_language_model(text: ConfigView) -> Built:
    """What vLLM builds for the language part of a Llama 4 config."""
    shape = attention_shape(text)
    width = shape.hidden_size
    sparse_step = text.integer("interleave_moe_layer_step", default=1, least=0)
    has_rotary = _rotary_layers(text)
    chunk = text.integer("attention_chunk_size", default=8192, least=0)
    experts, rotary = _experts(text), rope_cache(text, shape.head_size)
    dense = gated_mlp(width, text.integer("intermediate_size_mlp", default=16384), prefix="feed_forward")

    def build(index: int) -> tuple[tuple[Module, ...], tuple[Cache, ...]]:
        is_sparse = sparse_step > 0 and (index + 1) % sparse_step == 0
        feed_forward = experts.modules(width) if is_sparse else dense
        norms = layer_norms(width, "input_layernorm", "post_attention_layernorm")
        if not has_rotary(index):
            return (*attention(shape), *feed_forward, *norms), (kv_cache(shape),)
        cache = _chunked(kv_cache(shape), chunk) if chunk else kv_cache(shape)
        return (*attention(shape), *feed_forward, *norms, rotary), (cache,)

    ties = text.flag("tie_word_embeddings", default=False)
    return Built(
        layers=build_layers(text.integer("num_hidden_layers"), "model.layers", build),
        parts=(*vocabulary(text, ties=ties).parts(), final_norm(width)),
        is_moe=True,
        ties_embeddings=ties,
        intermediate_size=text.integer("intermediate_size_mlp", default=16384),
    )


def _experts(text: ConfigView) -> ExpertBlock:
    size = text.integer("intermediate_size")
    return ExpertBlock(
        num_experts=text.integer("num_local_experts"),
        intermediate_size=size,
        top_k=text.integer("num_experts_per_tok", default=1),
        prefix="feed_forward",
        router_name="router",
        shared_intermediate_size=size,
        shared_prefix="feed_forward.shared_expert",
        is_shared_whole_in_sequence_parallel=True,
    )


def _rotary_layers(text: ConfigView) -> Callable[[int], bool]:
    listed = text.items("no_rope_layers")
    if listed:
        return lambda index: index >= len(listed) or listed[index] != 0
    interval = text.integer("no_rope_layer_interval", default=ROTARY_INTERVAL)
    return lambda index: (index + 1) % interval != 0


def _chunked(cache: Cache, chunk: int) -> Cache:
    return Cache(kind="chunked", num_kv_heads=cache.num_kv_heads, head_size=cache.head_size, chunk_size=chunk)


def _llama4(given: FamilyInput) -> Built:
    return llama4_language_model(given.text)


BUILDERS: dict[str, Builder] = {"Llama4ForCausalLM": _llama4}
