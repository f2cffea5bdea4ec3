"""ERNIE 4.5 VL: a Qwen2-VL-like tower, a resampler, and a decoder with experts for text and experts for pictures.

Sources: ernie45_vl.py and ernie45_vl_moe.py of vLLM 0.33.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import attention_shape, column_linear, gated_mlp, norm
from planner.families.composite import Tower, assemble, part_of, renamed
from planner.families.expert_layers import ExpertBlock
from planner.families.moe_design import assemble as assemble_text
from planner.families.moe_design import moe_design
from planner.families.qwen_vision import qwen_encoder_facts
from planner.families.vision_towers import EncoderStack, vision_tensor
from planner.inventory import Buffer, Linear, Module, Tensor

_ROPE_COPIES = 4  # rows of a multimodal rotary cache for each position


def _pair(text: ConfigView, name: str) -> tuple[int, int]:
    """What the config says for text and for pictures."""
    values = text.items(name) or []
    if len(values) != 2:
        raise PlanError(name, values, f"config.json: {name} must hold two numbers, for text and for pictures.")
    first, second = (ConfigView({name: value}, text.path).integer(name, least=0) for value in values)
    return first, second


def _tower(view: ConfigView) -> tuple[Module, ...]:
    hidden, heads = view.integer("embed_dim", "hidden_size"), view.integer("num_heads")
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
        vision_tensor("patch_embed.proj", hidden, 3 * view.integer("patch_size") ** 2),
        *stack.modules(),
        *norm("ln", hidden, has_bias=True),
        Buffer(name="rotary_pos_emb.inv_freq", shape=(hidden // heads // 4,), dtype="float32"),
    )


def _unquantised(name: str, size_in: int, size_out: int) -> Linear:
    return replace(column_linear(name, size_in, size_out, role="projector", has_bias=True), quantizable=False)


def _resampler(root: ConfigView, text: int) -> tuple[Module, ...]:
    """Patches folded in space, then in time, each by two linears whose outputs are divided and gathered."""
    wide = root.integer("pixel_hidden_size") * root.integer("spatial_conv_size", default=2) ** 2
    temporal: tuple[Module, ...] = (
        _unquantised("temporal_linear1", wide * root.integer("temporal_conv_size", default=2), wide),
        _unquantised("temporal_linear2", wide, wide),
        *norm("temporal_norm", wide, has_bias=True),
    )
    return (
        _unquantised("spatial_linear1", wide, wide),
        _unquantised("spatial_linear2", wide, wide),
        *norm("spatial_norm", wide, has_bias=True),
        *(temporal if root.flag("use_temporal_conv", True) else ()),
        _unquantised("mlp", wide, text),
        *norm("after_norm", text),
    )


def _experts(text: ConfigView, index: int, kind: str) -> ExpertBlock:
    return ExpertBlock(
        num_experts=_pair(text, "moe_num_experts")[index],
        intermediate_size=_pair(text, "moe_intermediate_size")[index],
        top_k=text.integer("moe_k", default=6),
        experts_name=f"{kind}_experts",
        router_name=f"{kind}_experts_gate",
        router_dtype="float32",
        quantizes_router=True,
    )


def _language(given: FamilyInput) -> Built:
    """The decoder: a layer within neither range has one MLP, within one of them an MLP in place of the other's experts."""
    text = given.text
    hidden, step = text.integer("hidden_size"), text.integer("moe_layer_interval", default=1)
    last = text.integer("num_hidden_layers") - 1
    firsts = _pair(text, "moe_layer_start_index")
    lasts = _pair(text, "moe_layer_end_index") if text.has("moe_layer_end_index") else (last, last)
    shared = _pair(text, "moe_intermediate_size")[0] * text.integer("moe_num_shared_experts", default=0, least=0)
    vision, bias = _experts(text, 1, "vision"), text.flag("use_bias", False)
    dense = gated_mlp(hidden, text.integer("intermediate_size"), prefix="mlp.mlp", has_bias=bias)

    def mixes(index: int) -> bool:
        return (index + 1) % step == 0 and min(firsts) <= index <= max(lasts)

    def extras(index: int) -> tuple[Module, ...]:
        if not mixes(index):
            return ()
        scores = Tensor(
            name="mlp.e_score_correction_bias", role="router", shape=(2, vision.num_experts), dtype="float32"
        )
        common = gated_mlp(hidden, shared, prefix="mlp.shared_experts", role="shared_experts") if shared else ()
        return (scores, *common, *(vision.modules(hidden) if firsts[1] <= index <= lasts[1] else dense))

    shape = attention_shape(text, qkv_bias=bias)
    design = moe_design(text, shape, _experts(text, 0, "text"), text.integer("intermediate_size"))
    rows = _ROPE_COPIES * text.integer("max_position_embeddings", default=131072)
    return assemble_text(
        replace(
            design,
            is_sparse=lambda index: mixes(index) and firsts[0] <= index <= lasts[0],
            extras_of=extras,
            rotary=Buffer(name="rotary_cache", shape=(rows, shape.head_size)),  # each layer has one of its own
            dense_has_bias=bias,
            ties=text.flag("tie_word_embeddings", default=True),
        )
    )


def build_ernie45_vl(given: FamilyInput) -> Built:
    """ERNIE 4.5 VL with experts."""
    vision, text = part_of(given, "vision_config"), given.text.integer("hidden_size")
    ids = Buffer(name="visual_token_ids", shape=(1,), dtype="int64")
    towers = [
        Tower(prefix="vision_model", modules=_tower(vision), facts=qwen_encoder_facts(vision, is_qwen3=False)),
        Tower(prefix="resampler_model", modules=(*_resampler(given.root, text), ids)),
    ]
    return assemble(given, renamed(_language(given), "model.", "language_model.model."), towers)


BUILDERS: dict[str, Builder] = {"Ernie4_5_VLMoeForConditionalGeneration": build_ernie45_vl}
