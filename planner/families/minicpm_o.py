"""MiniCPM-o: MiniCPM-V that also hears, by transformers' Whisper encoder (whole on every rank) and two linears.

Source: minicpmo.py of vLLM 0.33, which builds neither the voice nor the speech tokens.
"""

from __future__ import annotations

from dataclasses import replace

from planner.config_view import ConfigView
from planner.families import Builder, Built, FamilyInput
from planner.families.audio_models import audio_facts, whole_whisper_encoder
from planner.families.composite import Tower, part_of
from planner.families.multimodal_variants import build_minicpmv
from planner.families.vision_towers import plain_linear

_VERSION_UNSAID = 2.6


def build_minicpmo(given: FamilyInput) -> Built:
    """MiniCPM-o 2.6 (Qwen2) and 4.5 (Qwen3)."""
    audio, text = part_of(given, "audio_config"), given.text.integer("hidden_size")
    root = ConfigView({"version": _VERSION_UNSAID, **given.root.values}, given.root.path)
    seeing = build_minicpmv(replace(given, root=root))
    projector = (
        *plain_linear("linear1", audio.integer("encoder_ffn_dim") // 4, text),
        *plain_linear("linear2", text, text),
    )
    positions = audio.integer("max_source_positions", default=1500)
    facts = audio_facts(audio, positions // given.root.integer("audio_pool_step", default=2))
    towers = (
        Tower(prefix="apm", modules=whole_whisper_encoder(audio), modalities=("audio",), facts=facts),
        Tower(prefix="audio_projection_layer", modules=projector, modalities=("audio",)),
    )
    parts = tuple(tower.part(given.vllm_minor) for tower in towers)
    return replace(seeing, parts=(*parts, *seeing.parts), encoders=(*seeing.encoders, facts))


BUILDERS: dict[str, Builder] = {"MiniCPMO": build_minicpmo}
