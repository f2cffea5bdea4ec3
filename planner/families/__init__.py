"""One module a model family: a config in, the modules and caches that vLLM builds out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module

from planner.config_view import ConfigView
from planner.facts import Finding
from planner.inventory import EncoderFacts, Layer, Part


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FamilyInput:
    """What a builder reads: `root` the whole config.json, `text` its language part (the same when there is no other)."""

    architecture: str
    root: ConfigView
    text: ConfigView
    is_quantized: bool
    vllm_minor: int = 33  # of the release whose classes are meant


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Built:
    """What a builder says of a model; `model_config` adds what all families share (dtype, lengths, quantisation)."""

    layers: tuple[Layer, ...]
    parts: tuple[Part, ...]
    is_mla: bool = False
    is_hybrid: bool = False
    is_moe: bool = False
    is_multimodal: bool = False
    is_encoder_decoder: bool = False
    ties_embeddings: bool = False
    encoders: tuple[EncoderFacts, ...] = ()
    draft_layers: tuple[Layer, ...] = ()
    draft_parts: tuple[Part, ...] = ()
    max_encoder_tokens: int = 0
    mla_nope_head_dim: int = 0
    mla_v_head_dim: int = 0
    kv_lora_rank: int = 0
    qk_rope_head_dim: int = 0
    intermediate_size: int | None = None
    findings: tuple[Finding, ...] = ()


Builder = Callable[[FamilyInput], Built]


def without_head(built: Built) -> Built:
    """The same decoder with no head built, as vLLM makes an embedding model of it."""
    parts = tuple(
        part for part in built.parts if not any(getattr(module, "role", "") == "head" for module in part.modules)
    )
    return replace(built, parts=parts)


_MODULES = (
    "dense",
    "gemma",
    "moe",
    "mla",
    "gpt_oss",
    "llama4",
    "deepseek_v4",
    "mla_variants",
    "draft_layers",
    "dflash",
    "moe_retired",
    "moe_variants",
    "step3p5",
    "hybrid",
    "qwen_next",
    "nemotron_h",
    "pure_mamba",
    "multimodal",
    "audio_models",
    "gemma_multimodal",
    "internvl",
    "multimodal_variants",
    "kimi_linear",
    "kimi_k3",
    "minimax_m3",
    "linear_attention",
    "phi4_multimodal",
    "encoder_decoder",
    "classifiers",
    "nas",
    "ernie_vision",
    "granite_speech",
    "minicpm_o",
    "ocr_models",
    "nemotron_vision",
    "rotary_bert",
    "step3_vision",
)


def builder_for(architecture: str) -> Builder | None:
    """The builder of `architecture` (vLLM's registry name), or None for one that no family knows."""
    from planner.families.architectures import MODULE_OF  # noqa: PLC0415 - this package's own index

    indexed = MODULE_OF.get(architecture)
    for name in _MODULES if indexed is None else (indexed,):
        builders: dict[str, Builder] = import_module(f"planner.families.{name}").BUILDERS
        if architecture in builders:
            return builders[architecture]
    return None
