"""What finished requests tell of running ones: the share of the pool that these need.

A first-order estimate: running requests × tokens that one holds on average, over the pool's tokens. A running request holds its
prompt and, on average over its life, half of what it will generate; prompt tokens found in the prefix cache may be shared, so
the low end leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from live.chunks import Numbers
from live.samples import EngineSample, HistogramSample

PROMPTS, OUTPUTS = "vllm:request_prompt_tokens", "vllm:request_generation_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTokens:
    """Tokens in the pool for one running request, on average; `num_requests` finished ones say so."""

    low_tokens: float
    high_tokens: float
    num_requests: int


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


def pool_tokens(sample: EngineSample) -> int | None:
    """The tokens that the engine's own pool holds, as it says; None where it does not."""
    config = sample.cache_config
    if config is None:
        return None
    if config.kv_cache_tokens:
        return config.kv_cache_tokens
    return (config.num_gpu_blocks or 0) * (config.block_size or 0) or None


def expected_series(running: Numbers, held: HeldTokens, tokens: int) -> tuple[Numbers, Numbers]:
    """The low and the high end of the expected usage of a pool of `tokens` at each point of `running`."""
    shares = [np.minimum(1.0, running * (each / tokens)) for each in (held.low_tokens, held.high_tokens)]
    return shares[0], shares[1]
