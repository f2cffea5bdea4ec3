"""Workloads drawn from distributions: how long prompts and answers are, when they arrive, what they share.

Files of requests are read by `workload_files`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from planner.block_hashes import Piece
from planner.facts import PlanError
from planner.sequence import MAX_TOKENS, SimulatedRequest

MAX_REQUESTS = 200_000
LengthKind = Literal["fixed", "uniform", "lognormal", "bimodal", "percentiles"]
ArrivalKind = Literal["at_once", "poisson", "bursty", "steady"]
_Z95, _Z99 = 1.6448536269514722, 2.3263478740408408  # normal quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthDistribution:
    """Lengths in tokens. Which fields count depends on `kind`; every drawn length is clipped to `[low, high]`."""

    kind: LengthKind = "fixed"
    low: int = 1
    high: int = MAX_TOKENS
    mean_tokens: float = 512.0  # fixed, lognormal and the short mode of bimodal
    spread: float = 0.5  # standard deviation of the logarithm (lognormal, both modes of bimodal)
    long_mean_tokens: float = 16_384.0  # bimodal: the long documents
    long_fraction: float = 0.1
    p50_tokens: float = 0.0  # percentiles
    p95_tokens: float = 0.0
    p99_tokens: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high <= MAX_TOKENS:
            text = f"Lengths must satisfy 1 ≤ low ≤ high ≤ {MAX_TOKENS:,}; low {self.low:,} and high {self.high:,} were given."
            raise PlanError("low", self.low, text)
        if self.kind == "percentiles" and not 0 < self.p50_tokens <= self.p95_tokens <= self.p99_tokens:
            text = "The percentiles must be positive and rise: p50 ≤ p95 ≤ p99."
            raise PlanError("p50_tokens", self.p50_tokens, text)
        if not 0.0 <= self.long_fraction <= 1.0:
            raise PlanError("long_fraction", self.long_fraction, "The fraction of long documents is from 0 to 1.")
        if not (self.mean_tokens > 0 and self.long_mean_tokens > 0 and 0.0 <= self.spread <= 5.0):
            text = "A mean length must be positive, and a spread from 0 to 5."
            raise PlanError("mean_tokens", self.mean_tokens, text)

    def draw(self, source: random.Random) -> int:
        """One length in tokens."""
        value = _DRAWS[self.kind](self, source)
        return max(self.low, min(self.high, round(value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalProcess:
    """When requests arrive. `rate` is requests per second, or per step where arrivals count in steps."""

    kind: ArrivalKind = "at_once"
    rate: float = 1.0
    burst_size: float = 8.0  # bursty: requests that come together, on average

    def __post_init__(self) -> None:
        if not (0.0 < self.rate <= 1e6 and 1.0 <= self.burst_size <= 1e6):
            text = "The arrival rate must be above 0 (and at most a million), a burst at least one request."
            raise PlanError("rate", self.rate, text)

    def gap(self, source: random.Random) -> float:
        """The time from one request to the next."""
        if self.kind == "at_once":
            return 0.0
        if self.kind == "steady":
            return 1.0 / self.rate
        if self.kind == "poisson":
            return source.expovariate(self.rate)
        # bursts of geometric size, with gaps between them that keep the mean rate
        return source.expovariate(self.rate / self.burst_size) if source.random() < 1.0 / self.burst_size else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """A workload to draw: the same spec and seed give the same requests."""

    num_requests: int
    prompt: LengthDistribution = field(default_factory=LengthDistribution)
    output: LengthDistribution = field(default_factory=lambda: LengthDistribution(mean_tokens=128.0))
    arrivals: ArrivalProcess = field(default_factory=ArrivalProcess)
    arrivals_in: Literal["steps", "seconds"] = "steps"
    num_prefixes: int = 0  # different system prompts
    prefix_tokens: int = 0  # the length of each, on top of the drawn prompt
    shared_fraction: float = 1.0  # of the requests begin with one of them
    max_priority: int = 0  # priorities are drawn from 0 to this
    n: int = 1
    max_model_len: int | None = None  # drawn lengths are cut to fit

    def __post_init__(self) -> None:
        if not 1 <= self.num_requests <= MAX_REQUESTS:
            text = f"A workload has from 1 to {MAX_REQUESTS:,} requests; {self.num_requests:,} were asked for."
            raise PlanError("num_requests", self.num_requests, text)
        if self.num_prefixes < 0 or self.prefix_tokens < 0 or not 0.0 <= self.shared_fraction <= 1.0:
            text = "System prompts: their number and length are 0 or more, the sharing fraction is from 0 to 1."
            raise PlanError("num_prefixes", self.num_prefixes, text)
        if self.max_model_len is not None and self.max_model_len <= self.prefix_tokens + 2:
            text = f"max_model_len {self.max_model_len:,} leaves no room beside a system prompt of {self.prefix_tokens:,} tokens."
            raise PlanError("max_model_len", self.max_model_len, text)


def draw_workload(spec: WorkloadSpec, *, seed: int = 0) -> tuple[SimulatedRequest, ...]:
    """The requests of `spec`, in order of arrival."""
    source = random.Random(seed)  # noqa: S311 - a repeatable workload, not a secret
    now = 0.0
    requests = []
    for number in range(spec.num_requests):
        if number:
            now += spec.arrivals.gap(source)
        requests.append(_draw_request(spec, number, now, source))
    return tuple(requests)


def _draw_request(spec: WorkloadSpec, number: int, now: float, source: random.Random) -> SimulatedRequest:
    is_sharing = spec.num_prefixes > 0 and spec.prefix_tokens > 0 and source.random() < spec.shared_fraction
    prefix_tokens = spec.prefix_tokens if is_sharing else 0
    prefix = source.randrange(spec.num_prefixes) if is_sharing else 0
    num_prompt, num_output = prefix_tokens + spec.prompt.draw(source), spec.output.draw(source)
    if spec.max_model_len is not None:
        num_prompt = min(num_prompt, spec.max_model_len - 1)
        num_output = max(1, min(num_output, spec.max_model_len - num_prompt))
    in_steps = spec.arrivals_in == "steps"
    return SimulatedRequest(
        request_id=f"r{number}",
        arrival_step=math.floor(now) if in_steps else 0,
        arrival_seconds=None if in_steps else now,
        num_prompt_tokens=num_prompt,
        num_output_tokens=num_output,
        priority=source.randint(0, spec.max_priority) if spec.max_priority else 0,
        n=spec.n,
        shared_pieces=(Piece(key=f"system prompt {prefix}", num_tokens=prefix_tokens),) if is_sharing else (),
    )


def _lognormal(mean_tokens: float, spread: float, source: random.Random) -> float:
    """A draw whose mean is `mean_tokens`: the logarithm's mean is ln(mean) − spread²/2."""
    return source.lognormvariate(math.log(mean_tokens) - spread * spread / 2.0, spread)


def _bimodal(lengths: LengthDistribution, source: random.Random) -> float:
    mean = lengths.long_mean_tokens if source.random() < lengths.long_fraction else lengths.mean_tokens
    return _lognormal(mean, lengths.spread, source)


def _percentiles(lengths: LengthDistribution, source: random.Random) -> float:
    """Lognormal through p50 and p95, bent beyond p95 so that it also meets p99."""
    z = source.gauss(0.0, 1.0)
    low, middle, high = (math.log(value) for value in (lengths.p50_tokens, lengths.p95_tokens, lengths.p99_tokens))
    if z <= _Z95:
        return math.exp(low + (middle - low) * z / _Z95)
    return math.exp(middle + (high - middle) * (z - _Z95) / (_Z99 - _Z95))


_DRAWS: dict[str, Callable[[LengthDistribution, random.Random], float]] = {
    "fixed": lambda lengths, _: lengths.mean_tokens,
    "uniform": lambda lengths, source: source.randint(lengths.low, lengths.high),
    "lognormal": lambda lengths, source: _lognormal(lengths.mean_tokens, lengths.spread, source),
    "bimodal": _bimodal,
    "percentiles": _percentiles,
}
