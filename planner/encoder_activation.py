"""What a multimodal encoder holds in vLLM's profile run: its own peak, and what stays while the decoder runs."""

from __future__ import annotations

from dataclasses import dataclass

from planner import overhead_constants as constants
from planner.defaults import Resolved
from planner.inventory import EncoderFacts, ModelFacts
from planner.units import GIB

_LONG_VIDEO = frozenset({"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"})
_MOST_FRAME_PAIRS = 7  # 14 frames, two to a temporal patch
_QWEN3_VIDEO = frozenset({"Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"})
_QWEN3_VIDEO_TOKENS = 12_288  # its processor's largest video: 25,165,824 pixels of two frames, 32 x 32 a token
_QWEN3_TOKENS_WITH_TEXT = 12.5  # time stamps and marks counted with each video token (0.11's get_max_video_tokens)
_SCATTERED = (0, 11, 0)
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
    sequences may bring, and each no more than its longest prompt holds (multimodal/encoder_budget.py).
    """
    encoder = _largest(model, resolved)
    if encoder is None:
        return None
    if resolved.version == _SCATTERED and model.architecture in _QWEN3_VIDEO and _limit(resolved, "video"):
        return _qwen3_video_peak(model, resolved, encoder)
    frames = _video_frame_pairs(model, resolved, encoder)
    item_tokens = max(1, encoder.output_tokens_per_item) * frames
    budget = max(resolved.max_num_batched_tokens, item_tokens)
    in_prompt = max(1, min(_limit(resolved, encoder.modality), resolved.max_model_len // item_tokens))
    items = max(1, min(budget // item_tokens, resolved.max_num_seqs * in_prompt))
    return _peak(
        model,
        encoder,
        items=(items, "video" if frames > 1 else encoder.modality),
        patches=items * encoder.patch_tokens_per_item * frames,
        kept_tokens=items * (budget if resolved.version == _SCATTERED else item_tokens),
    )


def _qwen3_video_peak(model: ModelFacts, resolved: Resolved, encoder: EncoderFacts) -> EncoderPeak:
    """0.11.0 takes a video for Qwen3-VL's largest item: it counts the text around its tokens, and keeps room for both."""
    budget = max(resolved.max_num_batched_tokens, int(_QWEN3_VIDEO_TOKENS * _QWEN3_TOKENS_WITH_TEXT))
    merged = encoder.patch_tokens_per_item // max(1, encoder.output_tokens_per_item)
    patches = _QWEN3_VIDEO_TOKENS * max(1, merged)
    return _peak(model, encoder, items=(1, "video"), patches=patches, kept_tokens=budget)


def _peak(
    model: ModelFacts, encoder: EncoderFacts, *, items: tuple[int, str], patches: int, kept_tokens: int
) -> EncoderPeak:
    """The peak of `patches` patches whose embeddings take `kept_tokens` tokens of the encoder cache.

    0.11.0 scatters each item's embeddings into a buffer of the whole budget (profile_run of v1/worker/gpu_model_runner.py).
    """
    num_items, modality = items
    pixels = patches * _values_per_patch(model) * _VALUE_BYTES
    outputs = kept_tokens * _output_width(model) * _VALUE_BYTES
    per_patch = _values_per_running_patch(model, encoder)
    running = int(patches * per_patch * _VALUE_BYTES)
    return EncoderPeak(
        peak_bytes=running + pixels + outputs,
        kept_bytes=pixels + outputs,
        formula=f"{num_items} {modality} items, {patches:,} patches x {per_patch:,.0f} x "
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
    never larger than its images, but in 0.11.0 (`_qwen3_video_peak`).
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


def _output_width(model: ModelFacts) -> int:
    """Values of one token's embedding: with deepstack the features of some inner layers stand beside it."""
    levels = _vision(model).get("deepstack_visual_indexes")
    return model.hidden_size * (1 + (len(levels) if isinstance(levels, list) else 0))


def _is_gated(model: ModelFacts) -> bool:
    """Whether the encoder's MLP multiplies two projections (SwiGLU), as Qwen2.5-VL's and Pixtral's do."""
    return _vision(model).get("hidden_act") == "silu"
