"""Phi-4-multimodal: a SigLIP tower, a conformer for sound, projections for each, Phi-3's language model.

Sources: phi4mm.py and phi4mm_audio.py of vLLM 0.33. The checkpoint's vision and speech adapters load as LoRA, by --enable-lora.
"""

from __future__ import annotations

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import norm
from planner.families.composite import Tower, assemble, text_model
from planner.families.vision_towers import patch_count, plain_linear, repeated, siglip_tower, vision_tensor
from planner.inventory import Buffer, EncoderFacts, Module

# The image encoder is fixed in the class: SigLIP SO400M at 448 pixels without its last layer.
_SIGLIP = {
    "hidden_size": 1152,
    "image_size": 448,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_hidden_layers": 26,
    "patch_size": 14,
}


def _section(view: ConfigView, name: str) -> ConfigView:
    section = view.section(name)
    if section is None:
        raise PlanError(
            name, None, f"config.json has no {view.path}{name}; the audio encoder cannot be sized without it."
        )
    return section


def conformer(view: ConfigView) -> tuple[Module, ...]:
    """The audio encoder: strided convolutions, then conformer blocks with a gated MLP before and after attention."""
    width, heads = view.integer("attention_dim"), view.integer("attention_heads")
    bias_settings, stem = _section(view, "relative_attention_bias_args"), _section(view, "nemo_conv_settings")
    distance = bias_settings.integer("t5_bias_max_distance", default=1000)
    return (
        *_stem(view, stem.integer("conv_channels", default=width)),
        vision_tensor("relative_attention_bias_layer", 2 * distance, heads, role="audio"),
        vision_tensor("encoder_embedding", 2, view.integer("input_size", default=80), role="audio"),
        *repeated("encoders", view.integer("num_blocks"), _block(view, width)),
        Buffer(name="dev_type", shape=()),
    )


def _stem(view: ConfigView, channels: int) -> tuple[Module, ...]:
    reduction, bins = view.integer("time_reduction", default=4), view.integer("input_size", default=80)
    separable = max(reduction.bit_length() - 2, 0)  # stages after the first, each halving
    left = -(-bins // reduction)
    return (
        vision_tensor("embed.conv.0", channels, 9 + 1, role="audio"),
        vision_tensor("embed.conv.depthwise", channels, 9 + 1, role="audio", repeat=separable),
        vision_tensor("embed.conv.pointwise", channels, channels + 1, role="audio", repeat=separable),
        *plain_linear("embed.out", channels * left, view.integer("attention_dim"), role="audio"),
    )


def _block(view: ConfigView, width: int) -> tuple[Module, ...]:
    inner, kernel = view.integer("linear_units"), view.integer("kernel_size", default=3)
    modules: list[Module] = []
    for place in ("feed_forward_in", "feed_forward_out"):
        modules += plain_linear(f"{place}.net.0.linear", width, 2 * inner, role="audio")
        modules += plain_linear(f"{place}.net.2", inner, width, role="audio")
        modules += norm(f"{place}.layer_norm", width, has_bias=True)
    for name in ("q", "k", "v", "out"):
        modules += plain_linear(f"self_attn.linear_{name}", width, width, role="audio")
    modules += plain_linear("conv.glu.ext_pw_conv_1d", width, 2 * width, role="audio")
    modules += plain_linear("conv.ext_pw_conv_1d", width, width, role="audio")
    modules += plain_linear("conv.dw_sep_conv_1d.pw_conv", width, width, role="audio")
    modules += [
        vision_tensor("conv.glu.biases", 2, width, role="audio"),
        vision_tensor("conv.dw_sep_conv_1d.dw_conv", width, kernel + 1, role="audio"),
    ]
    for name in ("conv.layer_norm", "layer_norm_att", "layer_norm"):
        modules += norm(name, width, has_bias=True)
    return tuple(modules)


def _link(prefix: str, size_in: int, text: int) -> tuple[Module, ...]:
    return (*plain_linear(f"{prefix}.0", size_in, text), *plain_linear(f"{prefix}.2", text, text))


def build_phi4_multimodal(given: FamilyInput) -> Built:
    """Phi-4-multimodal."""
    text, vision = given.text.integer("hidden_size"), ConfigView(_SIGLIP, "img_processor.")
    hidden = vision.integer("hidden_size")
    audio = _section(_section(given.root, "audio_processor"), "config")
    width = audio.integer("attention_dim")
    facts = EncoderFacts(
        modality="image",
        hidden_size=hidden,
        intermediate_size=vision.integer("intermediate_size"),
        num_layers=vision.integer("num_hidden_layers"),
        num_heads=vision.integer("num_attention_heads"),
        patch_tokens_per_item=patch_count(vision),
        output_tokens_per_item=patch_count(vision) // 4,
    )
    picture: tuple[Module, ...] = (
        vision_tensor("glb_GN", hidden, role="projector"),
        vision_tensor("sub_GN", hidden, role="projector"),
        *_link("img_projection", hidden, text),
    )
    sound = (*_link("audio_projection", width, text), *_link("audio_projection_for_vision", width, text))
    prefix = "model.embed_tokens_extend"
    tower = siglip_tower(vision, has_position_ids=False)
    towers = [
        Tower(prefix=f"{prefix}.image_embed.img_processor", modules=tower, modalities=("image",), facts=facts),
        Tower(prefix=f"{prefix}.image_embed", modules=picture, modalities=("image",)),
        Tower(prefix=f"{prefix}.audio_embed.encoder", modules=conformer(audio), modalities=("audio",)),
        Tower(prefix=f"{prefix}.audio_embed", modules=sound, modalities=("audio",)),
    ]
    return assemble(given, text_model(given, architecture="Phi3ForCausalLM"), towers)


BUILDERS: dict[str, Builder] = {"Phi4MMForCausalLM": build_phi4_multimodal}
