"""A model's facts from the Hugging Face Hub: config, quantisation, limits and safetensors headers, never weights.

Contacts the Hub only when `fetch_model` is called.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from live.hub_cache import FetchedModel, HubCache, default_cache_folder
from live.hub_client import HubClient, RepoRecord, chosen_endpoint, chosen_token
from live.hub_errors import HubError
from live.safetensors_headers import Progress, remote_headers
from planner.bounded_files import LARGEST_CONFIG_BYTES, LARGEST_INDEX_BYTES, parse_object
from planner.facts import PlanError
from planner.inventory import CheckpointTensor
from planner.model_folder import MODULES_FILE, has_pooling_module, index_total_bytes, sane_length, shard_names

__all__ = ["FetchOptions", "FetchedModel", "HubError", "fetch_model"]

_INDEX = "model.safetensors.index.json"
_COMMIT = re.compile(r"[0-9a-f]{40}")


def _quiet(_done: int, _total: int, _what: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """How to fetch: None means HF_ENDPOINT, HF_TOKEN and the user's cache folder. Times in seconds."""

    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)
    cache_folder: Path | None = None
    read_seconds: float = 10.0
    total_seconds: float = 120.0
    needs_headers: bool = True  # False: a repository without safetensors is taken by its config alone
    progress: Progress = _quiet
    clock: Callable[[], float] = time.monotonic


def fetch_model(model_id: str, revision: str | None = None, options: FetchOptions | None = None) -> FetchedModel:
    """The facts of `model_id` at `revision` (None: its main branch), from the Hub or a kept copy of the same commit."""
    chosen = options or FetchOptions()
    client = HubClient(
        model_id=model_id.strip(),
        endpoint=chosen_endpoint(chosen.endpoint),
        token=chosen_token(chosen.token),
        read_seconds=chosen.read_seconds,
        deadline=chosen.clock() + chosen.total_seconds,
        clock=chosen.clock,
    )
    client.check_id()
    cache = HubCache(folder=chosen.cache_folder or default_cache_folder())
    return _Fetch(client=client, cache=cache, options=chosen).run(revision or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetch:
    """One fetch under way."""

    client: HubClient
    cache: HubCache
    options: FetchOptions

    def _kept(self, commit: str) -> FetchedModel | None:
        model = self.cache.load(self.client.endpoint, self.client.model_id, commit)
        if model is None or (self.options.needs_headers and model.tensors is None):
            return None
        return model

    def run(self, revision: str | None) -> FetchedModel:
        if revision is not None and _COMMIT.fullmatch(revision):
            kept = self._kept(revision)  # a commit never changes: nothing to ask
            if kept is not None and not kept.is_restricted:
                return kept
        self.options.progress(0, 1, "asking the Hub")
        try:
            record = self.client.record(revision)
        except HubError as error:
            return self._after_failure(error, revision)
        return self._from_hub(record, revision)

    def _after_failure(self, error: HubError, revision: str | None) -> FetchedModel:
        """The kept copy when the Hub is out of reach, and says so; any answer of the Hub stands."""
        if error.kind in {"no_network", "slow"}:
            commit = self.cache.last_commit(self.client.endpoint, self.client.model_id, revision)
            kept = self._kept(commit) if commit else None
            if kept is not None and not kept.is_restricted:
                return replace(kept, is_from_cache=True)
        raise error

    def _from_hub(self, record: RepoRecord, revision: str | None) -> FetchedModel:
        kept = self._kept(record.commit)
        if kept is not None and not record.is_restricted:
            return kept
        config_json = self._config(record)  # also shows that a gated model may be read
        model = kept if kept is not None else self._read_all(record, config_json)
        self.cache.store(model, revision)
        return model

    def _config(self, record: RepoRecord) -> str:
        if "config.json" not in record.files:
            raise self._no_config(record.files)
        return self._object("config.json", record)[0] or ""

    def _no_config(self, files: frozenset[str]) -> HubError:
        model = self.client.model_id
        if "params.json" in files:
            what = "has only Mistral's params.json, no config.json; choose its Hugging Face format sister"
        elif "adapter_config.json" in files:
            what = "is a LoRA adapter without a config.json; give its base model and --enable-lora"
        elif any(name.endswith(".gguf") for name in files):
            what = "holds only GGUF files, no config.json; download one and give it to --model-dir"
        else:
            what = "has no config.json, so it is no model that vLLM loads; check the id"
        return HubError("no_config", f"{model} {what}.")

    def _object(
        self, name: str, record: RepoRecord, limit_bytes: int = LARGEST_CONFIG_BYTES
    ) -> tuple[str | None, dict[str, Any]]:
        if name not in record.files:
            return None, {}
        content = self.client.read(name, record.commit, limit_bytes=limit_bytes)
        try:
            return content.decode("utf-8-sig", "replace"), parse_object(content, name, "model")
        except PlanError as error:
            raise HubError("broken_config", f"{self.client.model_id}: {error.text}") from None

    def _read_all(self, record: RepoRecord, config_json: str) -> FetchedModel:
        quantization_json, _ = self._object("hf_quant_config.json", record)
        _, generation = self._object("generation_config.json", record)
        _, tokenizer = self._object("tokenizer_config.json", record, LARGEST_INDEX_BYTES)
        _, index = self._object(_INDEX, record, LARGEST_INDEX_BYTES)
        has_modules = MODULES_FILE in record.files
        modules = (
            self.client.read(MODULES_FILE, record.commit, limit_bytes=LARGEST_CONFIG_BYTES) if has_modules else None
        )
        shards = self._shards(record.files, index)
        tensors = self._tensors(shards, record.commit) if shards else None
        total = sum(tensor.num_bytes for tensor in tensors) if tensors is not None else index_total_bytes(index)
        return FetchedModel(
            endpoint=self.client.endpoint,
            model_id=self.client.model_id,
            commit=record.commit,
            config_json=config_json,
            hf_quant_config_json=quantization_json,
            tokenizer_max_length=sane_length(tokenizer.get("model_max_length")),
            generation_max_length=sane_length(generation.get("max_length")),
            tensors=tensors,
            checkpoint_total_bytes=total,
            is_restricted=record.is_restricted,
            is_sentence_transformer=has_pooling_module(modules),
        )

    def _shards(self, files: frozenset[str], index: dict[str, Any]) -> tuple[str, ...]:
        try:
            listed = shard_names(index)
        except PlanError as error:
            raise HubError("broken_header", f"{self.client.model_id}: {error.text}") from None
        absent = [name for name in listed if name not in files]
        if absent:
            text = f"{self.client.model_id}: its index names {absent[0][:80]!r}, which it does not hold; choose another revision."
            raise HubError("broken_header", text)
        top = sorted(name for name in files if name.endswith(".safetensors") and "/" not in name)
        plain = tuple(name for name in top if not name.startswith("consolidated"))
        shards = listed or plain or tuple(top)
        if not shards and self.options.needs_headers:
            raise self._no_safetensors(files)
        return shards

    def _no_safetensors(self, files: frozenset[str]) -> HubError:
        kinds = [
            word for word, end in (("PyTorch .bin", ".bin"), ("GGUF", ".gguf")) if any(f.endswith(end) for f in files)
        ]
        holds = f" (it holds {' and '.join(kinds)} files)" if kinds else ""
        text = f"{self.client.model_id} has no safetensors files{holds}; plan from its config alone with --config-only."
        return HubError("no_safetensors", text)

    def _tensors(self, shards: tuple[str, ...], commit: str) -> tuple[CheckpointTensor, ...]:
        def read_range(name: str, first: int, last: int) -> bytes:
            return self.client.read(name, commit, limit_bytes=LARGEST_INDEX_BYTES + 8, span=(first, last))

        return remote_headers(shards, read_range, self.options.progress)
