"""vLLM's metric names, old and new, and the sample's fields they fill. Names have no `_total`; Ray's spelling is undone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# Where Ray exports vLLM's metrics it prefixes "ray_", and its OpenTelemetry way turns ":" into "_"
# (v1/metrics/ray_wrappers.py).
_OWN_NAME = re.compile(r"(?:ray_)?vllm[:_](?=[a-z])")
_WHOLE_OWN_NAME = re.compile(_OWN_NAME.pattern + r"[a-zA-Z0-9_]+")

CACHE_CONFIG_INFO = "vllm:cache_config_info"
PROCESS_START = "process_start_time_seconds"

HistogramPart = Literal["bucket", "sum", "count"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRule:
    """How one field is filled: the names that hold it, newest first, each with the labels that pick one of its series."""

    names: tuple[str, ...]
    picks: tuple[tuple[str, str], ...] = ()  # apply to the last name only: an older family that carries a direction
    is_fraction: bool = False
    is_hit_rate: bool = False  # -1 means "off or no data"


def _names(*names: str) -> NumberRule:
    return NumberRule(names=tuple(f"vllm:{name}" for name in names))


def _fraction(*names: str) -> NumberRule:
    return NumberRule(names=tuple(f"vllm:{name}" for name in names), is_fraction=True)


def _hit_rate(name: str) -> NumberRule:
    return NumberRule(names=(f"vllm:{name}",), is_fraction=True, is_hit_rate=True)


def _directed(new: str, old: str, transfer_type: str) -> NumberRule:
    """Builds from 0.25 on export a transfer under both names: one of the two is counted."""
    return NumberRule(names=(f"vllm:{new}", f"vllm:{old}"), picks=(("transfer_type", transfer_type),))


NUMBER_RULES: dict[str, NumberRule] = {
    "kv_usage_fraction": _fraction("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    "cpu_kv_usage_fraction": _fraction("cpu_cache_usage_perc"),
    "num_requests_running": _names("num_requests_running"),
    "num_requests_waiting": _names("num_requests_waiting"),
    "num_requests_swapped": _names("num_requests_swapped"),
    "gpu_prefix_cache_hit_fraction": _hit_rate("gpu_prefix_cache_hit_rate"),
    "cpu_prefix_cache_hit_fraction": _hit_rate("cpu_prefix_cache_hit_rate"),
    "kv_offload_cpu_pinned_fraction": _fraction("kv_offload_cpu_cache_usage_perc"),
    "kv_offload_cpu_read_fraction": _fraction("kv_offload_cpu_cache_read_usage_perc"),
    "kv_offload_cpu_write_fraction": _fraction("kv_offload_cpu_cache_write_usage_perc"),
    "simple_offload_used_blocks": _names("simple_kv_offload_used_blocks"),
    "simple_offload_pending_store_blocks": _names("simple_kv_offload_pending_store_blocks"),
    "hisparse_host_usage_fraction": _fraction("hisparse_host_cache_usage_perc"),
    "num_preemptions": _names("num_preemptions"),
    "prefix_cache_queries_tokens": _names("prefix_cache_queries", "gpu_prefix_cache_queries"),
    "prefix_cache_hits_tokens": _names("prefix_cache_hits", "gpu_prefix_cache_hits"),
    "external_prefix_cache_queries_tokens": _names("external_prefix_cache_queries"),
    "external_prefix_cache_hits_tokens": _names("external_prefix_cache_hits"),
    "mm_cache_queries_items": _names("mm_cache_queries"),
    "mm_cache_hits_items": _names("mm_cache_hits"),
    "prompt_tokens": _names("prompt_tokens"),
    "prompt_tokens_cached": _names("prompt_tokens_cached"),
    "prompt_tokens_recomputed": _names("prompt_tokens_recomputed"),
    "generation_tokens": _names("generation_tokens"),
    "offload_store_bytes": _directed("kv_offload_store_bytes", "kv_offload_total_bytes", "GPU_to_CPU"),
    "offload_load_bytes": _directed("kv_offload_load_bytes", "kv_offload_total_bytes", "CPU_to_GPU"),
    "offload_store_seconds": _directed("kv_offload_store_time", "kv_offload_total_time", "GPU_to_CPU"),
    "offload_load_seconds": _directed("kv_offload_load_time", "kv_offload_total_time", "CPU_to_GPU"),
    "offload_stores_skipped": _names("kv_offload_stores_skipped"),
    "offload_allocation_failures": _names("kv_offload_allocation_failure"),
    "simple_offload_load_blocks": _names("simple_kv_offload_load_blocks"),
    "corrupted_requests": _names("corrupted_requests"),
    "spec_decode_num_drafts": _names("spec_decode_num_drafts"),
    "spec_decode_draft_tokens": _names("spec_decode_num_draft_tokens"),
    "spec_decode_accepted_tokens": _names("spec_decode_num_accepted_tokens"),
    "estimated_flops_per_gpu": _names("estimated_flops_per_gpu"),
    "estimated_read_bytes_per_gpu": _names("estimated_read_bytes_per_gpu"),
    "estimated_write_bytes_per_gpu": _names("estimated_write_bytes_per_gpu"),
}

# Fields whose names once counted blocks; the HELP line tells which.
PREFIX_FIELDS = {
    "prefix_cache_queries_tokens": "prefix_cache_queries_blocks",
    "prefix_cache_hits_tokens": "prefix_cache_hits_blocks",
}
OLD_PREFIX_NAMES = {"vllm:gpu_prefix_cache_queries", "vllm:gpu_prefix_cache_hits"}
NEW_NAMES_BESIDE_OLD_PREFIX = {"vllm:prefix_cache_queries", "vllm:prefix_cache_hits", "vllm:kv_cache_usage_perc"}

_DIRECTED = {name for rule in NUMBER_RULES.values() if rule.picks for name in rule.names[1:]}
OWN_NUMBERS = {name for rule in NUMBER_RULES.values() for name in rule.names}
# All others count things, so that none of them has a fraction.
SHARES_AND_TIMES = {
    name
    for field, rule in NUMBER_RULES.items()
    for name in rule.names
    if rule.is_fraction or field.endswith("_seconds") or field.startswith("estimated_")
}
# Gauges of requests: an engine never holds a million.
REQUEST_GAUGES = {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_swapped"}
PLAIN_NAMES = {name for rule in NUMBER_RULES.values() for name in rule.names} - _DIRECTED

# Histograms that end as counters do.
_HISTOGRAMS_IN_TOTAL = {"vllm:iteration_tokens_total"}

# Labels that a scraper, a federation or Ray adds to all series of one server.
# fmt: off
PLACE_LABELS = frozenset({
    "instance", "job", "pod", "namespace", "node", "container", "service", "endpoint", "server", "host",
    "hostname", "cluster", "region", "replica", "ReplicaId", "WorkerId", "NodeAddress", "SessionName",
    "Version", "Component", "deployment", "application", "exported_instance", "exported_job",
    "kubernetes_namespace", "kubernetes_pod_name", "prometheus", "prometheus_replica",
})
# fmt: on


def is_own(name: str) -> bool:
    """Whether the name is one of vLLM's, however Ray spells it."""
    return _WHOLE_OWN_NAME.fullmatch(name) is not None


def canonical(name: str) -> str:
    """The name as vLLM registers it: prefix "vllm:", no `_total`."""
    prefix = _OWN_NAME.match(name)
    plain = name if prefix is None else f"vllm:{name[prefix.end() :]}"
    return plain if plain in _HISTOGRAMS_IN_TOTAL else plain.removesuffix("_total")


def histogram_part(name: str) -> tuple[str, HistogramPart] | None:
    """The histogram a series belongs to and its part in it; None for a gauge or counter (none of vLLM's ends so)."""
    for part in ("bucket", "sum", "count"):
        if name.endswith(f"_{part}"):
            return canonical(name.removesuffix(f"_{part}")), part
    return None
