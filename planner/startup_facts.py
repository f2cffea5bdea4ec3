"""What a start-up log says, as frozen facts, each with the line that says it. `planner.startup_log` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.error_lines import ErrorReading
from planner.facts import Estimate, Finding
from planner.versions import Version

StartOutcome = Literal["started", "failed", "unknown"]
FailureKind = Literal[
    "length_does_not_fit",
    "no_cache_memory",
    "too_little_free",
    "out_of_memory",
    "few_state_blocks",
    "engine_failed",
    "other",
]
VersionBasis = Literal["banner", "source lines", "image tag", "environment report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a log: its number, from 1, and its text without colours, as far as a reader needs it."""

    number: int
    text: str


Lines = tuple[tuple[str, LogLine], ...]


def line_of(lines: Lines, name: str) -> LogLine | None:
    """The line that says the fact `name`, or None."""
    return next((line for known, line in lines if known == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """What one worker printed; None for a line that is not in the log."""

    rank: str  # such as "TP0"; "" where lines name none
    weights: Estimate | None = None
    available_kv: Estimate | None = None
    activation_peak: Estimate | None = None  # from 0.27 on it holds the graph estimate: `StartupLog.activation_alone`
    non_torch: Estimate | None = None
    cuda_graphs: Estimate | None = None
    cuda_graphs_estimate: Estimate | None = None  # vLLM's own, made before the capture
    consumed: Estimate | None = None  # weights + non-torch, printed as one from 0.27 on
    requested: Estimate | None = None  # gpu_memory_utilization x the card's total
    card_total: Estimate | None = None
    free_at_start: Estimate | None = None
    suggested_kv_to_fit: Estimate | None = None  # --kv-cache-memory as the log suggests it; holds graphs twice
    suggested_kv_to_fill: Estimate | None = None
    kv_given: Estimate | None = None  # the pool that --kv-cache-memory-bytes gave: nothing was profiled
    cpu_offloaded: Estimate | None = None
    lines: Lines = ()

    def line_of(self, name: str) -> LogLine | None:
        """The line that says the figure `name` of this rank."""
        return line_of(self.lines, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReading:
    """Which release wrote the log: a version as printed, or an interval of releases whose source lines agree."""

    basis: VersionBasis
    text: str  # as a reader may print it: "0.11.0" or "0.11.0 to 0.11.2 by source lines"
    first: Version
    last: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStart:
    """Why a start failed: the kind, the line, and the numbers it states."""

    kind: FailureKind
    line: LogLine
    reading: ErrorReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupLog:
    """The facts of one start in a log; None where no line says them."""

    ranks: tuple[RankMemory, ...] = ()
    vllm_version: str | None = None  # as a banner prints it
    release: ReleaseReading | None = None
    engine: Literal["v0", "v1"] | None = None
    platform: str | None = None  # cuda, rocm, cpu, xpu, tpu, hpu, neuron
    card_name: str | None = None
    model_name: str | None = None
    model_path: str | None = None  # where the model was a local folder or file: `model_name` is made of its end
    served_model_name: str | None = None
    architecture: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    enable_expert_parallel: bool | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    num_gpu_blocks: int | None = None
    num_cpu_blocks: int | None = None
    printed_block_size: int | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    quantization: str | None = None
    enforce_eager: bool | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    cudagraph_mode: str | None = None
    attention_backend: str | None = None
    model_runner: Literal["v1", "v2"] | None = None
    compile_cache: Literal["cold", "warm"] | None = None
    compile_seconds: float | None = None
    equivalent_utilization: float | None = None  # without the graph estimate, as 0.18 and newer print it
    padding_layers: int | None = None
    outcome: StartOutcome = "unknown"
    failure: str | None = None  # the line that says why it did not start
    failed_start: FailedStart | None = None
    arguments: tuple[tuple[str, object], ...] = ()  # what the user gave: "non-default args", or V0's Namespace
    engine_config: tuple[tuple[str, object], ...] = ()  # what the engine made of it
    command: str | None = None  # the command that stands above the start, with the variables set there
    lines: Lines = ()  # which line says each fact; a derived fact is in `derived` instead
    derived: tuple[tuple[str, str], ...] = ()  # a fact that no line prints, and how it follows from those that do
    unread: tuple[LogLine, ...] = ()  # lines that look like memory lines and were not understood
    findings: tuple[Finding, ...] = ()
    start_number: int = 1  # which of the log's starts this is
    num_starts: int = 1

    def memory(self, name: str) -> Estimate | None:
        """One card's figure: the least of the ranks' available KV memory (it bounds the pool), the most of anything else."""
        rank = self.bounding_rank(name)
        return None if rank is None else getattr(rank, name)

    def bounding_rank(self, name: str) -> RankMemory | None:
        """The rank whose figure `memory(name)` is."""
        found = [rank for rank in self.ranks if getattr(rank, name) is not None]
        if not found:
            return None
        choose = min if name in _LEAST_COUNTS else max
        bound = getattr(choose(found, key=lambda rank: getattr(rank, name).best_bytes), name)
        equal = [rank for rank in found if bound.low_bytes <= getattr(rank, name).best_bytes <= bound.high_bytes]
        return min(
            equal, key=lambda rank: _width(getattr(rank, name))
        )  # of equal figures the one with the most decimals

    def line_of(self, name: str) -> LogLine | None:
        """The line that says the fact `name`, of the start or of the rank that bounds it; None for a derived one."""
        rank = self.bounding_rank(name) if name in RANK_FIGURES else None
        return line_of(self.lines, name) if rank is None else rank.line_of(name)

    @property
    def activation_alone(self) -> int | None:
        """Bytes of the activation peak without the graph estimate that 0.27 and newer print within it."""
        rank = self.bounding_rank("activation_peak")
        if rank is None or rank.activation_peak is None:
            return None
        estimate = rank.cuda_graphs_estimate or self.memory("cuda_graphs_estimate")
        held = estimate.best_bytes if rank.consumed is not None and estimate is not None else 0
        return rank.activation_peak.best_bytes - held

    @property
    def block_size(self) -> int | None:
        """Tokens per block: printed, or the only one that fits the printed capacity (None where groups share the blocks)."""
        if self.printed_block_size is not None:
            return self.printed_block_size
        if not self.num_gpu_blocks or self.padding_layers:
            return None
        if self.kv_cache_tokens is not None:
            size, rest = divmod(self.kv_cache_tokens, self.num_gpu_blocks)
            return size if rest == 0 and size in _BLOCK_SIZES else None
        return block_size_of(self.num_gpu_blocks, self.max_model_len, self.max_concurrency)


def _width(estimate: Estimate) -> int:
    return estimate.high_bytes - estimate.low_bytes


_LEAST_COUNTS = frozenset({"available_kv", "free_at_start", "kv_given", "suggested_kv_to_fit", "suggested_kv_to_fill"})
_BLOCK_SIZES = frozenset(2**power for power in range(11))
RANK_FIGURES = tuple(name for name in RankMemory.__dataclass_fields__ if name not in ("rank", "lines"))


def block_size_of(num_blocks: int, max_model_len: int | None, max_concurrency: float | None) -> int | None:
    """The only power of two for which blocks x size / length prints as the concurrency does, or None."""
    if not (max_model_len and max_concurrency):
        return None
    shown = f"{max_concurrency:.2f}"
    fitting = [size for size in sorted(_BLOCK_SIZES) if f"{num_blocks * size / max_model_len:.2f}" == shown]
    return fitting[0] if len(fitting) == 1 else None
