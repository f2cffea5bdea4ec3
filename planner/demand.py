"""What is asked of a service: how long requests are, how many come at once or a second, and how few may be preempted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from planner.facts import PlanError
from planner.sequence import SimulatedRequest
from planner.workload import ArrivalProcess, LengthDistribution, WorkloadSpec, draw_workload

MOST_TOKENS = 100_000_000
MOST_USERS = 1_000_000
_LONGEST_RUN_REQUESTS = 4_000
_FEWEST_REQUESTS = 60
_FEWEST_ARRIVALS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A distribution of lengths in tokens by three of its percentiles; `name` says of what ("prompt", "output")."""

    name: str
    p50_tokens: int
    p95_tokens: int
    p99_tokens: int

    def __post_init__(self) -> None:
        previous, previous_name = 1, ""
        for percentile in ("p50", "p95", "p99"):
            value = getattr(self, f"{percentile}_tokens")
            field = f"{self.name}_{percentile}"
            if not isinstance(value, int) or not 1 <= value <= MOST_TOKENS:
                text = f"The {self.name}'s {percentile} is {value:,} tokens; write a whole number from 1 to {MOST_TOKENS:,}."
                raise PlanError(field, value, text)
            if value < previous:
                text = (
                    f"The {self.name}'s {percentile} is {value:,} tokens, less than its {previous_name} of {previous:,}; "
                    "percentiles rise: p50 ≤ p95 ≤ p99."
                )
                raise PlanError(field, value, text)
            previous, previous_name = value, percentile

    @property
    def distribution(self) -> LengthDistribution:
        """What lengths are drawn from: nothing above p99, which is what the service promises to hold."""
        return LengthDistribution(
            kind="percentiles",
            p50_tokens=self.p50_tokens,
            p95_tokens=self.p95_tokens,
            p99_tokens=self.p99_tokens,
            high=self.p99_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The load: either `users` that always have one request under way, or `requests_per_second` that arrive by chance."""

    prompt: Lengths
    output: Lengths
    prefix_tokens: int = 0  # a system prompt that all requests begin with, on top of the prompt's own length
    users: int | None = None
    requests_per_second: float | None = None
    most_preempted_fraction: float = 0.0  # preemptions for each request that is served

    def __post_init__(self) -> None:
        if not 0 <= self.prefix_tokens <= MOST_TOKENS:
            text = (
                f"The shared prefix is {self.prefix_tokens:,} tokens; write a whole number from 0 to {MOST_TOKENS:,}."
            )
            raise PlanError("prefix_tokens", self.prefix_tokens, text)
        if (self.users is None) == (self.requests_per_second is None):
            text = "Give either the users at once or the requests that arrive a second, not both."
            raise PlanError("users", self.users, text)
        if self.users is not None and not 1 <= self.users <= MOST_USERS:
            text = f"The users at once are {self.users:,}; write a whole number from 1 to {MOST_USERS:,}."
            raise PlanError("users", self.users, text)
        rate = self.requests_per_second
        if rate is not None and not (math.isfinite(rate) and 0.0 < rate <= 1e6):
            text = f"The arrival rate is {rate:g} requests a second; write a number above 0, up to a million."
            raise PlanError("requests_per_second", rate, text)
        if not 0.0 <= self.most_preempted_fraction <= 1.0:
            text = "The share of requests that may be preempted is a number from 0 to 100 %."
            raise PlanError("most_preempted_fraction", self.most_preempted_fraction, text)

    @property
    def longest_tokens(self) -> int:
        """The longest request that must be held: shared prefix, prompt and output at p99."""
        return self.prefix_tokens + self.prompt.p99_tokens + self.output.p99_tokens

    def for_replicas(self, num_replicas: int) -> Demand:
        """What one of `num_replicas` copies is asked, which share the load evenly."""
        if self.users is not None:
            return replace(self, users=-(-self.users // num_replicas))
        return replace(self, requests_per_second=(self.requests_per_second or 0.0) / num_replicas)

    def draw(self, num_requests: int, *, seed: int) -> tuple[SimulatedRequest, ...]:
        """`num_requests` of its requests: all at once for users, who ask again when they are served; else by chance."""
        is_timed = self.requests_per_second is not None
        arrivals = (
            ArrivalProcess(kind="poisson", rate=self.requests_per_second or 1.0) if is_timed else ArrivalProcess()
        )
        spec = WorkloadSpec(
            num_requests=num_requests,
            prompt=self.prompt.distribution,
            output=self.output.distribution,
            arrivals=arrivals,
            arrivals_in="seconds" if is_timed else "steps",
            num_prefixes=1 if self.prefix_tokens else 0,
            prefix_tokens=self.prefix_tokens,
            max_model_len=max(self.longest_tokens, self.prefix_tokens + 3),
        )
        return draw_workload(spec, seed=seed)

    def means(self, *, seed: int = 0) -> tuple[float, float]:
        """Mean prompt (without shared prefix) and output in tokens, of a thousand drawn requests."""
        drawn = self.draw(1000, seed=seed)
        prompts = sum(request.num_prompt_tokens - self.prefix_tokens for request in drawn)
        return prompts / len(drawn), sum(request.num_output_tokens for request in drawn) / len(drawn)


def requests_for(concurrency: float, *, is_timed: bool = False) -> int:
    """How many requests a run needs so that `concurrency` at once are in a steady state, within what can be waited for.

    Arrivals by chance come in bursts: they need more of them before a hundredth of preemptions can be told from none.
    """
    bursts = min(_FEWEST_ARRIVALS, math.ceil(50 * concurrency)) if is_timed else 0
    return max(_FEWEST_REQUESTS, bursts, min(_LONGEST_RUN_REQUESTS, math.ceil(4 * concurrency)))
