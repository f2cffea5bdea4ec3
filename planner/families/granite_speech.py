"""Granite Speech: a conformer over mel frames, a query transformer that shortens its output, and Granite.

Sources: granite_speech.py and blip2.py of vLLM 0.33. LoRA adapters of the checkpoint are not part of the model vLLM builds.
"""

from __future__ import annotations

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import column_linear, norm, row_linear
from planner.families.composite import Tower, assemble, part_of, renamed, text_model
from planner.families.vision_towers import plain_linear, repeated, vision_tensor
from planner.inventory import Buffer, EncoderFacts, Module

# The longest clip that vLLM takes: 8,000,000 samples, two mel frames of 160 samples stacked.
_LONGEST_FRAMES, _LONGEST_TOKENS = 25_000, 5001


def _feed_forward(name: str, hidden: int, wide: int) -> tuple[Module, ...]:
    return (
        *norm(f"{name}.pre_norm", hidden, has_bias=True),
        column_linear(f"{name}.up_proj", hidden, wide, role="audio", has_bias=True),
        row_linear(f"{name}.down_proj", wide, hidden, role="audio", has_bias=True),
    )


def _attention(view: ConfigView, hidden: int) -> tuple[Module, ...]:
    head = view.integer("dim_head", default=128)
    inner = head * view.integer("num_heads")
    return (
        *norm("attn.pre_norm", hidden, has_bias=True),
        *plain_linear("attn.to_q", hidden, inner, role="audio", has_bias=False),
        *plain_linear("attn.to_kv", hidden, 2 * inner, role="audio", has_bias=False),
        *plain_linear("attn.to_out", inner, hidden, role="audio"),
        vision_tensor("attn.rel_pos_emb", 2 * view.integer("max_pos_emb", default=512) + 1, head, role="audio"),
    )


def _convolution(view: ConfigView, hidden: int) -> tuple[Module, ...]:
    inner = hidden * view.integer("conv_expansion_factor", default=2)
    return (
        *norm("conv.norm", hidden, has_bias=True),
        *plain_linear("conv.up_conv", hidden, 2 * inner, role="audio"),
        vision_tensor("conv.depth_conv", inner, view.integer("conv_kernel_size", default=15), role="audio"),
        *norm("conv.batch_norm", inner, has_bias=True),
        Buffer(name="conv.batch_norm.running", shape=(2, inner)),
        Buffer(name="conv.batch_norm.num_batches_tracked", shape=(1,), dtype="int64"),
        *plain_linear("conv.down_conv", inner, hidden, role="audio"),
    )


def _encoder(view: ConfigView) -> tuple[Module, ...]:
    hidden, out = view.integer("hidden_dim"), view.integer("output_dim")
    wide = hidden * view.integer("feedforward_mult", default=4)
    block: tuple[Module, ...] = (
        *_feed_forward("ff1", hidden, wide),
        *_attention(view, hidden),
        *_convolution(view, hidden),
        *_feed_forward("ff2", hidden, wide),
        *norm("post_norm", hidden, has_bias=True),
    )
    return (
        *plain_linear("input_linear", view.integer("input_dim"), hidden, role="audio"),
        *repeated("layers", view.integer("num_layers"), block),
        column_linear("out", hidden, out, role="audio", has_bias=True),
        row_linear("out_mid", out, hidden, role="audio", has_bias=True),
    )


def _query_attention(name: str, hidden: int, size_in: int) -> tuple[Module, ...]:
    return (
        *plain_linear(f"{name}.attention.query", hidden, hidden),
        *plain_linear(f"{name}.attention.key", size_in, hidden),
        *plain_linear(f"{name}.attention.value", size_in, hidden),
        *plain_linear(f"{name}.output.dense", hidden, hidden),
        *norm(f"{name}.output.LayerNorm", hidden, has_bias=True),
    )


def _projector(root: ConfigView, view: ConfigView, text: int) -> tuple[Module, ...]:
    """Learned queries for each window of frames, a query transformer, one linear; whole on every rank."""
    hidden, wide, depth = (
        view.integer("hidden_size"),
        view.integer("intermediate_size"),
        view.integer("num_hidden_layers"),
    )
    queries = root.integer("window_size", default=15) // root.integer("downsample_rate", default=5)
    own: tuple[Module, ...] = (
        *_query_attention("attention", hidden, hidden),
        *plain_linear("intermediate_query.dense", hidden, wide),
        *plain_linear("output_query.dense", wide, hidden),
        *norm("output_query.LayerNorm", hidden, has_bias=True),
    )
    crossing = len(range(0, depth, view.integer("cross_attention_frequency", default=2)))
    cross = _query_attention("crossattention", hidden, view.integer("encoder_hidden_size", default=1408))
    return (
        vision_tensor("query", queries, hidden, role="projector"),
        *norm("qformer.layernorm", hidden, has_bias=True),
        *repeated("qformer.encoder.layer", depth, own),
        *repeated("qformer.encoder.layer", crossing, cross),
        *plain_linear("linear", hidden, text),
    )


def build_granite_speech(given: FamilyInput) -> Built:
    """Granite Speech."""
    encoder, projector = part_of(given, "encoder_config"), part_of(given, "projector_config")
    hidden = encoder.integer("hidden_dim")
    facts = EncoderFacts(
        modality="audio",
        hidden_size=hidden,
        intermediate_size=hidden * encoder.integer("feedforward_mult", default=4),
        num_layers=encoder.integer("num_layers"),
        num_heads=encoder.integer("num_heads"),
        patch_tokens_per_item=_LONGEST_FRAMES,
        output_tokens_per_item=_LONGEST_TOKENS,
    )
    link = _projector(given.root, projector, given.text.integer("hidden_size"))
    towers = [
        Tower(prefix="encoder", modules=_encoder(encoder), modalities=("audio",), facts=facts),
        Tower(prefix="projector", modules=link, modalities=("audio",)),
    ]
    return assemble(given, renamed(text_model(given), "model.", "language_model.model."), towers)


BUILDERS: dict[str, Builder] = {"GraniteSpeechForConditionalGeneration": build_granite_speech}
