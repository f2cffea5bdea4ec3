"""Rotary caches: how many rows and columns of cosines and sines vLLM allocates for a config's rotary settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.inventory import Buffer

# `type` names of older configs and what they are called now (vLLM transformers_utils/config.py, patch_legacy_rope_type).
_RENAMED = {"su": "longrope", "mrope": "default"}
# DeepSeek's scaled ropes stay float32 where FlashInfer applies them (deepseek_scaling_rope.py): on CUDA, in eager mode,
# since torch.compile turns custom operators off (config/vllm.py: custom_ops "none" with inductor).
FLASHINFER_ROPE = "rotary_cache_flashinfer"
_DEEPSEEK_ROPES = frozenset({"deepseek_yarn", "deepseek_llama_scaling"})
_FLASHINFER_HEAD_SIZES = frozenset({64, 128, 256, 512})
_LARGEST_ROWS = 2**31  # a cache of more rows than any real model: such a config is nonsense


def rope_parameters(text: ConfigView, layer_type: str | None = None) -> Mapping[str, Any]:
    """The rotary settings as transformers 5 merges them: one flat object, for `layer_type` where they are nested by it."""
    sections = (text.section("rope_scaling"), text.section("rope_parameters"))
    merged = next((dict(section.values) for section in sections if section and section.values), {})
    nested = {key: value for key, value in merged.items() if isinstance(value, dict)}
    if nested:
        merged = dict(nested.get(layer_type or "") or next(iter(nested.values())))
    partial = _first(text, "partial_rotary_factor", "rotary_pct", "rotary_emb_fraction")
    if partial is not None:
        merged.setdefault("partial_rotary_factor", partial)
    kind = str(merged.get("rope_type") or merged.get("type") or "default")
    merged["rope_type"] = _RENAMED.get(kind, kind)
    if merged["rope_type"] in {"llama3", "yarn", "longrope"}:
        original = text.values.get("original_max_position_embeddings")
        if original is not None:
            merged["original_max_position_embeddings"] = original
        merged.setdefault("original_max_position_embeddings", text.values.get("max_position_embeddings"))
    return merged


def _first(text: ConfigView, *names: str) -> object:
    return next((text.values[name] for name in names if text.values.get(name) is not None), None)


def rope_cache(  # noqa: PLR0913 - two sizes, then what get_rope takes by keyword
    text: ConfigView,
    head_size: int,
    *,
    max_position: int | None = None,
    settings: Mapping[str, Any] | None = None,
    positions_factor: int = 4,
    dtype: str | None = None,
) -> Buffer:
    """The rotary cache that layers of this head size share on a rank: rows x rotary size, in the model's dtype.

    `max_position` is what the model class passes to get_rope (most often max_position_embeddings); `settings` defaults to
    the config's own (`rope_parameters`). An M-RoPE cache has `positions_factor` times the rows.
    """
    rope = rope_parameters(text) if settings is None else settings
    if max_position is None:
        max_position = text.integer("max_position_embeddings", default=8192)
    rows = _rows(ConfigView(rope, f"{text.path}rope_scaling."), max_position, positions_factor)
    columns = _columns(ConfigView(rope, f"{text.path}rope_scaling."), head_size)
    is_wide = str(rope["rope_type"]) in _DEEPSEEK_ROPES and head_size in _FLASHINFER_HEAD_SIZES
    name = FLASHINFER_ROPE if is_wide else "rotary_cache"
    return Buffer(name=name, shape=(rows, columns), dtype=dtype, is_shared=True)


def _columns(rope: ConfigView, head_size: int) -> int:
    if rope.values["rope_type"] == "proportional":  # Gemma-4 pads the unrotated part with cos 1, sin 0
        return head_size
    explicit = rope.optional_integer("rope_dim")
    if explicit:
        return explicit
    return int(head_size * rope.number("partial_rotary_factor", 1.0))


def _rows(rope: ConfigView, max_position: int, positions_factor: int) -> int:
    kind = str(rope.values["rope_type"])
    mrope = positions_factor if rope.has("mrope_section") else 1
    if kind in {"yarn", "deepseek_yarn", "deepseek_llama_scaling"}:
        original = rope.integer("original_max_position_embeddings", default=max_position)
        return _checked(original * mrope * rope.number("factor", 1.0))
    if kind == "linear":
        return _checked(max_position * rope.number("factor", 1.0))
    if kind == "longrope":
        return _checked(max_position + rope.integer("original_max_position_embeddings", default=max_position))
    if kind == "dynamic" and rope.has("alpha"):
        return max_position
    return _checked(max_position * (mrope if kind == "default" else 1))


def _checked(rows: float) -> int:
    if rows > _LARGEST_ROWS:
        raise PlanError(
            "rope_scaling.factor",
            rows,
            f"config.json: rope_scaling makes {rows:.3g} positions; no model has that many, check its factor.",
        )
    return math.ceil(rows)


def inverse_frequencies(rotary_size: int, copies: int = 2) -> Buffer:
    """What the Transformers backend keeps instead of a cache: `copies` float32 vectors of half the rotary size."""
    return Buffer(name="inv_freq", shape=(rotary_size // 2,), dtype="float32", repeat=copies, is_shared=True)
