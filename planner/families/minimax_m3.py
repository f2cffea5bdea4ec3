"""MiniMax-M3: block-sparse attention whose index keys have a cache of their own, experts, and a tower with 3D positions.

Source: models/minimax_m3 of vLLM 0.32.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import attention_shape, column_linear, kv_cache, norm, row_linear
from planner.families.composite import Tower, assemble, part_of, renamed
from planner.families.expert_layers import ExpertBlock
from planner.families.moe_design import MoeDesign, moe_design
from planner.families.moe_design import assemble as assemble_decoder
from planner.families.multimodal import fixed_size_facts
from planner.families.rope import rope_cache
from planner.families.vision_towers import EncoderStack, vision_tensor
from planner.inventory import Buffer, Cache, Layer, Linear, Module

_INDEXED = ("q_proj", "k_proj", "v_proj", "index_q_proj", "index_k_proj")


def _marked(view: ConfigView, key: str) -> frozenset[int]:
    """The layers for which the list `key` holds something other than 0."""
    return frozenset(index for index, value in enumerate(view.items(key) or []) if value)


def _experts(text: ConfigView) -> ExpertBlock:
    width = text.integer("intermediate_size")
    has_bias = text.flag("use_routing_bias", default=False)
    return ExpertBlock(
        num_experts=text.integer("num_local_experts"),
        intermediate_size=width,
        top_k=text.integer("num_experts_per_tok"),
        prefix="block_sparse_moe",
        router_dtype="float32",
        score_bias_name="e_score_correction_bias" if has_bias else None,
        shared_intermediate_size=width * text.integer("n_shared_experts", default=0, least=0),
    )


def _design(text: ConfigView) -> MoeDesign:
    shape = attention_shape(text, qk_norm="head")
    rotary = {"partial_rotary_factor": text.number("partial_rotary_factor", 1.0), "rope_type": "default"}
    num_layers = text.integer("num_hidden_layers")
    sparse = _marked(text, "moe_layer_freq") if text.has("moe_layer_freq") else frozenset(range(num_layers))
    dense_size = text.integer("dense_intermediate_size", default=text.integer("intermediate_size"))
    design = moe_design(text, shape, _experts(text), dense_size)
    return replace(
        design,
        is_sparse=sparse.__contains__,
        window_of=lambda _: None,
        rotary=rope_cache(text, shape.head_size, settings=rotary),
        ties=False,
    )


def _with_index(layer: Layer, text: ConfigView, settings: ConfigView) -> Layer:
    """The layer with index queries and keys in its fused projection and the keys' cache."""
    size, heads = settings.integer("sparse_index_dim"), settings.integer("sparse_num_index_heads")
    shape = attention_shape(text)
    if heads != shape.num_kv_heads:
        raise PlanError(
            "sparse_num_index_heads",
            heads,
            f"config.json: sparse_num_index_heads {heads} must equal the {shape.num_kv_heads} KV heads.",
        )
    modules = tuple(
        replace(
            module,
            out_features=(*module.out_features, heads * size, size),
            max_shards=(0, 0, 0, 0, 1),
            prefixes=tuple(f"self_attn.{name}" for name in _INDEXED),
        )
        if isinstance(module, Linear) and module.parallel == "qkv"
        else module
        for module in layer.modules
    )
    norms = (*norm("self_attn.index_q_norm", size), *norm("self_attn.index_k_norm", size))
    keys = Cache(kind="index_keys", num_kv_heads=1, head_size=size, head_size_v=0)
    return replace(layer, modules=(*modules, *norms), caches=(kv_cache(shape), keys))


def build_text(given: FamilyInput) -> Built:
    """The language model."""
    text = given.text
    built = assemble_decoder(_design(text))
    settings = text.section("sparse_attention_config")
    if settings is None:
        return built
    indexed = _marked(settings, "sparse_attention_freq")
    layers = [_with_index(layer, text, settings) if layer.index in indexed else layer for layer in built.layers]
    return replace(built, layers=tuple(layers))


def _tower(vision: ConfigView) -> tuple[Module, ...]:
    hidden, heads, patch = (vision.integer(key) for key in ("hidden_size", "num_attention_heads", "patch_size"))
    settings = _compression(vision)
    frames = settings.integer("temporal_patch_size", default=2) if settings else 2
    stack = EncoderStack(
        depth=vision.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=vision.integer("intermediate_size"),
        num_heads=heads,
        prefix="encoder.layers",
        projections=tuple(f"self_attn.{name}_proj" for name in "qkv"),
        up="fc1",
        down="fc2",
    )
    axis = 2 * (hidden // heads // 2) // 3 // 2  # rotary frequencies of each of time, height and width
    return (
        vision_tensor(
            "embeddings.patch_embedding", hidden, vision.integer("num_channels", default=3) * frames * patch**2
        ),
        *norm("pre_layrnorm", hidden, has_bias=True),
        *stack.modules(),
        Buffer(name="inv_freq", shape=(axis,), dtype="float32", repeat=3),
    )


def _compression(vision: ConfigView) -> ConfigView | None:
    """How the tower merges patches."""
    return vision.section("img_token_compression_config")


def _mlp(width_in: int, width: int, width_out: int, *, has_bias: bool) -> tuple[Module, ...]:
    return (
        column_linear("linear_1", width_in, width, role="projector", has_bias=has_bias),
        row_linear("linear_2", width, width_out, role="projector", has_bias=has_bias),
    )


def build_multimodal(given: FamilyInput) -> Built:
    """MiniMax-M3 with its tower, projector and patch merger, which are all part of `vision_tower`."""
    vision, hidden = part_of(given, "vision_config"), given.text.integer("hidden_size")
    width = given.root.integer("projector_hidden_size", default=hidden)
    settings = _compression(vision)
    merge = (settings.integer("spatial_merge_size", default=2) if settings else 2) ** 2
    patches = (vision.integer("image_size") // vision.integer("patch_size")) ** 2
    projector = _mlp(
        vision.integer("hidden_size"), width, hidden, has_bias=vision.flag("multimodal_projector_bias", default=True)
    )
    merger = _mlp(hidden * merge, width, hidden, has_bias=vision.flag("patch_merge_bias", default=True))
    towers = [
        Tower(
            prefix="vision_tower.vision_model", modules=_tower(vision), facts=fixed_size_facts(vision, patches // merge)
        ),
        Tower(prefix="multi_modal_projector", modules=projector),
        Tower(prefix="patch_merge_mlp", modules=merger),
    ]
    return assemble(given, renamed(build_text(given), "model.", "language_model.model."), towers)


BUILDERS: dict[str, Builder] = {
    "MiniMaxM3SparseForCausalLM": build_text,
    "MiniMaxM3SparseForConditionalGeneration": build_multimodal,
}
