"""What a multimodal encoder holds in vLLM's profile run: its own peak, and what stays while the decoder runs."""

from __future__ import annotations

from dataclasses import dataclass

from planner import overhead_constants as constants
from planner.defaults import Resolved
from planner.inventory import EncoderFacts, ModelFacts
from planner.units import GIB

_LONG_VIDEO = frozenset({"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"})
_MOST_FRAME_PAIRS = 7  # 14 frames, two to a temporal patch
_VALUE_BYTES = 2  # encoders run in the model's dtype, bf16 or fp16
_PATCH_PIXELS = 14 * 14 * 3  # when the config does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderPeak:
    """`peak_bytes` while the encoder runs; `kept_bytes` (its inputs and its outputs) beside the decoder's forward."""

    peak_bytes: int
    kept_bytes: int
    formula: str


def encoder_peak(model: ModelFacts, resolved: Resolved) -> EncoderPeak | None:
    """The encoder's share of the profile run, or None when there is none to profile.

    Items: `max(max_num_batched_tokens, tokens of the largest item) // tokens of the largest item`, as many as the
    sequences may bring (multimodal/encoder_budget.py).
    """
    encoder = _largest(model, resolved)
    if encoder is None:
        return None
    frames = _video_frame_pairs(model, resolved, encoder)
    item_tokens = max(1, encoder.output_tokens_per_item) * frames
    budget = max(resolved.max_num_batched_tokens, item_tokens)
    items = max(1, min(budget // item_tokens, resolved.max_num_seqs * _limit(resolved, encoder.modality)))
    patches = items * encoder.patch_tokens_per_item * frames
    pixels = patches * _values_per_patch(model) * _VALUE_BYTES
    outputs = items * item_tokens * model.hidden_size * _VALUE_BYTES
    per_patch = _values_per_running_patch(model, encoder)
    running = int(patches * per_patch * _VALUE_BYTES)
    return EncoderPeak(
        peak_bytes=running + pixels + outputs,
        kept_bytes=pixels + outputs,
        formula=f"{items} {'video' if frames > 1 else encoder.modality} items, {patches:,} patches x {per_patch:,.0f} x "
        f"{_VALUE_BYTES} B + {(pixels + outputs) / GIB:.2f} GiB of pixels and embeddings",
    )


def _values_per_running_patch(model: ModelFacts, encoder: EncoderFacts) -> float:
    """Values per patch alive in the widest layer: both sides of the MLP's activation and the residual stream."""
    if _is_gated(model):
        return 3 * encoder.intermediate_size + constants.GATED_ENCODER_RESIDUAL_COPIES * encoder.hidden_size
    return 2 * encoder.intermediate_size + constants.ENCODER_RESIDUAL_COPIES * encoder.hidden_size


def _video_frame_pairs(model: ModelFacts, resolved: Resolved, encoder: EncoderFacts) -> int:
    """Frame pairs of the dummy video, each as large as the largest image; 1 where an image is profiled.

    Qwen2-VL's rule: as many as `max_model_len` holds, at most 14 frames (models/qwen2_vl.py). Qwen3-VL's videos are
    never larger than its images.
    """
    if model.architecture not in _LONG_VIDEO or encoder.modality != "image" or _limit(resolved, "video") == 0:
        return 1
    longest = resolved.max_model_len // max(1, encoder.output_tokens_per_item)
    return max(1, min(_MOST_FRAME_PAIRS, longest))


def _largest(model: ModelFacts, resolved: Resolved) -> EncoderFacts | None:
    """The encoder of the modality with most tokens that the flags leave on."""
    if resolved.flags.language_model_only or resolved.flags.skip_mm_profiling:
        return None
    allowed = [encoder for encoder in model.encoders if _limit(resolved, encoder.modality) > 0]
    return max(allowed, key=lambda encoder: encoder.output_tokens_per_item, default=None)


def _limit(resolved: Resolved, modality: str) -> int:
    """Items of `modality` per prompt; vLLM's default of 999 means as many as fit."""
    return dict(resolved.flags.limit_mm_per_prompt).get(modality, 999)


def _vision(model: ModelFacts) -> dict[str, object]:
    section = model.config.get("vision_config")
    return section if isinstance(section, dict) else {}


def _values_per_patch(model: ModelFacts) -> int:
    vision = _vision(model)
    size = vision.get("patch_size") or vision.get("spatial_patch_size")
    frames = vision.get("temporal_patch_size")
    pixels = size * size * 3 if isinstance(size, int) and size > 0 else _PATCH_PIXELS
    return pixels * (frames if isinstance(frames, int) and frames > 0 else 1)


def _is_gated(model: ModelFacts) -> bool:
    """Whether the encoder's MLP multiplies two projections (SwiGLU), as Qwen2.5-VL's and Pixtral's do."""
    return _vision(model).get("hidden_act") == "silu"
