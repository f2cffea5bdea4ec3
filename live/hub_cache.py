"""Fetched model facts on disk, by endpoint, id and commit. Only whole successes are written; a broken entry counts as none."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from planner.facts import PlanError
from planner.inventory import CheckpointTensor, ModelDocuments

_FORMAT = 2  # rises when the stored fields change; older entries then count as none


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FetchedModel:
    """What was brought from the Hub. `is_restricted`: gated or private, so a stored copy is used only after access is checked."""

    endpoint: str
    model_id: str
    commit: str
    config_json: str
    hf_quant_config_json: str | None
    tokenizer_max_length: int | None
    generation_max_length: int | None
    tensors: tuple[CheckpointTensor, ...] | None
    checkpoint_total_bytes: int | None
    is_restricted: bool
    is_from_cache: bool = False
    is_sentence_transformer: bool = False

    @property
    def source(self) -> str:
        """Where the facts come from, for the reader."""
        copy = ", kept copy (the Hub was not reached)" if self.is_from_cache else ""
        return f"Hugging Face Hub: {self.model_id} at {self.commit[:12]}{copy}"

    def to_documents(self) -> ModelDocuments:
        """The documents that planning reads."""
        return ModelDocuments(
            model_id=self.model_id,
            config_json=self.config_json,
            hf_quant_config_json=self.hf_quant_config_json,
            generation_max_length=self.generation_max_length,
            tokenizer_max_length=self.tokenizer_max_length,
            tensors=self.tensors,
            checkpoint_total_bytes=self.checkpoint_total_bytes,
            source=self.source,
            revision=self.commit,
            is_sentence_transformer=self.is_sentence_transformer,
        )


def default_cache_folder() -> Path:
    """KVSCOPE_CACHE, else the platform's folder for what can be fetched again."""
    chosen = os.environ.get("KVSCOPE_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kvscope"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "kvscope" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvscope"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


def _write(path: Path, content: str) -> None:
    with suppress(OSError):  # a folder that cannot be written costs the next fetch some seconds, nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        Path(name).replace(path)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubCache:
    """The store in `folder`."""

    folder: Path

    def _entry(self, endpoint: str, model_id: str, commit: str) -> Path:
        return self.folder / "hub" / f"{_digest(endpoint, model_id, commit)}.json"

    def _name(self, endpoint: str, model_id: str, revision: str | None) -> Path:
        return self.folder / "hub" / f"{_digest(endpoint, model_id, revision or '')}.commit"

    def store(self, model: FetchedModel, revision: str | None) -> None:
        """Keep `model`, and that `revision` meant its commit."""
        values = {"format": _FORMAT, **asdict(model)}
        values.pop("is_from_cache")
        _write(self._entry(model.endpoint, model.model_id, model.commit), json.dumps(values))
        _write(self._name(model.endpoint, model.model_id, revision), model.commit)

    def last_commit(self, endpoint: str, model_id: str, revision: str | None) -> str | None:
        """The commit that `revision` meant when it was last fetched, or None."""
        commit = _read(self._name(endpoint, model_id, revision))
        return commit.strip() if commit else None

    def load(self, endpoint: str, model_id: str, commit: str) -> FetchedModel | None:
        """The stored facts of that commit, or None."""
        content = _read(self._entry(endpoint, model_id, commit))
        if content is None:
            return None
        try:
            return _from_json(json.loads(content), (endpoint, model_id, commit))
        except (ValueError, TypeError, KeyError, RecursionError, PlanError):
            return None


def _from_json(values: Any, key: tuple[str, str, str]) -> FetchedModel | None:
    if values.pop("format") != _FORMAT or (values["endpoint"], values["model_id"], values["commit"]) != key:
        return None
    rows = values.pop("tensors")
    tensors = None if rows is None else tuple(CheckpointTensor(**{**row, "shape": tuple(row["shape"])}) for row in rows)
    return FetchedModel(**values, tensors=tensors)
