"""Architectures whose class left vLLM and which the Transformers backend does not take over."""

from __future__ import annotations

# The last release with the class (models/registry.py of 0.32, _PREVIOUSLY_SUPPORTED_MODELS).
LAST_RELEASE: dict[str, tuple[int, int, int]] = {
    "AquilaForCausalLM": (0, 24, 0),
    "AquilaModel": (0, 24, 0),
    "ArcticForCausalLM": (0, 28, 0),
    "BaiChuanForCausalLM": (0, 23, 0),
    "BaichuanForCausalLM": (0, 23, 0),
    "Grok1ForCausalLM": (0, 24, 0),
    "Grok1ModelForCausalLM": (0, 24, 0),
    "InternLM2VEForCausalLM": (0, 23, 0),
    "InternLMForCausalLM": (0, 23, 0),
    "JAISLMHeadModel": (0, 22, 0),
    "MPTForCausalLM": (0, 28, 0),
    "MiniMaxM1ForCausalLM": (0, 23, 0),
    "MiniMaxText01ForCausalLM": (0, 23, 0),
    "MotifForCausalLM": (0, 10, 2),
    "MptForCausalLM": (0, 28, 0),
    "Phi3SmallForCausalLM": (0, 9, 2),
    "Phi4FlashForCausalLM": (0, 10, 2),
    "Plamo2ForCausalLM": (0, 26, 0),
    "QWenLMHeadModel": (0, 23, 0),
    "QwenVLForConditionalGeneration": (0, 23, 0),
    "RWForCausalLM": (0, 28, 0),
    "StableLMEpochForCausalLM": (0, 28, 0),
    "TeleChatForCausalLM": (0, 25, 0),
    "XverseForCausalLM": (0, 23, 0),
}
