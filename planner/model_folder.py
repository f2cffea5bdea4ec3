"""A model's facts from files: a folder for `--model-dir`, a GGUF file, or a config for `--config`. Weights are never read."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

from planner.bounded_files import LARGEST_CONFIG_BYTES, LARGEST_INDEX_BYTES, parse_object, read_bytes, read_object
from planner.checkpoint_headers import checked_tensor, read_header
from planner.facts import PlanError
from planner.gguf_config import documents_from_gguf
from planner.gguf_header import read_gguf
from planner.inventory import CheckpointTensor, ModelDocuments
from planner.wrapped_config import is_wrapped, wrapped_documents

MODULES_FILE = "modules.json"  # of the sentence-transformers library
HEADERS_FILE = "kvscope-headers.json"  # what `python -m live fetch` writes beside config.json
_FIELD = "model_dir"
_LONGEST_SANE_LENGTH = 10**9  # tokenizers without a limit write 1e30
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_POOLING_MODULES = (
    "sentence_transformers.models.Pooling",
    "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
)
_CONSOLIDATED = "consolidated"  # Mistral's second copy of the same weights


def _optional_object(
    folder: Path, name: str, limit_bytes: int = LARGEST_CONFIG_BYTES
) -> tuple[str | None, dict[str, Any]]:
    path = folder / name
    if not path.is_symlink() and not path.exists():
        return None, {}
    return read_object(path, _FIELD, limit_bytes)


def sane_length(value: object) -> int | None:
    """`value` as a length in tokens, or None where it means "no limit" (1e30) or nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= _LONGEST_SANE_LENGTH:
        return None
    return int(value)


def has_pooling_module(modules_json: bytes | None) -> bool:
    """Whether modules.json lists sentence-transformers' pooling; a broken file lists nothing."""
    try:
        modules = json.loads(modules_json or b"[]")
    except (ValueError, RecursionError):
        return False
    rows = modules if isinstance(modules, list) else []
    return any(isinstance(row, dict) and str(row.get("type")) in _POOLING_MODULES for row in rows)


def index_total_bytes(index: dict[str, Any]) -> int | None:
    """The `total_size` that an index states, or None."""
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    return total if isinstance(total, int) and not isinstance(total, bool) and total > 0 else None


def shard_names(index: dict[str, Any]) -> tuple[str, ...]:
    """The file names that an index's weight map lists; a name that leaves the folder is a `PlanError`."""
    weight_map = index.get("weight_map")
    names = sorted({str(name) for name in weight_map.values()}) if isinstance(weight_map, dict) else []
    for name in names:
        if not name.endswith(".safetensors") or Path(name).is_absolute() or ".." in Path(name).parts:
            text = f"model.safetensors.index.json names {name[:80]!r}, which is no safetensors file of its folder; download it again."
            raise PlanError(_FIELD, name[:80], text)
    return tuple(names)


def _weight_files(folder: Path, index: dict[str, Any]) -> tuple[Path, ...]:
    listed = shard_names(index)
    if listed:
        return tuple(folder / name for name in listed)
    files = sorted(path for path in folder.glob("*.safetensors"))
    plain = [path for path in files if not path.name.startswith(_CONSOLIDATED)]
    return tuple(plain or files)


def _read_tensors(files: tuple[Path, ...]) -> tuple[CheckpointTensor, ...] | None:
    if not files or not all(path.exists() or path.is_symlink() for path in files):
        return None  # a part of the headers would pass for a smaller model
    by_name: dict[str, CheckpointTensor] = {}
    for path in files:
        tensors = read_header(path, _FIELD)
        if tensors is None:
            return None
        by_name.update((tensor.name, tensor) for tensor in tensors)
    return tuple(by_name.values())


def _fetched_tensors(headers: dict[str, Any]) -> tuple[CheckpointTensor, ...] | None:
    rows = headers.get("tensors")
    if rows is None:
        return None
    if not isinstance(rows, dict):
        raise PlanError(_FIELD, HEADERS_FILE, f"{HEADERS_FILE}: `tensors` is no object; fetch the model again.")
    return tuple(
        checked_tensor(name, row, row.get("bytes") if isinstance(row, dict) else None, HEADERS_FILE, _FIELD)
        for name, row in rows.items()
    )


def _text(values: dict[str, Any], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) and value else None


def _from_folder(folder: Path) -> ModelDocuments:
    config_json, _ = read_object(folder / "config.json", _FIELD)
    quantization_json, _ = _optional_object(folder, "hf_quant_config.json")
    _, headers = _optional_object(folder, HEADERS_FILE, LARGEST_INDEX_BYTES)
    _, index = _optional_object(folder, "model.safetensors.index.json", LARGEST_INDEX_BYTES)
    if not index:
        _, index_of_bin = _optional_object(folder, "pytorch_model.bin.index.json", LARGEST_INDEX_BYTES)
        total = index_total_bytes(index_of_bin)
    else:
        total = index_total_bytes(index)
    tensors = _fetched_tensors(headers) or _read_tensors(_weight_files(folder, index))
    _, tokenizer = _optional_object(folder, "tokenizer_config.json", LARGEST_INDEX_BYTES)
    _, generation = _optional_object(folder, "generation_config.json")
    modules = folder / MODULES_FILE
    modules_json = read_bytes(modules, _FIELD, LARGEST_CONFIG_BYTES) if modules.exists() else None
    return ModelDocuments(
        model_id=_text(headers, "model_id") or folder.resolve().name or str(folder),
        config_json=config_json,
        hf_quant_config_json=quantization_json,
        generation_max_length=sane_length(generation.get("max_length")),
        tokenizer_max_length=sane_length(tokenizer.get("model_max_length")),
        tensors=tensors,
        checkpoint_total_bytes=sum(t.num_bytes for t in tensors)
        if tensors
        else total or index_total_bytes({"metadata": headers}),
        source=_text(headers, "source") or f"folder {folder.name}",
        revision=_text(headers, "revision"),
        is_sentence_transformer=has_pooling_module(modules_json) or headers.get("is_sentence_transformer") is True,
    )


def gguf_documents(files: tuple[Path, ...]) -> ModelDocuments:
    """The documents of a GGUF file or of all the parts of a split one; the first part's metadata counts."""
    parts = [read_gguf(path, _FIELD) for path in files]
    tensors = tuple(tensor for _, listed in parts for tensor in listed)
    return documents_from_gguf(parts[0][0], tensors, model_id=files[0].stem, source=f"GGUF header of {files[0].name}")


def _gguf_parts(path: Path) -> tuple[Path, ...]:
    """All parts of the split file that `path` is one of, or `path` alone."""
    match = _SHARD.search(path.name)
    if match is None:
        return (path,)
    stem, last = path.name[: match.start()], int(match[2])
    parts = tuple(path.with_name(f"{stem}-{part:05d}-of-{last:05d}.gguf") for part in range(1, min(last, 9999) + 1))
    absent = [part.name for part in parts if not part.is_file()]
    if absent:
        raise PlanError(
            _FIELD, str(path), f"{absent[0]} is missing: a split GGUF file needs all its {last} parts in one folder."
        )
    return parts


def _choose_gguf(folder: Path) -> tuple[Path, ...] | None:
    files = sorted(path for path in folder.glob("*.gguf") if not path.name.startswith("mmproj"))
    models = {_SHARD.sub("", path.name) for path in files}
    if len(models) > 1:
        text = f"{folder} holds {len(models)} GGUF models; name the file itself, such as --model-dir {files[0].name}."
        raise PlanError(_FIELD, str(folder), text)
    return _gguf_parts(files[0]) if files else None


def _without_config(folder: Path) -> ModelDocuments:
    files = _choose_gguf(folder)
    if files is not None:
        return gguf_documents(files)
    if (folder / "params.json").exists():
        text = f"{folder} holds Mistral's params.json but no config.json; give the folder of a repository with a config.json."
        raise PlanError(_FIELD, str(folder), text)
    raise PlanError(
        _FIELD,
        str(folder),
        f"{folder} holds no config.json and no .gguf file; give the folder that a model was downloaded to.",
    )


def folder_documents(path: str | Path) -> ModelDocuments:
    """The documents of the model folder (or .gguf file) `path`: config, quantisation, limits and headers where the files are there."""
    folder = Path(path)
    try:
        mode = folder.stat().st_mode
        if stat.S_ISREG(mode) and folder.suffix == ".gguf":
            return gguf_documents(_gguf_parts(folder))
        if not stat.S_ISDIR(mode):
            raise PlanError(
                _FIELD, str(path), f"{path} is a file; give a folder to --model-dir, or a config.json to --config."
            )
        config = folder / "config.json"
        return _from_folder(folder) if config.is_symlink() or config.exists() else _without_config(folder)
    except FileNotFoundError:
        raise PlanError(
            _FIELD, str(path), f"{path} does not exist; give the folder that a model was downloaded to."
        ) from None
    except (OSError, ValueError) as error:
        if isinstance(error, PlanError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise PlanError(
            _FIELD,
            str(path)[:200],
            f"{str(path)[:200]!r} cannot be read ({reason}); check its name, permissions and links.",
        ) from None


def _name_of(path: Path) -> str:
    parent = path.resolve().parent.name
    return parent if path.name == "config.json" and parent else path.stem


def config_documents(config: str | Path, name: str | None = None) -> ModelDocuments:
    """The documents of a config.json, plain or wrapped with its source, given as a path or as its text (which starts with "{")."""
    if isinstance(config, str) and config.lstrip("\ufeff \t\r\n").startswith("{"):
        if len(config) > LARGEST_CONFIG_BYTES:
            raise PlanError(
                "config", name, "The given config.json is larger than 10.0 MiB, too large to be what its name says."
            )
        return _from_text(config, name or "uploaded config", "the given config.json")
    path = Path(config)
    if path.suffix == ".gguf":
        return folder_documents(path)
    content = read_bytes(path, "config", LARGEST_CONFIG_BYTES)
    return _from_text(content, name or _name_of(path), path.name)


def _from_text(content: str | bytes, name: str, file_name: str) -> ModelDocuments:
    document = parse_object(content, file_name, "config")
    if is_wrapped(document):
        return wrapped_documents(document, source=f"{file_name}: {_text(document, 'source') or 'source not stated'}")
    text = content.decode("utf-8-sig") if isinstance(content, bytes) else content.removeprefix("\ufeff")
    return ModelDocuments(model_id=name, config_json=text, source=file_name)
