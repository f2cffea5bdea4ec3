"""A request as a record: a line of the batch file, a form, a parsed command. Unknown keys and odd values are refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from planner.backend_names import read_attention_backend, read_moe_backend
from planner.facts import PlanError
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.request_values import (
    Reader,
    one_of,
    read_counts,
    read_flag,
    read_integer,
    read_integers,
    read_length,
    read_number,
    read_object,
    read_text,
    refuse,
)
from planner.units import GIB, MIB

LARGEST_CONFIG_CHARACTERS = MIB
# SpeculativeMethod of vllm/config/speculative.py in 0.8.5 to 0.33.0; beside these, all that end in mtp.
_SPECULATIVE_METHODS = frozenset({
    "custom_class", "dflash", "draft_model", "dspark", "eagle", "eagle3", "extract_hidden_states", "medusa",
    "mlp_speculator", "ngram", "ngram_gpu", "suffix",
})  # fmt: skip
_UPLOADED = "uploaded config.json"
_CALIBRATION = re.compile(r"[A-Za-z0-9._-]{1,63}~[0-9a-f]{8}", re.ASCII)  # a host and a digest
MAMBA_DTYPES = ("auto", "float32", "float16", "bfloat16")  # MambaDType, vllm/config/cache.py


def read_speculation(name: str, value: object) -> SpeculativeConfig:
    """The speculative config in vLLM's JSON; the method is inferred as vLLM does when only a model is named."""
    settings = read_object(name, value)
    model, method = settings.get("model"), settings.get("method")
    if method is None and model is not None:
        method = _method_of(read_text(f"{name}.model", model))
    if method is None:
        raise refuse(name, value, 'a method, as in {"method": "ngram", "num_speculative_tokens": 3}')
    spoken = read_text(f"{name}.method", method).strip("[]").lower()
    if spoken not in _SPECULATIVE_METHODS and not spoken.endswith("mtp"):
        raise refuse(f"{name}.method", method, f"mtp or one of {', '.join(sorted(_SPECULATIVE_METHODS))}")
    tokens = settings.get("num_speculative_tokens")
    if tokens is None:
        raise refuse(name, value, "num_speculative_tokens beside the method")
    number = read_integer(f"{name}.num_speculative_tokens", tokens)
    if not 1 <= number <= 1024:
        raise refuse(f"{name}.num_speculative_tokens", number, "a number from 1 to 1024")
    draft_tp = settings.get("draft_tensor_parallel_size")
    return SpeculativeConfig(
        method=spoken,
        num_speculative_tokens=number,
        model=None if model is None else read_text(f"{name}.model", model),
        draft_tensor_parallel_size=(
            None if draft_tp is None else read_integer(f"{name}.draft_tensor_parallel_size", draft_tp)
        ),
    )


def _method_of(model: str) -> str:
    name = model.lower()
    if name in ("ngram", "[ngram]"):
        return "ngram"
    known = {"eagle3": "eagle3", "eagle-3": "eagle3", "eagle": "eagle", "medusa": "medusa", "dflash": "dflash"}
    return next((method for word, method in known.items() if word in name), "draft_model")


def write_speculation(config: SpeculativeConfig) -> dict[str, object]:
    """The JSON object that `read_speculation` turns back into `config`."""
    pairs = ((field.name, getattr(config, field.name)) for field in fields(SpeculativeConfig))
    return {name: value for name, value in pairs if value is not None}


def _read_gib(name: str, value: object) -> int:
    """Bytes from a size in GiB."""
    size = read_number(name, value)
    if not 0 <= size <= 2**20:
        raise refuse(name, value, "a size in GiB, of at least 0")
    return round(size * GIB)


def _read_bytes(name: str, value: object) -> int:
    size = read_integer(name, value)
    if size < 0:
        raise refuse(name, value, "a number of bytes, of at least 0")
    return size


def _read_mean_length(name: str, value: object) -> int:
    length = read_integer(name, value)
    if length < 1:
        raise refuse(name, value, "a number of tokens, of at least 1")
    return length


def _read_calibration(name: str, value: object) -> str:
    text = read_text(name, value)
    if _CALIBRATION.fullmatch(text) is None:
        raise refuse(name, value, "a calibration's name, such as node1~3f2a91bc")
    return text


def _read_config(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > LARGEST_CONFIG_CHARACTERS:
        raise PlanError(name, None, f"{name} must be the text of a config.json of at most 1 MiB.")
    return value


FLAG_READERS: dict[str, Reader] = {
    "tensor_parallel_size": read_integer,
    "pipeline_parallel_size": read_integer,
    "data_parallel_size": read_integer,
    "enable_expert_parallel": read_flag,
    "decode_context_parallel_size": read_integer,
    "gpu_memory_utilization": read_number,
    "kv_cache_memory_bytes": _read_bytes,
    "num_gpu_blocks_override": read_integer,
    "max_model_len": read_length,
    "max_num_seqs": read_integer,
    "max_num_batched_tokens": read_integer,
    "block_size": read_integer,
    "kv_cache_dtype": read_text,
    "dtype": read_text,
    "quantization": read_text,
    "enforce_eager": read_flag,
    "cudagraph_capture_sizes": read_integers,
    "max_cudagraph_capture_size": read_integer,
    "cudagraph_mode": read_text,
    "enable_prefix_caching": read_flag,
    "enable_chunked_prefill": read_flag,
    "disable_hybrid_kv_cache_manager": read_flag,
    "async_scheduling": read_flag,
    "cpu_offload_gb": read_number,
    "kv_offloading_size": read_number,
    "swap_space": read_number,
    "enable_lora": read_flag,
    "max_loras": read_integer,
    "max_lora_rank": read_integer,
    "fully_sharded_loras": read_flag,
    "speculative_config": read_speculation,
    "limit_mm_per_prompt": read_counts,
    "language_model_only": read_flag,
    "skip_mm_profiling": read_flag,
    "mamba_cache_dtype": one_of(*MAMBA_DTYPES),
    "mamba_ssm_cache_dtype": one_of(*MAMBA_DTYPES),
    "mamba_cache_mode": read_text,
    "performance_mode": read_text,
    "attention_backend": read_attention_backend,
    "moe_backend": read_moe_backend,
    "disable_sliding_window": read_flag,
}

REQUEST_READERS: dict[str, Reader] = {
    "model_id": read_text,
    "revision": read_text,
    "config_json": _read_config,
    "gpu": read_text,
    "gpu_memory_bytes": _read_bytes,
    "other_processes_bytes": _read_bytes,
    "vllm_version": read_text,
    "usage_context": one_of("api_server", "llm_class"),
    "model_runner": one_of("auto", "v1", "v2"),
    "compile_cache": one_of("unknown", "cold", "warm"),
    "mean_length_tokens": _read_mean_length,
    "allow_long_max_model_len": read_flag,
    "calibration": _read_calibration,
}
# Other spellings of a key: (the request's field, how to read it).
_SPELLINGS: dict[str, tuple[str, Reader]] = {
    "model": ("model_id", read_text),
    "gpu_memory_gib": ("gpu_memory_bytes", _read_gib),
    "other_processes_gib": ("other_processes_bytes", _read_gib),
    "device_memory_utilization": ("gpu_memory_utilization", read_number),
}


def request_from_mapping(record: Mapping[str, object]) -> PlanRequest:
    """The request in `record`; a value of None counts as not given."""
    request: dict[str, Any] = {}  # field name -> value as its reader returned it
    flags: dict[str, Any] = {}
    for key, value in record.items():
        name, reader = _SPELLINGS.get(key, (key, FLAG_READERS.get(key) or REQUEST_READERS.get(key)))
        if reader is None:
            raise PlanError(str(key), value, _unknown_key(str(key)))
        if value is not None:
            (flags if name in FLAG_READERS else request)[name] = reader(key, value)
    if "model_id" not in request:
        if "config_json" not in request:
            raise PlanError("model", None, "The request names no model; give model, or config_json.")
        request["model_id"] = _UPLOADED
    return PlanRequest(**request, flags=EngineFlags(**flags))


def _unknown_key(key: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only the error path needs it

    near = get_close_matches(key, [*FLAG_READERS, *REQUEST_READERS, *_SPELLINGS], n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; keys are vLLM's long flag names with underscores."
    return f"{key[:80]!r} is not a key of a request{hint}"


def request_to_mapping(request: PlanRequest) -> dict[str, object]:
    """The record of `request`; values at their default are left out, so that records stay short and stable."""
    record: dict[str, object] = {"model_id": request.model_id}
    for field in fields(PlanRequest):
        value = getattr(request, field.name)
        if field.name not in ("flags", "model_id") and value != field.default:
            record[field.name] = value
    for field in fields(EngineFlags):
        value = getattr(request.flags, field.name)
        if value != field.default:
            record[field.name] = _plain(value)
    return record


def _plain(value: object) -> object:
    if isinstance(value, SpeculativeConfig):
        return write_speculation(value)
    if isinstance(value, tuple):
        return dict(value) if value and isinstance(value[0], tuple) else list(value)
    return value
