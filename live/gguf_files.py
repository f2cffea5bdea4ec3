"""GGUF files given by path or as an upload: their header as model documents. The file's weights are never read.

The header is read by `planner.gguf_header` rather than by package gguf, whose reader maps the whole file and needs all of
it; the package's tables are what tests hold that reader to.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from planner.gguf_config import documents_from_gguf
from planner.gguf_header import GgufReader
from planner.inventory import ModelDocuments
from planner.model_folder import folder_documents


def gguf_path_documents(path: str | Path) -> ModelDocuments:
    """The documents of the GGUF file `path` (all parts of a split one)."""
    return folder_documents(path)


def gguf_upload_documents(content: BinaryIO, file_name: str) -> ModelDocuments:
    """The documents of an uploaded GGUF file; its first part is enough as long as the header is whole."""
    metadata, tensors = GgufReader(content, file_name, "upload").read()
    model_id = Path(file_name).stem
    return documents_from_gguf(metadata, tensors, model_id=model_id, source=f"GGUF header of {file_name}")
