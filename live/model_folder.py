"""Writes fetched model facts as the folder that `--model-dir` reads, whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from live.hub_cache import FetchedModel
from planner.facts import PlanError
from planner.model_folder import HEADERS_FILE

_OUR_FILES = frozenset(
    {"config.json", "hf_quant_config.json", "tokenizer_config.json", "generation_config.json", HEADERS_FILE}
)


def _headers(model: FetchedModel) -> dict[str, object]:
    tensors = model.tensors
    rows = (
        None
        if tensors is None
        else {t.name: {"dtype": t.dtype, "shape": t.shape, "bytes": t.num_bytes} for t in tensors}
    )
    return {
        "model_id": model.model_id,
        "revision": model.commit,
        "source": model.source,
        "endpoint": model.endpoint,
        "total_size": model.checkpoint_total_bytes,
        "tensors": rows,
        "is_sentence_transformer": model.is_sentence_transformer,
    }


def _contents(model: FetchedModel) -> dict[str, str]:
    files = {"config.json": model.config_json, HEADERS_FILE: json.dumps(_headers(model))}
    if model.hf_quant_config_json is not None:
        files["hf_quant_config.json"] = model.hf_quant_config_json
    if model.tokenizer_max_length is not None:
        files["tokenizer_config.json"] = json.dumps({"model_max_length": model.tokenizer_max_length})
    if model.generation_max_length is not None:
        files["generation_config.json"] = json.dumps({"max_length": model.generation_max_length})
    return files


def _check_free(folder: Path) -> None:
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir():
        raise PlanError("out", str(folder), f"--out {folder} is a file; name a folder.")
    present = {entry.name for entry in folder.iterdir()}
    foreign = sorted(present - _OUR_FILES)
    if foreign or (present and HEADERS_FILE not in present):
        held = foreign[0] if foreign else min(present)
        raise PlanError("out", str(folder), f"--out {folder} already holds other files ({held}); name a new folder.")


def _replace(made: Path, folder: Path) -> None:
    if not folder.exists():
        made.rename(folder)
        return
    old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.old-"))
    folder.rename(old / folder.name)
    made.rename(folder)
    shutil.rmtree(old)


def write_folder(model: FetchedModel, folder: Path) -> Path:
    """The folder written; an existing one is replaced only if it was written here and holds nothing else."""
    target = folder.resolve()
    try:
        _check_free(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.part-"))
        try:
            for name, content in _contents(model).items():
                (made / name).write_text(content, encoding="utf-8")
            made.chmod(0o755)  # mkdtemp's folders are for their owner only
            _replace(made, target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise PlanError(
            "out", str(folder), f"--out {folder} cannot be written ({error.strerror}); name another folder."
        ) from None
    return target
