"""The three ways a KV pool breaks, each with the flag changes that save it: all of it found by simulating again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from planner.sequence import SimulatedRequest
from planner.simulate import SimulationResult, simulate
from planner.simulator_config import SimulatorConfig
from planner.workload import ArrivalProcess, LengthDistribution, WorkloadSpec, draw_workload

FailureKind = Literal["long_prompt_burst", "long_generations", "fragmentation"]
KINDS: tuple[FailureKind, ...] = ("long_prompt_burst", "long_generations", "fragmentation")
_SHORT_PROMPT_TOKENS = 1024  # in the burst preset: what is shorter is a chat, what is longer a document


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePreset:
    """A workload and an engine that break in one way, and the number that shows it (lower is better)."""

    kind: FailureKind
    title: str
    story: str
    metric: str  # what the number is
    config: SimulatorConfig
    requests: tuple[SimulatedRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change of flags and what it did in a new run."""

    flags: str  # as on vLLM's command line
    why: str
    config: SimulatorConfig
    before: float
    after: float
    steps_before: int
    steps_after: int

    @property
    def is_saving(self) -> bool:
        """Whether the change at least halved the number."""
        return self.after <= self.before / 2


@dataclass(frozen=True, slots=True)
class _Change:
    flags: str
    why: str
    apply: Callable[[SimulatorConfig], SimulatorConfig]


def failure_preset(kind: FailureKind, *, seed: int = 7) -> FailurePreset:
    """The preset of `kind`, its workload drawn with `seed`."""
    return _PRESETS[kind](seed)


def measure(preset: FailurePreset, config: SimulatorConfig) -> tuple[float, SimulationResult]:
    """The preset's number under `config`, and the run that gave it."""
    result = simulate(config, preset.requests)
    return _METRICS[preset.kind](preset, config, result), result


def remedies(preset: FailurePreset) -> tuple[Remedy, ...]:
    """Every change tried for `preset`, the most helpful first; each is one more simulation."""
    before, run_before = measure(preset, preset.config)
    found = []
    for change in _CHANGES[preset.kind]:
        config = change.apply(preset.config)
        after, run_after = measure(preset, config)
        remedy = Remedy(
            flags=change.flags,
            why=change.why,
            config=config,
            before=before,
            after=after,
            steps_before=run_before.summary.num_steps,
            steps_after=run_after.summary.num_steps,
        )
        found.append(remedy)
    return tuple(sorted(found, key=lambda remedy: (remedy.after, remedy.steps_after)))


def _mean_chat_wait(preset: FailurePreset, _config: SimulatorConfig, result: SimulationResult) -> float:
    """Mean steps from arrival to first token of the short requests that came with or after the burst."""
    burst_step = min(request.arrival_step for request in preset.requests if _is_document(request))
    waits = [
        first - request.arrival_step
        for request, first in zip(preset.requests, result.timeline.first_token_steps(), strict=True)
        if first is not None and not _is_document(request) and request.arrival_step >= burst_step
    ]
    return sum(waits) / len(waits) if waits else 0.0


def _preemptions(_preset: FailurePreset, _config: SimulatorConfig, result: SimulationResult) -> float:
    return float(result.summary.num_preemptions)


def _empty_slots_fraction(_preset: FailurePreset, config: SimulatorConfig, result: SimulationResult) -> float:
    """The share of the slots in used blocks that hold no token: 1 − tokens held / (blocks used × block_size)."""
    columns = result.timeline.columns
    slots = sum(config.num_usable_blocks - free for free in columns.free_blocks) * config.block_size
    return 1.0 - sum(columns.held_tokens) / slots if slots else 0.0


def _is_document(request: SimulatedRequest) -> bool:
    return request.num_prompt_tokens > _SHORT_PROMPT_TOKENS


def _burst(seed: int) -> FailurePreset:
    chats = draw_workload(
        WorkloadSpec(
            num_requests=120,
            prompt=LengthDistribution(kind="lognormal", mean_tokens=200, spread=0.5, high=800),
            output=LengthDistribution(kind="lognormal", mean_tokens=60, spread=0.4, high=200),
            arrivals=ArrivalProcess(kind="poisson", rate=1.0),
        ),
        seed=seed,
    )
    documents = [
        SimulatedRequest(
            request_id=f"doc{number}", arrival_step=30, num_prompt_tokens=12_000, num_output_tokens=50, priority=1
        )
        for number in range(10)
    ]
    requests = sorted([*chats, *documents], key=lambda request: request.arrival_step)
    return FailurePreset(
        kind="long_prompt_burst",
        title="A burst of long prompts",
        story="Ten documents of 12,000 tokens come at once; the chats behind them wait for their first token.",
        metric="mean steps from arrival to first token of the chats after the burst",
        config=SimulatorConfig(
            num_gpu_blocks=4_001, max_num_seqs=128, max_num_batched_tokens=2_048, max_model_len=16_384
        ),
        requests=tuple(requests),
    )


def _long_generations(seed: int) -> FailurePreset:
    requests = draw_workload(
        WorkloadSpec(
            num_requests=48,
            prompt=LengthDistribution(kind="uniform", low=100, high=300),
            output=LengthDistribution(kind="lognormal", mean_tokens=1_500, spread=0.4, high=4_000),
        ),
        seed=seed,
    )
    return FailurePreset(
        kind="long_generations",
        title="Too many long generations",
        story="48 short prompts all fit at first; their long answers outgrow the pool and push each other out.",
        metric="preemptions",
        config=SimulatorConfig(
            num_gpu_blocks=1_801, max_num_seqs=64, max_num_batched_tokens=4_096, max_model_len=8_192
        ),
        requests=requests,
    )


def _fragmentation(seed: int) -> FailurePreset:
    requests = draw_workload(
        WorkloadSpec(
            num_requests=200,
            prompt=LengthDistribution(kind="lognormal", mean_tokens=90, spread=0.6, high=600),
            output=LengthDistribution(kind="lognormal", mean_tokens=40, spread=0.6, high=300),
            arrivals=ArrivalProcess(kind="poisson", rate=4.0),
        ),
        seed=seed,
    )
    return FailurePreset(
        kind="fragmentation",
        title="Fragmentation",
        story="Short chats in blocks of 256 tokens: each holds a block or two, most of it empty.",
        metric="share of the slots in used blocks that hold no token",
        config=SimulatorConfig(
            num_gpu_blocks=65, block_size=256, max_num_seqs=256, max_num_batched_tokens=2_048, max_model_len=1_024
        ),
        requests=requests,
    )


def _with_blocks_of(block_size: int) -> Callable[[SimulatorConfig], SimulatorConfig]:
    """The same memory in blocks of another size."""

    def apply(config: SimulatorConfig) -> SimulatorConfig:
        tokens = config.num_usable_blocks * config.block_size
        return replace(config, block_size=block_size, num_gpu_blocks=tokens // block_size + 1)

    return apply


def _with_pool_of(factor: float) -> Callable[[SimulatorConfig], SimulatorConfig]:
    return lambda config: replace(config, num_gpu_blocks=int(config.num_usable_blocks * factor) + 1)


_HALF_SIZE_KV = _Change("--kv-cache-dtype fp8", "half the bytes a token: twice the blocks", _with_pool_of(2.0))
_METRICS: dict[FailureKind, Callable[[FailurePreset, SimulatorConfig, SimulationResult], float]] = {
    "long_prompt_burst": _mean_chat_wait,
    "long_generations": _preemptions,
    "fragmentation": _empty_slots_fraction,
}
_PRESETS: dict[FailureKind, Callable[[int], FailurePreset]] = {
    "long_prompt_burst": _burst,
    "long_generations": _long_generations,
    "fragmentation": _fragmentation,
}
_CHANGES: dict[FailureKind, tuple[_Change, ...]] = {
    "long_prompt_burst": (
        _HALF_SIZE_KV,
        _Change(
            "--scheduling-policy priority",
            "chats (priority 0) are admitted before documents (priority 1)",
            lambda config: replace(config, scheduling_policy="priority"),
        ),
        _Change(
            "--long-prefill-token-threshold 256",
            "a document takes at most 256 tokens of a step, the rest goes to those behind it",
            lambda config: replace(config, long_prefill_token_threshold=256),
        ),
        _Change(
            "--kv-cache-dtype fp8 --long-prefill-token-threshold 256",
            "room for the documents, and a part of each step for the chats",
            lambda config: replace(_with_pool_of(2.0)(config), long_prefill_token_threshold=256),
        ),
        _Change(
            "--max-num-batched-tokens 8192",
            "the burst is computed in fewer, longer steps",
            lambda config: replace(config, max_num_batched_tokens=8_192),
        ),
    ),
    "long_generations": (
        _HALF_SIZE_KV,
        _Change(
            "--max-num-seqs 12",
            "only as many run as can grow to their end",
            lambda config: replace(config, max_num_seqs=12),
        ),
        _Change(
            "--max-num-seqs 24",
            "fewer run at once",
            lambda config: replace(config, max_num_seqs=24),
        ),
        _Change(
            "--watermark 0.2",
            "a fifth of the pool is kept free when one is admitted",
            lambda config: replace(config, watermark=0.2),
        ),
        _Change("--tensor-parallel-size 2", "the KV of a token is split over two cards", _with_pool_of(2.5)),
    ),
    "fragmentation": (
        _Change("--block-size 16", "at most 15 slots of a sequence stay empty", _with_blocks_of(16)),
        _Change("--block-size 32", "at most 31 slots of a sequence stay empty", _with_blocks_of(32)),
        _Change("--block-size 64", "at most 63 slots of a sequence stay empty", _with_blocks_of(64)),
        _Change("--block-size 128", "at most 127 slots of a sequence stay empty", _with_blocks_of(128)),
    ),
}
