"""The rules of thumb for vLLM's memory that articles repeat, as they are written there, to be set beside what the planner computes.

Nothing in the planner uses them. A claim that is a figure rather than a formula is a `Claim` with the figure as published.
"""

from __future__ import annotations

from dataclasses import dataclass


def folk_weight_bytes(num_parameters: int, bytes_per_parameter: int = 2) -> int:
    """Bytes of the weights by the rule of thumb: num_parameters x bytes_per_parameter."""
    return num_parameters * bytes_per_parameter


def folk_kv_bytes_per_token(num_layers: int, hidden_size: int, bytes_per_number: int = 2) -> int:
    """Bytes of keys and values of one token by the rule of thumb: 2 x num_layers x hidden_size x bytes_per_number.

    Right for multi-head attention alone, where KV heads x head size is the hidden size.
    """
    return 2 * num_layers * hidden_size * bytes_per_number


def head_kv_bytes_per_token(num_layers: int, num_kv_heads: int, head_size: int, bytes_per_number: int = 2) -> int:
    """Bytes of keys and values of one token: 2 x num_layers x num_kv_heads x head_size x bytes_per_number.

    Exact where all layers attend to all tokens with one head shape.
    """
    return 2 * num_layers * num_kv_heads * head_size * bytes_per_number


def latent_bytes_per_token(num_layers: int, kv_lora_rank: int, rope_head_size: int, bytes_per_number: int = 2) -> int:
    """Bytes that multi-head latent attention keeps of one token: num_layers x (kv_lora_rank + rope_head_size) x bytes."""
    return num_layers * (kv_lora_rank + rope_head_size) * bytes_per_number


def reserved_slots_wasted(num_tokens: int, reserved_tokens: int) -> int:
    """Token slots that stay empty when `reserved_tokens` were set aside for a request that came to `num_tokens`."""
    return reserved_tokens - num_tokens


def blocks_of(num_tokens: int, block_size: int) -> int:
    """Blocks that hold `num_tokens`: ceil(num_tokens / block_size)."""
    return -(-num_tokens // block_size)


def shared_blocks_total(num_requests: int, prompt_tokens: int, shared_tokens: int, block_size: int) -> int:
    """Blocks of requests that begin with the same `shared_tokens`: full shared blocks once, the rest for each.

    shared = shared_tokens // block_size; total = shared + num_requests x (ceil(prompt_tokens / block_size) - shared).
    """
    shared = shared_tokens // block_size
    return shared + num_requests * (blocks_of(prompt_tokens, block_size) - shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostClaim:
    """The "KV cost per token" of a model as a much repeated table has it; MB there are 2**20 bytes."""

    model: str
    claimed_mb: float


COST_CLAIMS = (
    CostClaim(model="meta-llama/Llama-2-7b-hf", claimed_mb=0.125),
    CostClaim(model="mistralai/Mistral-7B-Instruct-v0.2", claimed_mb=0.118),
    CostClaim(model="microsoft/phi-2", claimed_mb=0.062),
    CostClaim(model="google/gemma-2b", claimed_mb=0.057),
)
ARTICLE_70B_HIDDEN = 4096  # the hidden size that the article gives a 70B model; Llama's 70B has 8192
ARTICLE_70B_TOKENS = 2048
AWQ_CLAIM_PERCENT = (40, 50)
PAGE_CLAIM_BYTES = 16 * 1024  # "16 KB pages"
