"""How long a step takes, from a card's bandwidth and speed: the roofline max(bytes / bandwidth, FLOPs / peak) + overhead.

With pipeline stages several batches are under way at once, and a `PipelineClock` says when each of them returns.
"""

from __future__ import annotations

from collections import deque
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

    weight_bytes: int  # read once a step, of experts those that a token is sent to
    kv_bytes_per_token: int  # over all layers
    flops_per_token: float  # about twice the active parameters
    bytes_per_second: float
    flops_per_second: float
    overhead_seconds: float = _OVERHEAD_SECONDS
    expert_bytes: int = 0  # of weight_bytes
    expert_fraction: float = 1.0  # experts that one token is sent to, of all

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
        # by chance, an expert is left alone by all tokens of the step with (1 - top_k / experts) ** tokens
        unread = self.expert_bytes * (1.0 - self.expert_fraction) ** num_scheduled_tokens
        read = (self.weight_bytes - unread + self.kv_bytes_per_token * num_context_tokens) / self.bytes_per_second
        computed = self.flops_per_token * num_scheduled_tokens / self.flops_per_second
        return max(read, computed) + self.overhead_seconds

    def __call__(self, scheduler: Scheduler) -> float:
        """The time of the step that `scheduler` has just scheduled, with what its lower tiers move."""
        moving = scheduler.tiers.seconds_in_step if scheduler.tiers is not None else 0.0
        return self.seconds(scheduler.num_scheduled_tokens, scheduler.held_tokens()) + moving

    def token_seconds(self, num_scheduled_tokens: int, num_context_tokens: int) -> float:
        """The time from one token of a request to its next, with so much scheduled and read in each round of requests."""
        return self.seconds(num_scheduled_tokens, num_context_tokens)

    def clock(self) -> Roofline:
        """What times the steps of one run."""
        return self

    @property
    def recompute_seconds_per_token(self) -> float:
        """The time of one token in a prefill that fills the card."""
        return self.flops_per_token / self.flops_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The step time of a model over pipeline stages, each with its own layers' weights, KV and arithmetic.

    vLLM keeps as many batches under way as there are stages (`max_concurrent_batches`, config/vllm.py of 0.23 to 0.33,
    before that in v1/executor/; `step_with_batch_queue` of v1/engine/core.py): it schedules the next one before the last
    returns, and a request that decodes is in one batch only until that batch is back. So a batch takes the sum of its
    stages' times, and one batch returns each time of the slowest stage while the others are busy. Async scheduling with
    model runner V2 allows one batch more but lets a request decode every `pipeline_parallel_size` steps only
    (`next_decode_eligible_step`, v1/core/sched/async_scheduler.py), which are the same batches.
    What stages send each other is left out: 2 bytes x hidden size a token, thousandths of what a stage reads.
    """

    stages: tuple[Roofline, ...]

    def seconds(self, num_scheduled_tokens: int, num_context_tokens: int) -> float:
        """The time of one batch through all stages, alone."""
        return sum(stage.seconds(num_scheduled_tokens, num_context_tokens) for stage in self.stages)

    def token_seconds(self, num_scheduled_tokens: int, num_context_tokens: int) -> float:
        """The time from one token of a request to its next, with the requests dealt to as many batches as stages.

        max(sum of the stages' times, stages x the slowest stage's time), of a batch that is one part of all.
        """
        num_batches = min(len(self.stages), max(1, num_scheduled_tokens))
        tokens, context = -(-num_scheduled_tokens // num_batches), num_context_tokens // num_batches
        times = [stage.seconds(tokens, context) for stage in self.stages]
        return max(sum(times), num_batches * max(times))

    def clock(self) -> PipelineClock:
        """What times the steps of one run."""
        return PipelineClock(self)


class PipelineClock:
    """When batches return from a pipeline: each stage takes one batch at a time, in order; asked once a step."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._stages = pipeline.stages
        self._now = 0.0  # without the idle stretches of a run, in which all stages are free
        self._free_at = [0.0] * len(pipeline.stages)
        self._returns: deque[float] = deque()

    def __call__(self, scheduler: Scheduler) -> float:
        """How long the engine waits after scheduling a batch: for the oldest, once as many as stages are under way."""
        self._returns.append(self._send(scheduler))
        moving = scheduler.tiers.seconds_in_step if scheduler.tiers is not None else 0.0
        if scheduler.batches_in_flight() < len(self._stages):
            return moving
        waited = max(0.0, self._returns.popleft() - self._now)
        self._now += waited
        return waited + moving

    def _send(self, scheduler: Scheduler) -> float:
        """When the batch just scheduled returns; one without tokens passes the stages by."""
        tokens = scheduler.num_scheduled_tokens
        if tokens == 0:
            return self._now
        context = sum(scheduled.sequence.computed for scheduled in scheduler.batch)
        reached = self._now
        for place, stage in enumerate(self._stages):
            reached = max(reached, self._free_at[place])
            reached += stage.seconds(tokens, context)
            self._free_at[place] = reached
        return reached


@dataclass(frozen=True, slots=True)
class FixedStepTime:
    """Every step takes the same time, and what its lower tiers move comes on top."""

    step_seconds: float

    def __call__(self, scheduler: Scheduler) -> float:
        """The time of a step."""
        moving = scheduler.tiers.seconds_in_step if scheduler.tiers is not None else 0.0
        return self.step_seconds + moving
