"""The model that a speculative config names: its documents read as vLLM reads a draft's, by the method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.bounded_files import parse_object
from planner.facts import PlanError
from planner.inventory import ModelDocuments, ModelFacts
from planner.model_catalog import catalogue_documents
from planner.model_config import read_model
from planner.request import SpeculativeConfig

WITHOUT_MODEL = frozenset({"ngram", "ngram_gpu", "suffix", "custom_class", "extract_hidden_states"})

Config = dict[str, Any]  # parsed JSON of a draft's config.json, checked by the builder that reads it


def catalogued_draft(config: SpeculativeConfig | None) -> ModelDocuments | None:
    """The catalogue's documents of the draft model that `config` names, or None where it names none that is there."""
    if config is None or config.model is None or config.method in WITHOUT_MODEL:
        return None
    try:
        return catalogue_documents(config.model)
    except PlanError:
        return None


def read_draft(documents: ModelDocuments, method: str, vllm_minor: int) -> ModelFacts:
    """The facts of a draft model under `method`: vLLM gives an EAGLE or DFlash draft a class of its own."""
    config = parse_object(documents.config_json.encode(), "the draft's config.json", "speculative_config")
    return read_model(replace(documents, config_json=json.dumps(_as_draft(config, method))), vllm_minor=vllm_minor)


def _as_draft(config: Config, method: str) -> Config:
    if isinstance(config.get("transformer_layer_config"), dict):
        return _from_speculators(config)
    named = config.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    if method == "medusa":
        return {"num_attention_heads": 1, **config, "architectures": ["MedusaModel"]}
    return {**config, "architectures": [_renamed(name, method) for name in names]} if names else config


def _renamed(architecture: str, method: str) -> str:
    """The class name that vLLM asks its registry for (transformers_utils/configs/eagle.py)."""
    prefix = {"eagle": "Eagle", "eagle3": "Eagle3", "dflash": "DFlash"}.get(method)
    if prefix is None or architecture.startswith((prefix, "PEagle", "Peagle")):
        return architecture
    is_suffixed = method != "eagle" and architecture.endswith(prefix)
    return architecture if is_suffixed else f"{prefix}{architecture}"


def _from_speculators(config: Config) -> Config:
    """The flat config of a draft in the speculators format (transformers_utils/configs/speculators/algos.py)."""
    inner: Mapping[str, Any] = config["transformer_layer_config"]
    kind = str(config.get("speculators_model_type"))
    is_qwen = inner.get("model_type") == "qwen3"
    names = {
        "eagle3": "Eagle3Qwen3ForCausalLM" if is_qwen else "Eagle3LlamaForCausalLM",
        "peagle": "PeagleQwen3ForCausalLM" if is_qwen else "PeagleLlamaForCausalLM",
        "dflash": "DFlashDraftModel",
    }
    if kind not in names:
        text = (
            f"The draft's config.json has speculators_model_type {kind[:40]!r}; eagle3, peagle and dflash can be sized."
        )
        raise PlanError("speculators_model_type", kind[:40], text)
    kept = ("draft_vocab_size", "target_hidden_size", "norm_before_fc", "fc_norm", "eagle_aux_hidden_state_layer_ids")
    flat = {**inner, "architectures": [names[kind]]}
    flat |= {name: config[name] for name in kept if config.get(name) is not None}
    if kind == "dflash" and (listed := config.get("aux_hidden_state_layer_ids")):
        flat["eagle_aux_hidden_state_layer_ids"] = listed
        flat["dflash_config"] = {"target_layer_ids": listed}
    if "quantization_config" in config:
        flat["quantization_config"] = config["quantization_config"]
    return flat
