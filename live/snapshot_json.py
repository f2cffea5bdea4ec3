"""An `EngineSnapshot` as the command line's JSON and as lines to read. Absent stays null, or "not exported"."""

from __future__ import annotations

from live.samples import EngineSample, EngineSnapshot

# The keys of one engine, and the sample's field each one shows.
_NUMBERS = (
    "kv_usage_fraction",
    "cpu_kv_usage_fraction",
    "num_requests_running",
    "num_requests_waiting",
    "num_requests_swapped",
    "num_preemptions",
    "prefix_cache_queries_tokens",
    "prefix_cache_hits_tokens",
    "external_prefix_cache_queries_tokens",
    "external_prefix_cache_hits_tokens",
)
_CONFIG = ("block_size", "num_gpu_blocks", "num_cpu_blocks", "kv_cache_tokens", "max_concurrency")
_LATER_NUMBERS = ("offload_store_bytes", "offload_load_bytes", "prompt_tokens", "generation_tokens")


def _shown(name: str, value: float | None) -> float | int | None:
    """Counts as integers, fractions as they are."""
    if value is None or name.endswith(("_fraction", "_concurrency")):
        return value
    return int(value) if float(value).is_integer() else value


def engine_to_json(sample: EngineSample) -> dict[str, object]:
    """One engine's record; null is "not exported by this version" or unknown."""
    record: dict[str, object] = {"model_name": sample.identity.model_name, "engine": sample.identity.engine}
    record |= {name: _shown(name, getattr(sample, name)) for name in _NUMBERS}
    record |= {name: _shown(name, getattr(sample.cache_config, name, None)) for name in _CONFIG}
    record |= {name: _shown(name, getattr(sample, name)) for name in _LATER_NUMBERS}
    if sample.identity.replica is not None:
        record["replica"] = sample.identity.replica
    return record


def snapshot_to_json(snapshot: EngineSnapshot) -> dict[str, object]:
    """The whole answer of `python -m live snapshot --json`."""
    return {
        "vllm_version": snapshot.vllm_version,
        "engines": [engine_to_json(sample) for sample in snapshot.engines],
        "findings": [
            {"code": finding.code, "severity": finding.severity, "text": finding.text, "field": finding.field}
            for finding in snapshot.findings
        ],
    }


def snapshot_to_lines(snapshot: EngineSnapshot) -> list[str]:
    """The same for a reader: one line a number, what is absent said so."""
    lines = [f"{snapshot.source}: vLLM {snapshot.vllm_version or '(version not said)'}"]
    lines += [
        f"serves {model.model_id}"
        + (f", max_model_len {model.max_model_len:,} tokens" if model.max_model_len is not None else "")
        for model in snapshot.models
    ]
    for sample in snapshot.engines:
        record = engine_to_json(sample)
        lines.append(f"engine {record.pop('engine') or '(unnamed)'} of {record.pop('model_name') or '(unnamed model)'}")
        lines += [f"  {name}: {'not exported' if value is None else value}" for name, value in record.items()]
    return [*lines, *(f"{finding.severity} {finding.code}: {finding.text}" for finding in snapshot.findings)]
