"""The frozen samples that every live source yields: one engine's metrics at one moment, and what names the engine.

Every quantity is optional: None means "not exported by this version" or "unknown", never 0. Counters are as the engine
counts them, from its start; who consumes samples notices resets (`fell_back`) and forms rates.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from planner.facts import Finding


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class EngineIdentity:
    """Which engine a sample is of. `engine` is vLLM's data-parallel index as text; `replica` is what a fleet's labels add."""

    model_name: str | None = None
    engine: str | None = None
    replica: str | None = None  # such as "instance=10.0.0.3:8000,pod=vllm-1"; None for a single server


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledValue:
    """One series that needs more than the engine to name it: `labels` are the others, sorted; `name` has no `_total`."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramSample:
    """One histogram, cumulative as exported: `counts[i]` observations are at most `upper_bounds[i]` (+Inf last)."""

    name: str
    upper_bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float | None
    count: float | None
    labels: tuple[tuple[str, str], ...] = ()  # those that vLLM adds to the engine's, such as transfer_type


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """What `vllm:cache_config_info` says; None for an absent label and for the text "None". `labels` has all of them."""

    block_size: int | None = None  # tokens
    num_gpu_blocks: int | None = None
    num_cpu_blocks: int | None = None
    kv_cache_tokens: int | None = None  # kv_cache_size_tokens; of a hybrid model it is not blocks x block_size
    max_concurrency: float | None = None  # kv_cache_max_concurrency
    gpu_memory_utilization: float | None = None
    cache_dtype: str | None = None
    enable_prefix_caching: bool | None = None
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    kv_offloading_size_gib: float | None = None
    swap_space_bytes: int | None = None
    sliding_window: int | None = None
    labels: tuple[tuple[str, str], ...] = ()

    def label(self, name: str) -> str | None:
        """The label's text; None where it is absent, empty or "None"."""
        text = dict(self.labels).get(name)
        return None if text in {None, "", "None"} else text


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """One engine at `time_unix_ns`. Fields without a unit are counts; fractions run from 0 to 1."""

    time_unix_ns: int
    identity: EngineIdentity
    cache_config: CacheConfig | None = None
    # gauges
    kv_usage_fraction: float | None = None
    cpu_kv_usage_fraction: float | None = None  # V0's swap space
    num_requests_running: float | None = None
    num_requests_waiting: float | None = None
    num_requests_swapped: float | None = None  # V0
    gpu_prefix_cache_hit_fraction: float | None = None  # V0; -1 there means "no data" and is None here
    cpu_prefix_cache_hit_fraction: float | None = None  # V0
    kv_offload_cpu_pinned_fraction: float | None = None  # pinned by transfers, no fill level
    kv_offload_cpu_read_fraction: float | None = None
    kv_offload_cpu_write_fraction: float | None = None
    simple_offload_used_blocks: float | None = None
    simple_offload_pending_store_blocks: float | None = None
    hisparse_host_usage_fraction: float | None = None
    # counters
    num_preemptions: float | None = None
    prefix_cache_queries_tokens: float | None = None
    prefix_cache_hits_tokens: float | None = None
    prefix_cache_queries_blocks: float | None = None  # early V1 counted blocks under the name that later counts tokens
    prefix_cache_hits_blocks: float | None = None
    external_prefix_cache_queries_tokens: float | None = None
    external_prefix_cache_hits_tokens: float | None = None
    mm_cache_queries_items: float | None = None
    mm_cache_hits_items: float | None = None
    prompt_tokens: float | None = None
    prompt_tokens_cached: float | None = None
    prompt_tokens_recomputed: float | None = None
    generation_tokens: float | None = None
    offload_store_bytes: float | None = None
    offload_load_bytes: float | None = None
    offload_store_seconds: float | None = None
    offload_load_seconds: float | None = None
    offload_stores_skipped: float | None = None
    offload_allocation_failures: float | None = None
    simple_offload_load_blocks: float | None = None
    corrupted_requests: float | None = None
    spec_decode_num_drafts: float | None = None
    spec_decode_draft_tokens: float | None = None
    spec_decode_accepted_tokens: float | None = None
    estimated_flops_per_gpu: float | None = None
    estimated_read_bytes_per_gpu: float | None = None
    estimated_write_bytes_per_gpu: float | None = None
    # what needs more labels than the engine, all that vLLM exports and this table does not name, and the histograms
    labelled: tuple[LabelledValue, ...] = ()
    histograms: tuple[HistogramSample, ...] = ()

    def labelled_values(self, name: str) -> tuple[LabelledValue, ...]:
        """The series of one name, such as "vllm:num_requests_waiting_by_reason"."""
        return tuple(value for value in self.labelled if value.name == name)

    def histogram(self, name: str) -> HistogramSample | None:
        """The histogram of that name, such as "vllm:request_prompt_tokens"; None where it is not exported."""
        return next((histogram for histogram in self.histograms if histogram.name == name), None)


_NOT_SERIES = {"time_unix_ns", "identity", "cache_config", "labelled", "histograms"}
NUMBER_FIELDS = tuple(entry.name for entry in fields(EngineSample) if entry.name not in _NOT_SERIES)
COUNTER_FIELDS = NUMBER_FIELDS[NUMBER_FIELDS.index("num_preemptions") :]
GAUGE_FIELDS = NUMBER_FIELDS[: NUMBER_FIELDS.index("num_preemptions")]


def fell_back(earlier: EngineSample, later: EngineSample) -> tuple[str, ...]:
    """The names of the counters that fell from `earlier` to `later`: the engine restarted, or another took its port."""
    pairs = ((name, getattr(earlier, name), getattr(later, name)) for name in COUNTER_FIELDS)
    return tuple(name for name, before, after in pairs if before is not None and after is not None and after < before)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One entry of /v1/models; `max_model_len` is the engine's, after automatic fitting."""

    model_id: str
    root: str | None = None
    parent: str | None = None  # the base model of a LoRA adapter
    max_model_len: int | None = None  # tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """All that one server said at one moment. `findings` name what was odd, ambiguous or absent."""

    time_unix_ns: int
    source: str  # the address without credentials, or the file's name
    engines: tuple[EngineSample, ...]
    findings: tuple[Finding, ...] = ()
    vllm_version: str | None = None
    models: tuple[ServedModel, ...] = ()
    server_info: str | None = None  # /server_info's JSON text when a server in development mode offers it
    process_start_unix_seconds: float | None = None  # process_start_time_seconds; a change means a restart
