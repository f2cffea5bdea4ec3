"""What `vllm:cache_config_info` says of one engine, and what in it must not be taken at its word."""

from __future__ import annotations

import math
from collections.abc import Sequence

from live.samples import CacheConfig, EngineSample
from planner.facts import Finding

_NO_VALUE = {"", "None", "null", "nan"}


def _number(labels: dict[str, str], name: str) -> float | None:
    text = labels.get(name, "").strip()
    if text in _NO_VALUE or "_" in text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _count(labels: dict[str, str], name: str) -> int | None:
    text = labels.get(name, "").strip()
    if text.isascii() and text.isdecimal() and len(text) < 25:
        return int(text)
    value = _number(labels, name)
    return int(value) if value is not None and value.is_integer() else None


def _flag(labels: dict[str, str], name: str) -> bool | None:
    return {"true": True, "false": False}.get(labels.get(name, "").strip().lower())


def _text(labels: dict[str, str], name: str) -> str | None:
    text = labels.get(name, "")
    return None if text in _NO_VALUE else text


def cache_config_from_labels(pairs: Sequence[tuple[str, str]]) -> CacheConfig:
    """The facts of an info series: its labels are Python's `str` of each field, "None" among them."""
    labels = dict(pairs)
    return CacheConfig(
        block_size=_count(labels, "block_size"),
        num_gpu_blocks=_count(labels, "num_gpu_blocks"),
        num_cpu_blocks=_count(labels, "num_cpu_blocks"),
        kv_cache_tokens=_count(labels, "kv_cache_size_tokens"),
        max_concurrency=_number(labels, "kv_cache_max_concurrency"),
        gpu_memory_utilization=_number(labels, "gpu_memory_utilization"),
        cache_dtype=_text(labels, "cache_dtype"),
        enable_prefix_caching=_flag(labels, "enable_prefix_caching"),
        num_gpu_blocks_override=_count(labels, "num_gpu_blocks_override"),
        kv_cache_memory_bytes=_count(labels, "kv_cache_memory_bytes"),
        kv_offloading_size_gib=_number(labels, "kv_offloading_size"),
        swap_space_bytes=_count(labels, "swap_space_bytes"),
        sliding_window=_count(labels, "sliding_window"),
        labels=tuple(sorted(labels.items())),
    )


def _summed_blocks(samples: Sequence[EngineSample]) -> list[Finding]:
    """V1's front end adds up the blocks of its data-parallel engines (v1/engine/core_client.py, before 0.20 utils.py)."""
    engines = {
        sample.identity.engine for sample in samples if sample.cache_config and sample.cache_config.num_gpu_blocks
    }
    models = {sample.identity.model_name for sample in samples}
    if len(engines) < 2 or len(models) != 1 or len({sample.identity.replica for sample in samples}) != 1:
        return []
    text = (
        f"One server exports {len(engines)} data-parallel engines. vLLM's front end adds their blocks up, so num_gpu_blocks "
        "may be that of all of them together; kv_cache_size_tokens is one engine's."
    )
    return [Finding(code="blocks-of-all-engines", severity="warning", text=text, field="num_gpu_blocks")]


def _hybrid(config: CacheConfig) -> list[Finding]:
    if config.kv_cache_tokens is None or config.num_gpu_blocks is None or config.block_size is None:
        return []
    product = config.num_gpu_blocks * config.block_size
    if product == config.kv_cache_tokens:
        return []
    text = (
        f"{config.num_gpu_blocks} blocks of {config.block_size} tokens would be {product}; the engine says "
        f"{config.kv_cache_tokens} tokens, which is what counts (groups share the blocks, or engines were added up)."
    )
    return [Finding(code="tokens-are-not-blocks-times-size", severity="info", text=text, field="kv_cache_tokens")]


def _backend(config: CacheConfig) -> list[Finding]:
    if config.label("cpu_kvcache_space_bytes") is None:
        return []
    text = "The engine runs on the CPU: its “GPU blocks” are in the host's memory."
    return [Finding(code="cpu-backend-blocks", severity="info", text=text, field="num_gpu_blocks")]


def config_findings(samples: Sequence[EngineSample]) -> list[Finding]:
    """What a reader must know of the samples' cache_config_info."""
    findings = _summed_blocks(samples)
    for sample in samples:
        if sample.cache_config is not None:
            found = _hybrid(sample.cache_config) + _backend(sample.cache_config)
            findings += [finding for finding in found if finding not in findings]
    return findings
