"""The facts that a start's settings lines state: the engine's config, what the user gave, and which overrides which."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from planner.startup_config import Pairs, arguments, engine_config, read_object_text
from planner.startup_facts import LogLine

_LONGEST_SHOWN = 600
CONFIG_WEIGHT, ARGUMENT_WEIGHT = 3, 2

# Setting of the engine's config line -> (fact, type it has there).
_CONFIG_FACTS: dict[str, tuple[str, type]] = {
    "model": ("model_name", str),
    "dtype": ("dtype", str),
    "max_seq_len": ("max_model_len", int),
    "tensor_parallel_size": ("tensor_parallel_size", int),
    "pipeline_parallel_size": ("pipeline_parallel_size", int),
    "data_parallel_size": ("data_parallel_size", int),
    "quantization": ("quantization", str),
    "enforce_eager": ("enforce_eager", bool),
    "kv_cache_dtype": ("kv_cache_dtype", str),
    "device_config": ("device", str),
    "served_model_name": ("served_model_name", str),
    "enable_prefix_caching": ("enable_prefix_caching", bool),
    "chunked_prefill_enabled": ("enable_chunked_prefill", bool),
    "enable_chunked_prefill": ("enable_chunked_prefill", bool),
}
_ARGUMENT_FACTS: dict[str, tuple[str, type]] = {
    "model": ("model_name", str),
    "model_tag": ("model_name", str),
    "max_model_len": ("max_model_len", int),
    "tensor_parallel_size": ("tensor_parallel_size", int),
    "pipeline_parallel_size": ("pipeline_parallel_size", int),
    "data_parallel_size": ("data_parallel_size", int),
    "enable_expert_parallel": ("enable_expert_parallel", bool),
    "gpu_memory_utilization": ("gpu_memory_utilization", float),
    "quantization": ("quantization", str),
    "enforce_eager": ("enforce_eager", bool),
    "kv_cache_dtype": ("kv_cache_dtype", str),
    "enable_prefix_caching": ("enable_prefix_caching", bool),
    "enable_chunked_prefill": ("enable_chunked_prefill", bool),
    "max_num_seqs": ("max_num_seqs", int),
    "max_num_batched_tokens": ("max_num_batched_tokens", int),
}
_TORN = re.compile(r"=|, |: |\\n|\n")  # two lines run together: no name holds these
_NAMED_MODE = re.compile(r"cudagraph_mode['\"]?\s*[:=]\s*<CUDAGraphMode\.([A-Z_]{1,40})\b")
# CUDAGraphMode by its values (vllm/config/compilation.py): one, or the pair of uniform and mixed batches.
_MODES: dict[tuple[object, ...], str] = {
    (0,): "NONE",
    (1,): "PIECEWISE",
    (2,): "FULL",
    (2, 0): "FULL_DECODE_ONLY",
    (2, 1): "FULL_AND_PIECEWISE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One fact that a settings line states."""

    fact: str
    value: str | int | float | bool
    line: LogLine
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsLine:
    """A settings line: all its pairs, and the facts among them."""

    kind: str  # "engine" or "arguments"
    pairs: Pairs
    facts: tuple[Setting, ...]


def read_settings(number: int, text: str) -> SettingsLine | None:
    """The settings that a line prints, or None when it prints none."""
    if "with config: " in text and "engine" in text:
        pairs = engine_config(text)
        facts = [*_facts(pairs, _CONFIG_FACTS, number, text, CONFIG_WEIGHT), *_graph_mode(pairs, number, text)]
        return SettingsLine(kind="engine", pairs=pairs, facts=tuple(facts)) if pairs else None
    if "args: " in text or "Namespace(" in text:
        pairs = arguments(text)
        facts = list(_facts(pairs, _ARGUMENT_FACTS, number, text, ARGUMENT_WEIGHT))
        return SettingsLine(kind="arguments", pairs=pairs, facts=tuple(facts)) if pairs else None
    return None


def _facts(
    pairs: Pairs, names: Mapping[str, tuple[str, type]], number: int, text: str, weight: int
) -> Iterator[Setting]:
    settings = dict(pairs)
    for name, (fact, kind) in names.items():
        value = _plain(settings.get(name), kind)
        is_torn = isinstance(value, str) and _TORN.search(value) is not None
        if value is not None and not is_torn:
            yield Setting(fact=fact, value=value, line=_line(number, text, name), weight=weight)


def _plain(value: object, kind: type) -> str | int | float | bool | None:
    """The setting as its fact's type, or None when it is not said, or not as vLLM says it."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        return None
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.removeprefix("torch.")
        return None if text in ("", "None", "null") or len(text) > 500 else text
    if isinstance(value, int | float):
        return value if 0 < value < 10**15 else None
    return None


def _graph_mode(pairs: Pairs, number: int, text: str) -> Iterator[Setting]:
    value = dict(pairs).get("compilation_config")
    settings = value if isinstance(value, dict) else read_object_text(value) if isinstance(value, str) else {}
    mode = settings.get("cudagraph_mode")
    if isinstance(mode, list | tuple):
        mode = _MODES.get(tuple(mode))
    elif isinstance(mode, int) and not isinstance(mode, bool):
        mode = _MODES.get((mode,))
    if mode is None and (named := _NAMED_MODE.search(text)) is not None:  # the line was cut within its compile settings
        mode = named[1]
    name = mode.removeprefix("CUDAGraphMode.") if isinstance(mode, str) else ""
    if name in _MODES.values():
        line = _line(number, text, "cudagraph_mode")
        yield Setting(fact="cudagraph_mode", value=name, line=line, weight=CONFIG_WEIGHT)


def _line(number: int, text: str, name: str) -> LogLine:
    """The part of a settings line around the setting `name`; the whole where it is short."""
    if len(text) <= _LONGEST_SHOWN:
        return LogLine(number=number, text=text.strip())
    position = max(text.find(f"{name}="), text.find(f"'{name}'"), text.find(f'"{name}"'), 0)
    begin = max(0, position - 60)
    return LogLine(number=number, text=text[begin : begin + _LONGEST_SHOWN].strip())
