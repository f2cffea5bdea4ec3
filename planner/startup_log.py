"""A vLLM start-up log, whole or pasted, as frozen facts: the terms that no metric exposes, per rank where the ranks differ.

Lines of all eras are known (V0's "GB" are GiB). A printed figure was rounded, so bytes are an interval. Where a log holds
several starts, the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from planner.facts import Basis, Estimate
from planner.units import GIB

StartOutcome = Literal["started", "failed", "unknown"]

LARGEST_LOG_BYTES = 50 * 1000 * 1000

_LONGEST_LINE = 20_000
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = r"(-?\d+(?:\.\d+)?)"
_RANK = re.compile(
    r"\((?:Vllm)?Worker_?((?:(?:DP|PP|TP|EP|DCP|PCP)\d+_?)+)[ )]|\[rank(\d+)\]|\(VllmWorkerProcess pid=(\d+)\)"
)
_NEW_START = re.compile(r"Initializing a V[01] LLM engine|Initializing an LLM engine|vLLM API server version")

# What each line says of memory: the field, and the pattern whose first group is GiB.
_MEMORY: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("weights", rf"Model loading took {_NUMBER} ?Gi?B"),
        ("weights", rf"Loading model weights took {_NUMBER} ?Gi?B"),
        ("weights", rf"model weights take {_NUMBER} ?GiB"),
        ("available_kv", rf"Available KV cache memory: *{_NUMBER} ?GiB"),
        ("available_kv", rf"memory reserved for KV Cache is {_NUMBER} ?GiB"),
        ("activation_peak", rf"PyTorch activation peak memory takes {_NUMBER} ?GiB"),
        ("activation_peak", rf"torch peak memory increase: *{_NUMBER} ?GiB"),
        ("activation_peak", rf"{_NUMBER} GiB for peak activation"),
        ("non_torch", rf"non_torch_memory takes {_NUMBER} ?GiB"),
        ("non_torch", rf"non-torch forward increase memory: *{_NUMBER} ?GiB"),
        ("non_torch", rf"{_NUMBER} GiB for non-torch memory"),
        ("cuda_graphs", rf"Graph capturing finished in .*?took {_NUMBER} GiB"),
        ("cuda_graphs_estimate", rf"Estimated CUDA graph memory: {_NUMBER} GiB total"),
    )
)
_TEXTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("vllm_version", r"LLM engine \(v?(\d[^)\s]*)\) with config"),
        ("vllm_version", r"vLLM API server version (\d\S*)"),
        ("model_name", r"with config: model='([^']+)'"),
        ("model_name", r"with config: model=\"([^\"]+)\""),
        ("model_name", r"Starting to load model (\S+?)(?:\.\.\.|\s|$)"),
    )
)
_COUNTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("tensor_parallel_size", r"\btensor_parallel_size=(\d+)"),
        ("pipeline_parallel_size", r"\bpipeline_parallel_size=(\d+)"),
        ("data_parallel_size", r"\bdata_parallel_size=(\d+)"),
        ("max_model_len", r"\bmax_seq_len=(\d+)"),
        ("max_model_len", r"Maximum concurrency for ([\d,]+) tokens per request"),
        ("kv_cache_tokens", r"KV cache size: ([\d,]+) tokens"),
        ("num_gpu_blocks", r"# (?:GPU|cuda|cpu|rocm|hip|xpu|hpu|tpu|neuron) blocks: (\d+)"),
        ("num_gpu_blocks", r"num_gpu_blocks is: (\d+)"),
        ("num_cpu_blocks", r"# CPU blocks: (\d+)"),
        ("printed_block_size", r"(?:kv cache|attention) block size to (\d+)"),
    )
)
_FRACTIONS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("max_concurrency", re.compile(rf"tokens per request: {_NUMBER}x")),
    ("gpu_memory_utilization", re.compile(rf"gpu_memory_utilization \({_NUMBER}\)")),
    ("gpu_memory_utilization", re.compile(rf"\bgpu_memory_utilization['\"]?[=:] ?{_NUMBER}")),
    ("gpu_memory_utilization", re.compile(rf"Desired GPU memory utilization is \({_NUMBER},")),
    ("gpu_memory_utilization", re.compile(rf"The current --gpu-memory-utilization={_NUMBER}")),
)
_STARTED = re.compile(r"Application startup complete|Starting vLLM API server \d* ?on http")
_FAILED = re.compile(
    r"Engine core initialization failed|Engine process failed to start|No available memory for the cache blocks|"
    r"is larger than the available KV cache memory|is less than desired GPU memory utilization|OutOfMemoryError"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """What one worker printed; None for a line that is not in the log."""

    rank: str  # such as "TP0"; "" where lines name none
    weights: Estimate | None = None
    available_kv: Estimate | None = None
    activation_peak: Estimate | None = None
    non_torch: Estimate | None = None
    cuda_graphs: Estimate | None = None
    cuda_graphs_estimate: Estimate | None = None  # vLLM's own, made before the capture


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupLog:
    """The facts of the last start in a log; None where no line says them."""

    ranks: tuple[RankMemory, ...] = ()
    vllm_version: str | None = None
    model_name: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    num_gpu_blocks: int | None = None
    num_cpu_blocks: int | None = None
    printed_block_size: int | None = None
    outcome: StartOutcome = "unknown"
    failure: str | None = None  # the line that says why it did not start

    def memory(self, name: str) -> Estimate | None:
        """One card's figure: the least of the ranks' available KV memory (it bounds the pool), the most of anything else."""
        found = [value for rank in self.ranks if (value := getattr(rank, name)) is not None]
        choose = min if name == "available_kv" else max
        return choose(found, key=lambda value: value.best_bytes) if found else None

    @property
    def block_size(self) -> int | None:
        """Tokens per block: printed, or the only one that fits the printed capacity (None where groups share the blocks)."""
        if self.printed_block_size is not None:
            return self.printed_block_size
        if self.num_gpu_blocks and self.kv_cache_tokens is not None:
            size, rest = divmod(self.kv_cache_tokens, self.num_gpu_blocks)
            return size if rest == 0 else None
        if not (self.num_gpu_blocks and self.max_model_len and self.max_concurrency):
            return None
        fitting = [
            size
            for size in (2**power for power in range(11))
            if f"{self.num_gpu_blocks * size / self.max_model_len:.2f}" == f"{self.max_concurrency:.2f}"
        ]
        return fitting[0] if len(fitting) == 1 else None


def _estimate(text: str, line: str) -> Estimate:
    """The bytes of a printed number of GiB, with the interval that its rounding leaves."""
    value, digits = float(text), len(text.partition(".")[2])
    half = 0.5 * 10**-digits if digits else 0.5
    note = f"the start-up log: {line[-120:].strip()}"
    return Estimate(
        best_bytes=round(value * GIB),
        low_bytes=round((value - half) * GIB),
        high_bytes=round((value + half) * GIB),
        basis=Basis(kind="read", note=note),
        formula=f"{text} GiB",
    )


def _rank(line: str) -> str:
    match = _RANK.search(line)
    return "" if match is None else next(group for group in match.groups() if group is not None).strip("_")


@dataclass(slots=True)
class _Start:
    """One start while its lines are read."""

    facts: dict[str, str | int | float]
    ranks: dict[str, dict[str, Estimate]]
    outcome: StartOutcome = "unknown"
    failure: str | None = None

    def take(self, line: str) -> None:
        """Puts what one line says into the start."""
        for name, pattern in _MEMORY:
            if (match := pattern.search(line)) is not None:
                self.ranks.setdefault(_rank(line), {})[name] = _estimate(match[1], line)
        for patterns, convert in _READERS:
            for name, pattern in patterns:
                if (match := pattern.search(line)) is not None and len(match[1]) < 300:
                    self.facts[name] = convert(match[1])
        if _STARTED.search(line):
            self.outcome = "started"
        elif self.outcome == "unknown" and _FAILED.search(line):
            self.outcome, self.failure = "failed", line[-600:].strip()


def _count(text: str) -> int:
    return int(text.replace(",", "")[:18])


def _name(text: str) -> str:
    return text.rstrip("/")


_READERS: tuple[tuple[tuple[tuple[str, re.Pattern[str]], ...], Callable[[str], str | int | float]], ...] = (
    (_TEXTS, _name),
    (_COUNTS, _count),
    (_FRACTIONS, float),
)


def _last_start(lines: Iterable[str]) -> _Start:
    start = _Start(facts={}, ranks={})
    for raw in lines:
        line = _COLOURS.sub("", raw[:_LONGEST_LINE])
        # The API server's line comes before the engine's of the same start: only one after facts begins a new one.
        if _NEW_START.search(line) and (start.ranks or start.outcome != "unknown"):
            start = _Start(facts={}, ranks={})
        start.take(line)
    return start


def _model_name(path: str | None) -> str | None:
    """A Hub id stays; of a local path the last two parts are the id where they look like one."""
    if path is None or not path.startswith(("/", "~", ".")):
        return path
    return "/".join(path.strip("/").split("/")[-2:])


def read_startup_log(text: str) -> StartupLog:
    """The facts of the last start that `text` holds; never raises, and what is not said is None."""
    start = _last_start(text[:LARGEST_LOG_BYTES].split("\n"))
    facts = dict(start.facts)
    name = facts.pop("model_name", None)
    workers = {match[1] for rank in start.ranks if (match := re.search(r"TP(\d+)", rank)) is not None}
    if workers and "tensor_parallel_size" not in facts:
        facts["tensor_parallel_size"] = max(map(int, workers)) + 1
    return StartupLog(
        ranks=tuple(RankMemory(rank=rank, **values) for rank, values in sorted(start.ranks.items())),
        model_name=_model_name(str(name) if name is not None else None),
        outcome=start.outcome,
        failure=start.failure,
        **facts,  # type: ignore[arg-type]  # each pattern's reader gives its field's type
    )
