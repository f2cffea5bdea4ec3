"""The `vllm serve` line that reproduces a plan, with the flags that are not at their default."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields

from planner.defaults import Resolved
from planner.flags import all_flags
from planner.request import EngineFlags, PlanRequest, SpeculativeConfig
from planner.request_mapping import write_speculation
from planner.versions import Version

_FIRST_CAPTURE_FLAGS = Version(0, 12, 0)
_FIRST_BACKEND_FLAG = Version(0, 13, 0)
_FIRST_SPECULATIVE_CONFIG = Version(0, 8, 0)
_FIRST_JSON_LIMITS = Version(0, 9, 0)  # 0.8.5 takes image=2 and JSON, 0.6.6 only the former
_FIRST_NO_CHUNKED_PREFILL = Version(0, 8, 0)  # before: --enable-chunked-prefill True or False
# Fields written as parts of another flag or as environment variables.
_WRITTEN_APART = frozenset(
    {
        "cudagraph_mode",
        "cudagraph_capture_sizes",
        "max_cudagraph_capture_size",
        "attention_backend",
        "speculative_config",
    }
)


def serve_command(request: PlanRequest, resolved: Resolved) -> str:
    """The shell line that starts vLLM with the flags of `request`; flags that the release lacks are left out."""
    flags, version = request.flags, resolved.version
    words = ["vllm", "serve", request.model_id]
    if request.revision is not None:
        words += ["--revision", request.revision]
    for field in fields(EngineFlags):
        value = getattr(flags, field.name)
        if value != field.default and field.name not in _WRITTEN_APART and _exists(field.name, version):
            words += _written_before(field.name, value, version) or _written(field.name, value)
    words += _graph_words(flags, version)
    if flags.attention_backend is not None and version >= _FIRST_BACKEND_FLAG:
        words += ["--attention-backend", flags.attention_backend]
    if flags.speculative_config is not None:
        words += _speculative_words(flags.speculative_config, version)
    return " ".join([*_environment(request, version), *map(shlex.quote, words)])


def _exists(name: str, version: Version) -> bool:
    flag = all_flags().get(name.replace("_", "-"))
    return flag is None or flag.is_in(version)


def _written_before(name: str, value: object, version: Version) -> list[str]:
    """A flag as older releases spelt it (vllm/engine/arg_utils.py of 0.6.6 and 0.8.5); nothing where that was as now."""
    if name == "limit_mm_per_prompt" and isinstance(value, tuple) and version < _FIRST_JSON_LIMITS:
        return ["--limit-mm-per-prompt", ",".join(f"{kind}={count}" for kind, count in value)]
    if name == "enable_chunked_prefill" and version < _FIRST_NO_CHUNKED_PREFILL:
        return ["--enable-chunked-prefill", str(value)]
    return []


def _written(name: str, value: object) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if isinstance(value, tuple):
        return [f"--{flag}", json.dumps(dict(value), separators=(",", ":"))]
    if isinstance(value, float):
        return [f"--{flag}", repr(value).removesuffix(".0")]
    return [f"--{flag}", str(value)]


def _graph_words(flags: EngineFlags, version: Version) -> list[str]:
    """Capture sizes have flags of their own since 0.12, before which the largest cannot be set; the mode has none."""
    words: list[str] = []
    config: dict[str, object] = {}
    sizes, largest = flags.cudagraph_capture_sizes, flags.max_cudagraph_capture_size
    if flags.cudagraph_mode is not None:
        config["cudagraph_mode"] = flags.cudagraph_mode
    if version < _FIRST_CAPTURE_FLAGS:
        config |= {"cudagraph_capture_sizes": list(sizes)} if sizes is not None else {}
    else:
        words += ["--cudagraph-capture-sizes", *map(str, sizes)] if sizes is not None else []
        words += ["--max-cudagraph-capture-size", str(largest)] if largest is not None else []
    if config:
        words += ["--compilation-config", json.dumps(config, separators=(",", ":"))]
    return words


def _speculative_words(config: SpeculativeConfig, version: Version) -> list[str]:
    if version >= _FIRST_SPECULATIVE_CONFIG:
        return ["--speculative-config", json.dumps(write_speculation(config), separators=(",", ":"))]
    words = ["--speculative-model", config.model or f"[{config.method}]"]
    words += ["--num-speculative-tokens", str(config.num_speculative_tokens)]
    if config.draft_tensor_parallel_size is not None:
        words += ["--speculative-draft-tensor-parallel-size", str(config.draft_tensor_parallel_size)]
    return words


def _environment(request: PlanRequest, version: Version) -> list[str]:
    variables = []
    if request.model_runner != "auto":
        variables.append(f"VLLM_USE_V2_MODEL_RUNNER={int(request.model_runner == 'v2')}")
    if request.allow_long_max_model_len:
        variables.append("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1")
    backend = request.flags.attention_backend
    if backend is not None and version < _FIRST_BACKEND_FLAG:
        variables.append(f"VLLM_ATTENTION_BACKEND={shlex.quote(backend)}")
    return variables
