"""The vision encoders of Qwen2-VL, Qwen2.5-VL, Qwen3-VL (and Qwen3.5), and of GLM-4V, which are cut from one cloth.

Sources: qwen2_vl.py, qwen2_5_vl.py, qwen3_vl.py and glm4_1v.py of vLLM 0.33.
"""

from __future__ import annotations

from planner.config_view import ConfigView
from planner.families.blocks import column_linear, norm, row_linear
from planner.families.vision_towers import EncoderStack, patch_count, vision_tensor
from planner.inventory import Buffer, EncoderFacts, Linear, Module

_VISION_POSITIONS = 8192  # rows of the towers' rotary cache, fixed in each class
# Pixels of the largest image the processors of these models let through (their preprocessor_config.json as published).
_LARGEST_IMAGE_PIXELS = 12_845_056  # Qwen2-VL and Qwen2.5-VL
_LARGEST_IMAGE_PIXELS_QWEN3 = 16_777_216


def vision_rotary_cache(head_size: int) -> Buffer:
    """The cache over half a head that all layers of a Qwen tower share."""
    return Buffer(name="vision_rotary_cache", shape=(_VISION_POSITIONS, head_size // 2), is_shared=True)


def _patch_size(view: ConfigView, hidden: int) -> int:
    """Weights of the patch convolution: whole frames of `temporal_patch_size` pictures."""
    patch = view.integer("patch_size")
    return (
        hidden
        * view.integer("in_channels", "in_chans", default=3)
        * view.integer("temporal_patch_size", default=2)
        * patch**2
    )


def _merge(view: ConfigView) -> int:
    return view.integer("spatial_merge_size", default=2) ** 2


def _merger(name: str, size_in: int, size_out: int, linears: tuple[str, str]) -> tuple[Linear, Linear]:
    up, down = linears
    return (
        column_linear(f"{name}.{up}", size_in, size_in, role="projector", has_bias=True),
        row_linear(f"{name}.{down}", size_in, size_out, role="projector", has_bias=True),
    )


def qwen2_vl_tower(view: ConfigView) -> tuple[Module, ...]:
    """Qwen2-VL's tower; its `hidden_size` is the language model's, its own width is `embed_dim`."""
    hidden, heads = view.integer("embed_dim"), view.integer("num_heads")
    stack = EncoderStack(
        depth=view.integer("depth"),
        hidden_size=hidden,
        intermediate_size=int(hidden * view.number("mlp_ratio", 4)),
        num_heads=heads,
        prefix="blocks",
        qkv="attn.qkv",
        output="attn.proj",
        norms=("norm1", "norm2"),
    )
    return (
        vision_tensor("patch_embed.proj", _patch_size(view, hidden)),
        *stack.modules(),
        *norm("merger.ln_q", hidden, has_bias=True),
        *_merger("merger", hidden * _merge(view), view.integer("hidden_size"), ("mlp.0", "mlp.2")),
        vision_rotary_cache(hidden // heads),
    )


def qwen25_vl_tower(view: ConfigView) -> tuple[Module, ...]:
    """Qwen2.5-VL's tower (and Qwen2.5-Omni's, and EXAONE 4.5's with grouped heads): gated MLPs and norms without bias."""
    hidden, heads = view.integer("hidden_size"), view.integer("num_heads")
    stack = EncoderStack(
        depth=view.integer("depth"),
        hidden_size=hidden,
        intermediate_size=view.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=view.optional_integer("num_key_value_heads", least=1),
        prefix="blocks",
        qkv="attn.qkv",
        output="attn.proj",
        up="mlp.up_proj",
        gate="mlp.gate_proj",
        down="mlp.down_proj",
        norms=("norm1", "norm2"),
        norms_have_bias=False,
    )
    return (
        vision_tensor("patch_embed.proj", _patch_size(view, hidden)),
        *stack.modules(),
        *norm("merger.ln_q", hidden),
        *_merger("merger", hidden * _merge(view), view.integer("out_hidden_size"), ("mlp.0", "mlp.2")),
        vision_rotary_cache(hidden // heads),
    )


def qwen3_vl_tower(view: ConfigView) -> tuple[Module, ...]:
    """Qwen3-VL's tower (and Qwen3.5's), with one more merger per layer that feeds the language model's first layers."""
    hidden, heads = view.integer("hidden_size"), view.integer("num_heads")
    stack = EncoderStack(
        depth=view.integer("depth"),
        hidden_size=hidden,
        intermediate_size=view.integer("intermediate_size"),
        num_heads=heads,
        prefix="blocks",
        qkv="attn.qkv",
        output="attn.proj",
        up="mlp.linear_fc1",
        down="mlp.linear_fc2",
        norms=("norm1", "norm2"),
    )
    wide, out = hidden * _merge(view), view.integer("out_hidden_size")
    fused = ("linear_fc1", "linear_fc2")
    extra: list[Module] = []
    for index in range(len(view.items("deepstack_visual_indexes") or [])):
        name = f"deepstack_merger_list.{index}"
        extra += [*norm(f"{name}.norm", wide, has_bias=True), *_merger(name, wide, out, fused)]
    return (
        vision_tensor("patch_embed.proj", _patch_size(view, hidden)),
        vision_tensor("patch_embed.proj.bias", hidden),
        vision_tensor("pos_embed", view.integer("num_position_embeddings"), hidden),
        *stack.modules(),
        *norm("merger.norm", hidden, has_bias=True),
        *_merger("merger", wide, out, fused),
        *extra,
        vision_rotary_cache(hidden // heads),
    )


def glm4v_tower(view: ConfigView) -> tuple[Module, ...]:
    """GLM-4.1V's tower: the MLP of a block is as wide as the language model, `intermediate_size` is the merger's."""
    hidden, heads, out = view.integer("hidden_size"), view.integer("num_heads"), view.integer("out_hidden_size")
    merge, context = view.integer("spatial_merge_size", default=2), view.integer("intermediate_size")
    has_bias = view.flag("attention_bias", False)
    stack = EncoderStack(
        depth=view.integer("depth"),
        hidden_size=hidden,
        intermediate_size=out,
        num_heads=heads,
        prefix="blocks",
        qkv="attn.qkv",
        output="attn.proj",
        up="mlp.up_proj",
        gate="mlp.gate_proj",
        down="mlp.down_proj",
        norms=("norm1", "norm2"),
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        has_mlp_bias=False,
        norms_have_bias=False,
    )
    positions = patch_count(view)
    return (
        vision_tensor("patch_embed.proj", _patch_size(view, hidden)),
        vision_tensor("patch_embed.proj.bias", hidden),
        *stack.modules(),
        column_linear("merger.proj", out, out, role="projector"),
        *norm("merger.post_projection_norm", out, has_bias=True),
        column_linear("merger.gate_up_proj", out, context, context, role="projector"),
        row_linear("merger.down_proj", context, out, role="projector"),
        vision_tensor("embeddings.position_embedding", positions, hidden),
        Buffer(name="embeddings.position_ids", shape=(1, positions), dtype="int64"),
        *norm("post_conv_layernorm", hidden),
        *norm("post_layernorm", hidden),
        vision_tensor("downsample", out, hidden * merge**2),
        vision_tensor("downsample.bias", out),
        vision_rotary_cache(hidden // heads),
    )


def qwen_encoder_facts(view: ConfigView, *, is_qwen3: bool) -> EncoderFacts:
    """Sizes for the activation estimate; the largest image is the published processors' pixel limit."""
    hidden = view.integer("embed_dim", "hidden_size")
    pixels = _LARGEST_IMAGE_PIXELS_QWEN3 if is_qwen3 else _LARGEST_IMAGE_PIXELS
    patches = pixels // view.integer("patch_size") ** 2
    return EncoderFacts(
        modality="image",
        hidden_size=hidden,
        intermediate_size=view.integer("intermediate_size", default=int(hidden * view.number("mlp_ratio", 4))),
        num_layers=view.integer("depth"),
        num_heads=view.integer("num_heads"),
        patch_tokens_per_item=patches,
        output_tokens_per_item=patches // _merge(view),
    )
