"""Models that read sound: Qwen2-Audio, Qwen2.5-Omni, Qwen3-Omni, Ultravox, Voxtral, with the encoders they take.

Sources: the modules of the same names and whisper.py in vLLM 0.33. Where a class takes transformers' own encoder, every rank
holds it whole and nothing quantises it.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Builder, Built, FamilyInput
from planner.families.blocks import norm
from planner.families.composite import Tower, assemble, part_of, renamed, text_model
from planner.families.qwen_vision import qwen3_vl_tower, qwen25_vl_tower, qwen_encoder_facts
from planner.families.vision_towers import EncoderStack, plain_linear, vision_tensor
from planner.inventory import Buffer, EncoderFacts, Module, Tensor

_CONV_KERNEL = 3


def conv_stem(view: ConfigView, hidden: int, kernel: int = _CONV_KERNEL) -> tuple[Tensor, ...]:
    """Whisper's two convolutions over mel bins."""
    mel_bins = view.integer("num_mel_bins", default=80)
    return (
        vision_tensor("conv1", hidden, mel_bins * kernel, role="audio"),
        vision_tensor("conv1.bias", hidden, role="audio"),
        vision_tensor("conv2", hidden, hidden * kernel, role="audio"),
        vision_tensor("conv2.bias", hidden, role="audio"),
    )


def audio_stack(view: ConfigView, hidden: int, *, prefix: str = "layers") -> EncoderStack:
    """Whisper's encoder blocks as vLLM divides them; the fused projection has a bias for the key too."""
    return EncoderStack(
        depth=view.integer("encoder_layers", "num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=view.integer("encoder_ffn_dim", "intermediate_size"),
        num_heads=view.integer("encoder_attention_heads", "num_attention_heads"),
        prefix=prefix,
        projections=tuple(f"self_attn.{name}_proj" for name in "qkv"),
        norms=("self_attn_layer_norm", "final_layer_norm"),
        role="audio",
    )


def whisper_encoder(view: ConfigView) -> tuple[Module, ...]:
    """Whisper's encoder, divided by TP."""
    hidden = view.integer("d_model", "hidden_size")
    return (
        *conv_stem(view, hidden),
        vision_tensor("embed_positions", view.integer("max_source_positions", default=1500), hidden, role="audio"),
        *audio_stack(view, hidden).modules(),
        *norm("layer_norm", hidden, has_bias=True),
    )


def _whole_stack(view: ConfigView, hidden: int) -> tuple[Module, ...]:
    """Transformers' Whisper-like blocks: whole on every rank, no bias for the key."""
    stack = replace(audio_stack(view, hidden), is_sharded=False, is_quantizable=False, has_qkv_bias=False)
    biases = vision_tensor("layers.0.self_attn.qv_bias", 2 * hidden, role="audio", repeat=stack.depth)
    return (*stack.modules(), biases)


def whole_whisper_encoder(view: ConfigView) -> tuple[Module, ...]:
    """Whisper's encoder as transformers has it: whole on every rank."""
    hidden = view.integer("d_model")
    return (
        *conv_stem(view, hidden),
        vision_tensor("embed_positions", view.integer("max_source_positions", default=1500), hidden, role="audio"),
        *_whole_stack(view, hidden),
        *norm("layer_norm", hidden, has_bias=True),
    )


def audio_facts(view: ConfigView, output_tokens: int | None = None) -> EncoderFacts:
    """Sizes for the activation estimate."""
    positions = view.integer("max_source_positions", default=1500)
    return EncoderFacts(
        modality="audio",
        hidden_size=view.integer("d_model", "hidden_size"),
        intermediate_size=view.integer("encoder_ffn_dim", "intermediate_size"),
        num_layers=view.integer("encoder_layers", "num_hidden_layers"),
        num_heads=view.integer("encoder_attention_heads", "num_attention_heads"),
        patch_tokens_per_item=positions,
        output_tokens_per_item=output_tokens or positions // 2,
    )


def build_qwen2_audio(given: FamilyInput) -> Built:
    """Qwen2-Audio: transformers' encoder, one linear, Qwen2."""
    audio, text = part_of(given, "audio_config"), given.text.integer("hidden_size")
    hidden = audio.integer("d_model")
    towers = [
        Tower(
            prefix="audio_tower", modules=whole_whisper_encoder(audio), modalities=("audio",), facts=audio_facts(audio)
        ),
        Tower(prefix="multi_modal_projector", modules=plain_linear("linear", hidden, text), modalities=("audio",)),
    ]
    return assemble(given, renamed(text_model(given), "model.", "language_model.model."), towers)


def _thinker(given: FamilyInput) -> FamilyInput:
    """The config of the thinker, the only part of an Omni model that vLLM builds."""
    section = given.root.section("thinker_config")
    return given if section is None else replace(given, root=section)


def build_qwen25_omni(given: FamilyInput) -> Built:
    """The thinker of Qwen2.5-Omni: audio and vision encoders and a Qwen2 language model."""
    thinker = _thinker(given)
    audio, vision = part_of(thinker, "audio_config"), part_of(thinker, "vision_config")
    hidden, out = audio.integer("d_model"), audio.integer("output_dim")
    positions = audio.integer("max_source_positions", default=1500)
    modules = (
        *conv_stem(audio, hidden),
        vision_tensor("audio_bos_eos_token", 2, out, role="audio"),
        *_whole_stack(audio, hidden),
        *norm("ln_post", hidden, has_bias=True),
        *plain_linear("proj", hidden, out),
        Buffer(name="positional_embedding", shape=(positions, hidden), dtype="float32"),
    )
    towers = [
        Tower(prefix="thinker.audio_tower", modules=modules, modalities=("audio",), facts=audio_facts(audio)),
        Tower(
            prefix="thinker.visual",
            modules=qwen25_vl_tower(vision),
            facts=qwen_encoder_facts(vision, is_qwen3=False),
        ),
    ]
    language = text_model(thinker, architecture="Qwen2ForCausalLM")
    return assemble(thinker, renamed(language, "model.", "thinker.model."), towers)


def _qwen3_audio(view: ConfigView) -> tuple[Module, ...]:
    """Qwen3-Omni's audio encoder: three 2-d convolutions, vLLM's own blocks, two linears out."""
    hidden, inner = view.integer("d_model"), view.integer("downsample_hidden_size", default=480)
    bins, out = view.integer("num_mel_bins", default=128), view.integer("output_dim")
    after = ((((bins + 1) // 2 + 1) // 2) + 1) // 2  # three convolutions of stride two over the mel axis
    kernel = _CONV_KERNEL**2
    return (
        vision_tensor("conv2d1", inner, kernel + 1, role="audio"),
        vision_tensor("conv2d2", 2 * inner, inner * kernel + 1, role="audio"),
        *plain_linear("conv_out", inner * after, hidden, role="audio", has_bias=False),
        *audio_stack(view, hidden).modules(),
        *norm("ln_post", hidden, has_bias=True),
        *plain_linear("proj1", hidden, hidden),
        *plain_linear("proj2", hidden, out),
    )


def build_qwen3_omni(given: FamilyInput) -> Built:
    """The thinker of Qwen3-Omni: audio and vision encoders and a Qwen3 language model with experts."""
    thinker = _thinker(given)
    audio, vision = part_of(thinker, "audio_config"), part_of(thinker, "vision_config")
    hidden = audio.integer("d_model")
    positions = audio.integer("max_source_positions", default=1500)
    table = Buffer(name="positional_embedding", shape=(positions, hidden), dtype="float32")
    towers = [
        Tower(
            prefix="thinker.audio_tower",
            modules=(*_qwen3_audio(audio), table),
            modalities=("audio",),
            facts=audio_facts(audio),
        ),
        Tower(prefix="thinker.visual", modules=qwen3_vl_tower(vision), facts=qwen_encoder_facts(vision, is_qwen3=True)),
    ]
    language = text_model(thinker, architecture="Qwen3MoeForCausalLM")
    return assemble(thinker, renamed(language, "model.", "thinker.model."), towers)


def build_qwen3_asr(given: FamilyInput) -> Built:
    """Qwen3-ASR: Qwen3-Omni's audio encoder and a dense Qwen3 language model."""
    thinker = _thinker(given)
    audio = part_of(thinker, "audio_config")
    positions = audio.integer("max_source_positions", default=1500)
    table = Buffer(name="positional_embedding", shape=(positions, audio.integer("d_model")), dtype="float32")
    tower = Tower(
        prefix="thinker.audio_tower",
        modules=(*_qwen3_audio(audio), table),
        modalities=("audio",),
        facts=audio_facts(audio),
    )
    language = text_model(thinker, architecture="Qwen3ForCausalLM")
    return assemble(thinker, renamed(language, "model.", "thinker.model."), [tower])


def build_ultravox(given: FamilyInput) -> Built:
    """Ultravox: Whisper's encoder, stacked frames through a gated projector, any language model."""
    audio, text = part_of(given, "audio_config"), given.text.integer("hidden_size")
    hidden, wide = audio.integer("d_model"), given.root.integer("hidden_size", default=4096)
    if given.root.has("num_projector_layers") and given.root.integer("num_projector_layers", least=0):
        raise PlanError(
            "num_projector_layers",
            given.root.values["num_projector_layers"],
            "config.json: an Ultravox projector with transformer layers is not known; it cannot be sized.",
        )
    stacked = hidden * given.root.integer("stack_factor", default=8)
    is_gated = given.root.text("projector_act", "swiglu") == "swiglu"
    middle = wide // 2 if is_gated else wide
    after = given.root.flag("projector_ln_mid", False)
    projector = (
        *norm("ln_pre", stacked),
        *plain_linear("linear_1", stacked, wide, has_bias=False),
        *plain_linear("linear_2", middle, text, has_bias=False),
        *norm("ln_mid" if after else "ln_post", middle if after else text),
    )
    facts = audio_facts(audio, audio.integer("max_source_positions", default=1500) // (2 * 8))
    towers = [
        Tower(prefix="audio_tower", modules=whisper_encoder(audio), modalities=("audio",), facts=facts),
        Tower(prefix="multi_modal_projector", modules=projector, modalities=("audio",)),
    ]
    return assemble(given, renamed(text_model(given), "model.", "language_model.model."), towers)


def build_voxtral(given: FamilyInput) -> Built:
    """Voxtral: Whisper's encoder, four frames at a time through two linears, a Llama language model."""
    audio, text = part_of(given, "audio_config"), given.text.integer("hidden_size")
    hidden = audio.integer("hidden_size", "d_model")
    factor = audio.integer("downsample_factor", default=4)
    projector: tuple[Module, ...] = (
        *plain_linear("w_in", hidden * factor, text, has_bias=False),
        *plain_linear("w_out", text, text, has_bias=False),
    )
    facts = audio_facts(audio, audio.integer("max_source_positions", default=1500) // factor)
    towers = [
        Tower(prefix="audio_tower", modules=whisper_encoder(audio), modalities=("audio",), facts=facts),
        Tower(prefix="multi_modal_projector", modules=projector, modalities=("audio",)),
    ]
    return assemble(given, renamed(text_model(given), "model.", "language_model.model."), towers)


BUILDERS: dict[str, Builder] = {
    "Qwen2AudioForConditionalGeneration": build_qwen2_audio,
    "Qwen2_5OmniForConditionalGeneration": build_qwen25_omni,
    "Qwen2_5OmniModel": build_qwen25_omni,
    "Qwen2_5OmniThinkerForConditionalGeneration": build_qwen25_omni,
    "Qwen3ASRForConditionalGeneration": build_qwen3_asr,
    "Qwen3OmniMoeForConditionalGeneration": build_qwen3_omni,
    "Qwen3OmniMoeThinkerForConditionalGeneration": build_qwen3_omni,
    "UltravoxModel": build_ultravox,
    "VoxtralForConditionalGeneration": build_voxtral,
}
