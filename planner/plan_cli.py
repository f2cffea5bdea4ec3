"""`python -m planner plan`: one request from flags, or many from a JSON Lines file, to JSON or a short text."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.bounded_files import refuse_duplicates
from planner.budget import card_of
from planner.calibration_file import held_in
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.model_catalog import catalogue_documents
from planner.model_folder import config_documents, folder_documents
from planner.plan_json import to_json
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest
from planner.units import GIB, MIB

Record = dict[str, Any]  # parsed JSON or flags, checked by PlanRequest.from_mapping

HELP = """usage: python -m planner plan [--model ID | --model-dir DIR | --config FILE] [--gpu NAME] [--gpu-memory-gib X]
                              [--vllm-version V] [vLLM flags by their own names] [--json]
       python -m planner plan --batch FILE.jsonl

  --model ID            a model of the offline catalogue
  --model-dir DIR       a folder with config.json (and safetensors headers, if there), or a .gguf file
  --config FILE         a config.json
  --gpu NAME            a card of the catalogue, such as "H100 80GB SXM"
  --gpu-memory-gib X    the total per card that CUDA reports; overrides the catalogue's
  --vllm-version V      default: the newest known
  --other-processes-gib X, --usage-context, --model-runner, --compile-cache, --mean-length-tokens
  --calibrations FILE   plan with a host's own constants: a file that the Calibrate page exports
  --json                the whole answer as one JSON object
  --batch FILE.jsonl    one request a line (the same names with underscores), one JSON answer a line
"""
_SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
    "-q": "quantization",
}
_SWITCHES = {field.name for field in fields(EngineFlags) if str(field.type).startswith("bool")} | {
    "json", "allow_long_max_model_len"
}  # fmt: skip
_SOURCES = ("model", "model_dir", "config")
LARGEST_BATCH_LINE = 16 * MIB


def main(argv: Sequence[str]) -> int:
    """The exit status: 0 also for "will not start", 2 for bad input."""
    if any(word in ("-h", "--help") for word in argv):
        sys.stdout.write(HELP)
        return 0
    try:
        record = _record_of(argv)
        batch = record.pop("batch", None)
        if batch is not None:
            return _run_batch(str(batch), record)
        is_json = record.pop("json", False)
        result = _answer(record)
    except PlanError as error:
        sys.stderr.write(" ".join(error.text.split()) + "\n")  # one line, whatever a name holds
        return 2
    sys.stdout.write(json.dumps(result) if is_json else _text(result))
    sys.stdout.write("\n")
    return 0


def _record_of(argv: Sequence[str]) -> Record:
    """The flags of `argv` by name with underscores; what they mean is checked later."""
    record: Record = {}
    words = iter(argv)
    for word in words:
        name, has_value, value = _split(word)
        if has_value:
            pass
        elif name in _SWITCHES:
            value = True
        elif name.startswith("no_") and name[3:] in _SWITCHES:
            name, value = name[3:], False
        else:
            value = next(words, None)
            if value is None:
                raise PlanError(name, None, f"{word} needs a value after it.")
        if name in record:
            raise PlanError(name, value, f"{word} is given twice.")
        record[name] = value
    return record


def _split(word: str) -> tuple[str, bool, Any]:
    head, equals, value = word.partition("=")
    if head in _SHORT:
        return _SHORT[head], bool(equals), value
    if not head.startswith("--") or len(head) < 3:
        raise PlanError("arguments", word, f"{word[:80]!r} is not a flag; python -m planner plan --help lists them.")
    return head[2:].replace("-", "_"), bool(equals), value


def _answer(record: Record) -> Record:
    documents = _documents(record)
    named = {key: value for key, value in record.items() if key not in _SOURCES}
    file = named.pop("calibrations", None)
    request = PlanRequest.from_mapping({"model": documents.model_id, **named})
    held = None if file is None else held_in(Path(str(file)), card_of(request).name, request.vllm_version)
    if held is not None and request.calibration is None:
        request = replace(request, calibration=held.identity)
    result, model = answer(request, documents, _draft_documents(request), held)
    return to_json(result, model)


def _draft_documents(request: PlanRequest) -> ModelDocuments | None:
    """The documents of a draft model that is named by a path, as vLLM prefers one; else None: the catalogue is asked."""
    config = request.flags.speculative_config
    if config is None or config.model is None:
        return None
    path = Path(config.model)
    if path.is_file():
        return _load("config", config.model)
    is_path = path.is_dir() or config.model.startswith(("/", "./", "../"))
    return _load("model_dir", config.model) if is_path else None


def _documents(record: Record) -> ModelDocuments:
    given = [(name, record[name]) for name in _SOURCES if record.get(name) is not None]
    if len(given) != 1:
        text = "Give exactly one of model, model_dir and config: which model is to be planned?"
        raise PlanError("model", None, text)
    name, value = given[0]
    if not isinstance(value, str):
        raise PlanError(name, value, f"{name} is {str(value)[:60]!r}, but a text is needed.")
    return _load(name, value)


@lru_cache(maxsize=64)
def _load(source: str, value: str) -> ModelDocuments:
    if source == "model":
        return catalogue_documents(value)
    if source == "model_dir":
        return folder_documents(value)
    return config_documents(Path(value))


def _run_batch(path: str, others: Record) -> int:
    if others.keys() - {"json"}:
        raise PlanError("batch", path, "--batch takes every setting from its file; give no other flag beside it.")
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(_lines(file), start=1):
                if line.strip():
                    sys.stdout.write(json.dumps(_batch_answer(line, number)) + "\n")
    except OSError as error:
        raise PlanError("batch", path, f"--batch {path} cannot be read: {error.strerror}.") from error
    return 0


def _lines(file: Any) -> Iterator[bytes]:  # Any: a binary file object
    """Lines of at most LARGEST_BATCH_LINE bytes; the rest of a longer one is dropped, which makes it a bad line."""
    while line := file.readline(LARGEST_BATCH_LINE):
        yield line
        while not line.endswith(b"\n") and len(line) == LARGEST_BATCH_LINE:
            line = file.readline(LARGEST_BATCH_LINE)


def _batch_answer(line: bytes, number: int) -> Record:
    try:
        return _answer(_parsed(line))
    except PlanError as error:
        value = error.value if isinstance(error.value, str | int | bool) or _is_finite(error.value) else None
        return {"error": {"line": number, "field": error.field, "value": value, "message": error.text}}


def _is_finite(value: object) -> bool:
    """Whether JSON has a way to write `value`, a number: it has none for NaN and infinity."""
    return isinstance(value, float) and math.isfinite(value)


def _parsed(line: bytes) -> Record:
    try:
        record = json.loads(line, object_pairs_hook=refuse_duplicates)
    except (ValueError, RecursionError) as error:
        why = f": {error}" if "stands twice" in str(error) else ""
        raise PlanError("line", None, f"The line is not a JSON object{why}; write one request a line.") from error
    if not isinstance(record, dict):
        raise PlanError("line", None, "The line is not a JSON object; write one request a line.")
    return record


def _text(result: Record) -> str:
    """The answer in a dozen lines for a terminal."""
    verdict = "starts" if result["will_start"] else "does not start"
    rows = [f"{result['model_id']} on {result['gpu']}, vLLM {result['vllm_version']}: {verdict}", result["reason"], ""]
    rows += [_row(line) for line in result["lines"] if line["bytes"] or line["name"] == "kv_pool"]
    rows += [
        "",
        f"KV cache: {result['num_gpu_blocks']:,} blocks of {result['block_size']} tokens, {result['kv_cache_tokens']:,} tokens",
    ]
    rows += [f"{finding['severity']}: {finding['text']}" for finding in result["findings"]]
    rows += [f"try {item['change']}: {item['effect']}" for item in result["advice"]]
    return "\n".join([*rows, "", result["serve_command"]])


def _row(line: Record) -> str:
    low, high = line["low_bytes"] / GIB, line["high_bytes"] / GIB
    band = "" if low == high else f"   [{low:.2f} to {high:.2f}]"
    return f"  {line['name'].replace('_', ' '):22}{line['bytes'] / GIB:9.2f} GiB{band}"
