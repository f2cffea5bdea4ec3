"""How long a step takes, from a card's bandwidth and speed: the roofline max(bytes / bandwidth, FLOPs / peak) + overhead."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts import PlanError
from planner.gpu_catalog import GpuFacts
from planner.schedule import Scheduler

# What a well-tuned engine reaches of the data sheet's figures in long runs.
# assumed: 0.8 of the bandwidth, 0.5 of the matrix speed
_BANDWIDTH_FRACTION, _COMPUTE_FRACTION = 0.8, 0.5
_OVERHEAD_SECONDS = 0.002  # assumed: scheduling, launches and sampling of one step


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The step time of one model on one card (per card of a tensor-parallel group)."""

    weight_bytes: int  # read once a step
    kv_bytes_per_token: int  # over all layers
    flops_per_token: float  # about twice the active parameters
    bytes_per_second: float
    flops_per_second: float
    overhead_seconds: float = _OVERHEAD_SECONDS

    def __post_init__(self) -> None:
        if min(self.bytes_per_second, self.flops_per_second) <= 0.0 or self.overhead_seconds < 0.0:
            text = "A roofline needs a bandwidth and a speed above 0."
            raise PlanError("bytes_per_second", self.bytes_per_second, text)

    @classmethod
    def of_card(cls, gpu: GpuFacts, *, weight_bytes: int, kv_bytes_per_token: int, num_parameters: int) -> Roofline:
        """The roofline of `gpu`; raises `PlanError` when its bandwidth or speed is not known."""
        if gpu.bandwidth_bytes_per_second is None or gpu.bf16_flops_per_second is None:
            text = f"The bandwidth or speed of {gpu.name} is not known; give a fixed time per step."
            raise PlanError("gpu", gpu.name, text)
        return cls(
            weight_bytes=weight_bytes,
            kv_bytes_per_token=kv_bytes_per_token,
            flops_per_token=2.0 * num_parameters,
            bytes_per_second=gpu.bandwidth_bytes_per_second * _BANDWIDTH_FRACTION,
            flops_per_second=gpu.bf16_flops_per_second * _COMPUTE_FRACTION,
        )

    def seconds(self, num_scheduled_tokens: int, num_context_tokens: int) -> float:
        """The time of a step that computes some tokens and reads the KV of `num_context_tokens`."""
        if num_scheduled_tokens == 0:
            return self.overhead_seconds
        read = (self.weight_bytes + self.kv_bytes_per_token * num_context_tokens) / self.bytes_per_second
        computed = self.flops_per_token * num_scheduled_tokens / self.flops_per_second
        return max(read, computed) + self.overhead_seconds

    def __call__(self, scheduler: Scheduler) -> float:
        """The time of the step that `scheduler` has just scheduled, with what its lower tiers move."""
        size = scheduler.config.block_size
        context = sum(len(sequence.tables[0]) for sequence in scheduler.running) * size
        moving = scheduler.tiers.seconds_in_step if scheduler.tiers is not None else 0.0
        return self.seconds(scheduler.num_scheduled_tokens, context) + moving

    @property
    def recompute_seconds_per_token(self) -> float:
        """The time of one token in a prefill that fills the card."""
        return self.flops_per_token / self.flops_per_second


@dataclass(frozen=True, slots=True)
class FixedStepTime:
    """Every step takes the same time, and what its lower tiers move comes on top."""

    step_seconds: float

    def __call__(self, scheduler: Scheduler) -> float:
        """The time of a step."""
        moving = scheduler.tiers.seconds_in_step if scheduler.tiers is not None else 0.0
        return self.step_seconds + moving
