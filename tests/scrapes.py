"""/metrics texts as vLLM's releases write them: their families by release (read in its source), written by Python's client.

The expected reading is made here, by era and by hand, from no table of the product.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

FAMILIES = Path(__file__).parent / "golden" / "emitted_families.json"
EXTRA_TEXTS = {
    "transfer_type": ("GPU_to_CPU", "CPU_to_GPU"),
    "tier": ("0:primary", "1:fs"),
    "reason": ("capacity", "deferred"),
    "finished_reason": ("stop", "length", "abort"),
    "source": ("local_compute", "local_cache_hit", "external_kv_transfer"),
    "sleep_state": ("awake", "weights_offloaded"),
    "position": ("0", "1", "2"),
}
# What each family means, by the release in which it stood under this name.
EVERY_V1 = {
    "vllm:num_requests_running": "num_requests_running",
    "vllm:num_requests_waiting": "num_requests_waiting",
    "vllm:num_preemptions": "num_preemptions",
    "vllm:prompt_tokens": "prompt_tokens",
    "vllm:generation_tokens": "generation_tokens",
    "vllm:kv_cache_usage_perc": "kv_usage_fraction",
    "vllm:prefix_cache_queries": "prefix_cache_queries_tokens",
    "vllm:prefix_cache_hits": "prefix_cache_hits_tokens",
    "vllm:external_prefix_cache_queries": "external_prefix_cache_queries_tokens",
    "vllm:external_prefix_cache_hits": "external_prefix_cache_hits_tokens",
    "vllm:kv_offload_store_bytes": "offload_store_bytes",
    "vllm:kv_offload_load_bytes": "offload_load_bytes",
    'vllm:kv_offload_total_bytes{transfer_type="GPU_to_CPU"}': "offload_store_bytes",
    'vllm:kv_offload_total_bytes{transfer_type="CPU_to_GPU"}': "offload_load_bytes",
}
V0 = {
    "vllm:num_requests_running": "num_requests_running",
    "vllm:num_requests_waiting": "num_requests_waiting",
    "vllm:num_requests_swapped": "num_requests_swapped",
    "vllm:num_preemptions_total": "num_preemptions",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:gpu_cache_usage_perc": "kv_usage_fraction",
    "vllm:cpu_cache_usage_perc": "cpu_kv_usage_fraction",
}
# 0.8.5 counts prefix queries in blocks; 0.11 keeps the old names beside the new ones, hidden unless asked for.
V1_BY_RELEASE = {
    "0.8.5": {
        "vllm:num_preemptions_total": "num_preemptions",
        "vllm:prompt_tokens_total": "prompt_tokens",
        "vllm:generation_tokens_total": "generation_tokens",
        "vllm:gpu_cache_usage_perc": "kv_usage_fraction",
    },
}
KEYS = frozenset(EVERY_V1.values()) | frozenset(V0.values())
MODEL = "org/Model-7B"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """A text and what a careful reader reads in it: by (model, engine), by key."""

    text: str
    expected: dict[tuple[str, str | None], dict[str, float | int | None]]


@cache
def families() -> dict[str, dict[str, tuple[str, list[str]]]]:
    """By "release era": each family's kind and the labels it adds to the engine's ("-": it has only those that follow)."""
    table: dict[str, dict[str, tuple[str, list[str]]]] = json.loads(FAMILIES.read_text())
    return table


def value_of(name: str, engine: int) -> float:
    """A value that no other family and engine has, of the size that such a family has."""
    number = 3 + sum(ord(sign) * (place + 1) for place, sign in enumerate(name)) + 100_003 * engine
    if name.endswith(("_perc", "_rate")):
        return (number % 997) / 997
    if name.startswith("vllm:num_requests"):
        return float(number % 300)
    return float(number * (10_007 if "bytes" in name else 3))


def _meaning(release: str) -> dict[str, str]:
    version, era = release.split()
    if era == "v0":
        return V0
    if version in V1_BY_RELEASE:
        return {**EVERY_V1, **V1_BY_RELEASE[version]}
    return EVERY_V1


def _config(version: str, engine: int | None) -> dict[str, str]:
    labels = {"block_size": "16", "cache_dtype": "auto", "gpu_memory_utilization": "0.9", "num_gpu_blocks": "27500"}
    labels["num_cpu_blocks"] = "2048" if engine is None and version == "0.6.6" else "None"
    if version >= "0.23":
        labels |= {"kv_cache_size_tokens": "440000", "kv_cache_max_concurrency": "13.427734375"}
    return labels | ({} if engine is None else {"engine": str(engine)})


def _help(name: str, release: str) -> str:
    if "gpu_prefix_cache" not in name:
        return "What it is."
    return "Prefix cache, in blocks." if release == "0.8.5 v1" else "Prefix cache, in tokens."


def _write(registry: CollectorRegistry, release: str, name: str, engines: Sequence[dict[str, str]]) -> Iterator[Any]:
    """One family, with a series for each engine and each text of the labels it adds."""
    kind, extra = families()[release][name]
    stands_alone = extra[:1] == ["-"]
    extra = extra[stands_alone:]
    names = [*([] if stands_alone else engines[0]), *extra]
    metric = {"gauge": Gauge, "counter": Counter, "histogram": Histogram}[kind](
        name, _help(name, release), names, registry=registry
    )
    for place, own in enumerate(engines[:1] if stands_alone else engines):
        texts = EXTRA_TEXTS.get(extra[-1], ("x",)) if extra else ("",)
        for number, text in enumerate(texts):
            labels = ({} if stands_alone else own) | {
                label: engines[0]["model_name"] if label == "model_name" else text for label in extra
            }
            one = metric.labels(**labels) if labels else metric
            value = value_of(name, place) + 7 * number
            yield name, extra, text, place, value
            one.set(value) if kind == "gauge" else one.inc(value) if kind == "counter" else one.observe(value)


def scrape(release: str, num_engines: int = 1, model: str = MODEL, *, without: tuple[str, ...] = ()) -> Scrape:
    """What a server of this release says whose families begin with none of `without`."""
    version, era = release.split()
    registry = CollectorRegistry()
    indexes = [None] if era == "v0" else list(range(num_engines))
    engines = [{"model_name": model} | ({} if index is None else {"engine": str(index)}) for index in indexes]
    found: dict[tuple[str, str | None], dict[str, float | int | None]] = {
        (model, None if index is None else str(index)): dict.fromkeys(KEYS) for index in indexes
    }
    meaning = _meaning(release)
    for family in families()[release]:
        if family.startswith(without):
            continue
        for name, extra, text, place, value in _write(registry, release, family, engines):
            key = meaning.get(f'{name}{{transfer_type="{text}"}}' if extra == ["transfer_type"] else name)
            record = list(found.values())[place]
            if key is not None and record[key] is None:
                record[key] = value
    for index in indexes if version >= "0.11" or era == "v0" else [None]:
        labels = _config(version, index)
        if index in {None, 0}:
            info = Gauge("vllm:cache_config_info", "Its configuration.", list(labels), registry=registry)
        info.labels(**labels).set(1)
    for record in found.values():
        record |= {"num_gpu_blocks": 27500, "block_size": 16}
        record["num_cpu_blocks"] = 2048 if release == "0.6.6 v0" else None
        record["kv_cache_tokens"] = 440_000 if version >= "0.23" else None
        record["max_concurrency"] = 13.427734375 if version >= "0.23" else None
    return Scrape(text=generate_latest(registry).decode(), expected=found)
