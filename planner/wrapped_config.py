"""A config.json wrapped with its source: the catalogue's own file format, also accepted as `--config FILE`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from planner.facts import PlanError
from planner.gguf_config import documents_from_gguf, tensor_of
from planner.inventory import ModelDocuments


def is_wrapped(document: Mapping[str, Any]) -> bool:
    """Whether `document` wraps a config: it has a `config` (or GGUF header) and a model id, and is no config itself."""
    has_id = "model_id" in document or "model_ids" in document
    return has_id and (isinstance(document.get("config"), dict) or isinstance(document.get("gguf"), dict))


def _model_id(document: Mapping[str, Any]) -> str:
    listed = document.get("model_ids") or ["uploaded config"]
    model_id = document.get("model_id") or (listed[0] if isinstance(listed, list) else listed)
    if not isinstance(model_id, str):
        raise PlanError("model_id", model_id, f"model_id is {model_id!r:.60}, but a text is needed.")
    return model_id


def _total_bytes(document: Mapping[str, Any]) -> int | None:
    weights = document.get("weights")
    total = weights.get("total_size_bytes") if isinstance(weights, dict) else None
    return total if isinstance(total, int) and not isinstance(total, bool) and total > 0 else None


def _from_gguf(document: Mapping[str, Any], source: str) -> ModelDocuments:
    header = document["gguf"]
    metadata, rows = header.get("metadata"), header.get("tensors")
    if not isinstance(metadata, dict) or not isinstance(rows, list):
        raise PlanError(
            "gguf", None, "The file's gguf part needs `metadata` and `tensors`; give a whole header or a config.json."
        )
    tensors = tuple(tensor_of(row, "gguf") for row in rows)
    return documents_from_gguf(metadata, tensors, model_id=_model_id(document), source=source)


def wrapped_documents(document: Mapping[str, Any], source: str) -> ModelDocuments:
    """The documents of a wrapped config: `{model_id, config, hf_quant_config?, weights.total_size_bytes?}` or a GGUF header."""
    if not isinstance(document.get("config"), dict):
        return _from_gguf(document, source)
    quantization = document.get("hf_quant_config")
    return ModelDocuments(
        model_id=_model_id(document),
        config_json=json.dumps(document["config"]),
        hf_quant_config_json=json.dumps(quantization) if isinstance(quantization, dict) else None,
        checkpoint_total_bytes=_total_bytes(document),
        is_config_complete=document.get("config_complete") is not False and not document.get("config_missing"),
        source=source,
        draft=_draft(document, source),
    )


def _draft(document: Mapping[str, Any], source: str) -> ModelDocuments | None:
    config = document.get("draft_config")
    if not isinstance(config, dict):
        return None
    return ModelDocuments(model_id="draft", config_json=json.dumps(config), source=f"{source}, draft_config")
