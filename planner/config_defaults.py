"""Values that the engine's config classes give keys a config.json leaves out, and the other names of those keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parent / "data" / "config_defaults.json"
# Without these a config says nothing of the model's size: at the root their class defaults would be a silent guess.
ESSENTIAL = frozenset({"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"})
_DEEPEST = 3


@lru_cache(maxsize=1)
def _models() -> Mapping[str, Any]:  # parsed JSON of our own data file
    models: Mapping[str, Any] = _document()["models"]
    return models


@lru_cache(maxsize=1)
def _document() -> Mapping[str, Any]:  # parsed JSON of our own data file
    document: Mapping[str, Any] = json.loads(_DATA.read_text(encoding="utf-8"))
    return document


def architecture_of(model_type: str) -> str | None:
    """The generating class of a model_type, for a config that names no architecture."""
    name: str | None = _document()["architectures"].get(model_type)
    return name


def with_defaults(config: Mapping[str, Any], model_type: str | None = None, *, depth: int = 0) -> dict[str, Any]:
    """A copy of `config` with its class's defaults under it, its keys also under their usual names, its parts likewise.

    The sizes in `ESSENTIAL` are filled in for parts only (a multimodal config stores just what differs from the class),
    never at the root.
    """
    known = config.get("model_type") or model_type
    entry = _models().get(known if isinstance(known, str) else "", {})
    names: Mapping[str, str] = entry.get("names", {})
    values = {**entry.get("values", {}), **config}
    if depth == 0:
        _drop_essentials(values, config, names)
    for usual, own in names.items():
        if usual not in config and own in values:
            values[usual] = values[own]
    for key, part_type in entry.get("parts", {}).items():
        if key in config and config[key] is None:
            continue  # said to have no such part
        part = values.get(key)
        if part is None:
            part = _flat_part(config, key)
        if isinstance(part, dict) and depth < _DEEPEST:
            values[key] = with_defaults(part, part_type, depth=depth + 1)
    if depth > 0 and isinstance(known, str):
        values.setdefault("model_type", known)
    return values


def _flat_part(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A part the config does not nest: an older multimodal config (Qwen2-VL) keeps its language model's keys at the root."""
    if key != "text_config" or "num_hidden_layers" not in config:
        return {}
    apart = {"architectures", "model_type", "vision_config", "audio_config", "quantization_config"}
    return {name: value for name, value in config.items() if name not in apart}


def _drop_essentials(values: dict[str, Any], config: Mapping[str, Any], names: Mapping[str, str]) -> None:
    essentials = ESSENTIAL | {own for usual, own in names.items() if usual in ESSENTIAL}
    for key in essentials - config.keys():
        values.pop(key, None)


def defaulted_sizes(part: Mapping[str, Any], model_type: str) -> tuple[str, ...]:
    """The essential sizes that a config part leaves to its class, for the reader to know."""
    entry = _models().get(model_type, {})
    return tuple(sorted(key for key in ESSENTIAL & entry.get("values", {}).keys() if key not in part))
