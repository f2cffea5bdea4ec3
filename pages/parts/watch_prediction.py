"""What a plan expects of an engine under the load that is seen: the share of the plan's pool that the running requests need.

A first-order estimate: running requests × tokens that one holds on average, over the plan's tokens. A running request holds its
prompt and, on average over its life, half of what it will generate; prompt tokens found in the prefix cache may be shared, so
the low end leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from live.chunks import Numbers
from live.samples import EngineSample, HistogramSample
from planner.answer import Plan

PROMPTS, OUTPUTS = "vllm:request_prompt_tokens", "vllm:request_generation_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTokens:
    """Tokens in the pool for one running request, on average; `num_requests` finished ones say so."""

    low_tokens: float
    high_tokens: float
    num_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedUse:
    """The expected usage of the pool as fractions, where the load is `running` requests."""

    low_fraction: float
    best_fraction: float
    high_fraction: float

    def error(self, actual_fraction: float | None) -> float | None:
        """(expected − actual) / actual; None where there is nothing to compare with."""
        return None if not actual_fraction else (self.best_fraction - actual_fraction) / actual_fraction


def held_tokens(sample: EngineSample, hit_fraction: float | None) -> HeldTokens | None:
    """What finished requests tell of a running one; None while none has finished or lengths are not exported."""
    prompts, outputs = sample.histogram(PROMPTS), sample.histogram(OUTPUTS)
    prompt, output = _mean(prompts), _mean(outputs)
    if prompt is None or output is None or prompts is None:
        return None
    shared = prompt * min(1.0, max(0.0, hit_fraction or 0.0))
    high = prompt + output / 2
    return HeldTokens(low_tokens=high - shared, high_tokens=high, num_requests=int(prompts.count or 0))


def _mean(histogram: HistogramSample | None) -> float | None:
    if histogram is None or not histogram.count or histogram.sum is None:
        return None
    return histogram.sum / histogram.count


def expected_use(running: float | None, held: HeldTokens | None, plan: Plan) -> ExpectedUse | None:
    """The expected usage now."""
    if running is None or held is None or plan.pool.tokens <= 0:
        return None
    low, high = (min(1.0, running * tokens / plan.pool.tokens) for tokens in (held.low_tokens, held.high_tokens))
    return ExpectedUse(low_fraction=low, best_fraction=(low + high) / 2, high_fraction=high)


def expected_series(running: Numbers, held: HeldTokens, plan: Plan) -> tuple[Numbers, Numbers]:
    """The low and the high end of the expected usage at each point of `running`."""
    shares = [np.minimum(1.0, running * (tokens / plan.pool.tokens)) for tokens in (held.low_tokens, held.high_tokens)]
    return shares[0], shares[1]
