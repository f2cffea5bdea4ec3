"""A read start-up log as one JSON object with stable keys; docs/startup-logs.md explains each."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from planner.facts import Estimate
from planner.startup_facts import FailedStart, LogLine, StartupLog
from planner.units import GIB

# Key -> the figure of `RankMemory` it holds, in GiB.
GIB_KEYS = {
    "weights_gib_per_gpu": "weights",
    "available_kv_gib_per_gpu": "available_kv",
    "activation_peak_gib": "activation_peak",
    "non_torch_gib": "non_torch",
    "cuda_graph_gib": "cuda_graphs",
    "cuda_graph_estimate_gib": "cuda_graphs_estimate",
    "consumed_gib": "consumed",
    "requested_gib": "requested",
    "card_total_gib": "card_total",
    "free_at_start_gib": "free_at_start",
    "suggested_kv_to_fit_gib": "suggested_kv_to_fit",
    "suggested_kv_to_fill_gib": "suggested_kv_to_fill",
    "kv_given_gib": "kv_given",
    "cpu_offloaded_gib": "cpu_offloaded",
}
# Key -> the field of `StartupLog` it holds.
PLAIN_KEYS = {
    "vllm_version": "vllm_version",
    "engine": "engine",
    "platform": "platform",
    "gpu": "card_name",
    "model": "model_name",
    "model_path": "model_path",
    "served_model_name": "served_model_name",
    "architecture": "architecture",
    "tensor_parallel": "tensor_parallel_size",
    "pipeline_parallel": "pipeline_parallel_size",
    "data_parallel": "data_parallel_size",
    "enable_expert_parallel": "enable_expert_parallel",
    "max_model_len": "max_model_len",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "dtype": "dtype",
    "kv_cache_dtype": "kv_cache_dtype",
    "quantization": "quantization",
    "enforce_eager": "enforce_eager",
    "enable_prefix_caching": "enable_prefix_caching",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "cudagraph_mode": "cudagraph_mode",
    "attention_backend": "attention_backend",
    "model_runner": "model_runner",
    "compile_cache": "compile_cache",
    "compile_seconds": "compile_seconds",
    "kv_cache_tokens": "kv_cache_tokens",
    "max_concurrency": "max_concurrency",
    "num_gpu_blocks": "num_gpu_blocks",
    "num_cpu_blocks": "num_cpu_blocks",
    "block_size": "block_size",
    "padding_layers": "padding_layers",
    "equivalent_utilization": "equivalent_utilization",
}
# Where a key's fact has its line under another name.
_LINE_NAMES = {"block_size": "printed_block_size"}
_OUTCOMES = {"started": True, "failed": False, "unknown": None}


def to_json(log: StartupLog) -> dict[str, Any]:
    """The object of one start: null where the log does not say, GiB as printed, and the line of each fact."""
    record: dict[str, Any] = {key: getattr(log, name) for key, name in PLAIN_KEYS.items()}
    record |= {key: as_printed(log.memory(name)) for key, name in GIB_KEYS.items()}
    record["version_basis"] = None if log.release is None else log.release.basis
    record["release"] = None if log.release is None else log.release.text
    record["started_ok"] = _OUTCOMES[log.outcome]
    record["failure"] = None if log.failed_start is None else _failure(log.failed_start)
    record["start_number"], record["num_starts"] = log.start_number, log.num_starts
    record["ranks"] = [
        {"rank": rank.rank} | {key: as_printed(getattr(rank, name)) for key, name in GIB_KEYS.items()}
        for rank in log.ranks
    ]
    record["command"] = log.command
    record["arguments"] = {name: _plain(value) for name, value in log.arguments}
    record["lines"] = _lines(log)
    record["derived"] = dict(log.derived)
    record["unread"] = [_line(line) for line in log.unread]
    record["findings"] = [asdict(finding) for finding in log.findings]
    return record


def _lines(log: StartupLog) -> dict[str, list[Any]]:
    names = {**PLAIN_KEYS, **GIB_KEYS}
    found = {key: log.line_of(_LINE_NAMES.get(key, name)) for key, name in names.items()}
    lines = {key: _line(line) for key, line in found.items() if line is not None}
    if log.failed_start is not None:
        lines["failure"] = _line(log.failed_start.line)
    return lines


def _line(line: LogLine) -> list[Any]:
    return [line.number, line.text]


def as_printed(estimate: Estimate | None) -> float | None:
    """The GiB of an estimate as they were printed; of printed bytes, to four decimals."""
    if estimate is None:
        return None
    if estimate.formula.endswith(" GiB"):
        return float(estimate.formula.removesuffix(" GiB"))
    return round(estimate.best_bytes / GIB, 4)


def _failure(failed: FailedStart) -> dict[str, Any]:
    record: dict[str, Any] = {"kind": failed.kind, "text": failed.line.text}
    if failed.reading is None:
        return record
    for field in fields(failed.reading):
        value = getattr(failed.reading, field.name)
        if field.name == "kind":
            continue
        is_size = field.name.endswith("_bytes")
        name = field.name.removesuffix("_bytes") + "_gib" if is_size else field.name
        record[name] = round(value / GIB, 4) if is_size and value is not None else value
    return record


def _plain(value: object) -> object:
    """A setting as JSON has it; what JSON has no word for is a text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, float):
        return value if abs(value) < 1e300 else str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return str(value)
