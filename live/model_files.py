"""Where a page gets a model from: the Hub, an upload, a local folder. One call each, all yielding `ModelDocuments`."""

from __future__ import annotations

from typing import BinaryIO

from live.gguf_files import gguf_path_documents, gguf_upload_documents
from live.hub import FetchOptions, fetch_model
from live.hub_errors import HubError, HubErrorKind
from planner.bounded_files import LARGEST_CONFIG_BYTES, size_text
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.model_folder import config_documents, folder_documents

__all__ = [
    "FetchOptions",
    "HubError",
    "HubErrorKind",
    "folder_documents",
    "gguf_path_documents",
    "hub_documents",
    "upload_documents",
]


def hub_documents(model_id: str, revision: str | None = None, options: FetchOptions | None = None) -> ModelDocuments:
    """The documents of a Hub model; every state in which they cannot be had is a `HubError`."""
    return fetch_model(model_id, revision, options).to_documents()


def upload_documents(content: BinaryIO, file_name: str) -> ModelDocuments:
    """The documents of an uploaded config.json or .gguf file; anything else is a `PlanError` on `upload`."""
    if file_name.lower().endswith(".gguf"):
        return gguf_upload_documents(content, file_name)
    text = content.read(LARGEST_CONFIG_BYTES + 1)
    if len(text) > LARGEST_CONFIG_BYTES:
        limit = size_text(LARGEST_CONFIG_BYTES)
        raise PlanError(
            "upload",
            file_name,
            f"{file_name} is larger than {limit}, too large for a config.json; upload that file alone.",
        )
    return config_documents(_decoded(text, file_name), name=file_name)


def _decoded(text: bytes, file_name: str) -> str:
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError:
        decoded = ""
    if not decoded.lstrip().startswith("{"):
        raise PlanError(
            "upload", file_name, f"{file_name} is no JSON object; upload the model's config.json or a .gguf file."
        )
    return decoded
