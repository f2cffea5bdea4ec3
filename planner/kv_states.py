"""Recurrent states: the bytes of one sequence's state in one layer, after TP and with speculative tokens."""

from __future__ import annotations

from planner.defaults import Resolved
from planner.inventory import Cache, ModelFacts, StateTensor
from planner.kv_dtypes import DTYPE_BYTES

STATE_KINDS = frozenset({"mamba1", "mamba2", "gdn", "linear_attention", "short_conv", "kda"})


def state_bytes(model: ModelFacts, resolved: Resolved, cache: Cache) -> int:
    """Bytes of one sequence's state in a layer of kind `cache` on one rank: the sum over its tensors."""
    return sum(
        _elements(state, resolved.tp, resolved.num_speculative_tokens)
        * DTYPE_BYTES[_dtype(model, resolved, cache, state.dtype_rule)]
        for state in cache.states
    )


def _dtype(model: ModelFacts, resolved: Resolved, cache: Cache, rule: str) -> str:
    flags = resolved.flags
    conv = resolved.dtype if flags.mamba_cache_dtype == "auto" else flags.mamba_cache_dtype
    if rule == "conv":
        return conv
    if rule != "ssm":
        return rule
    if flags.mamba_ssm_cache_dtype != "auto":
        return flags.mamba_ssm_cache_dtype
    # The checkpoint's wish: Qwen3.5 and later name it mamba_ssm_dtype, Nemotron-H mamba_ssm_cache_dtype.
    is_nemotron = model.architecture.startswith("NemotronH")
    key = "mamba_ssm_cache_dtype" if is_nemotron else "mamba_ssm_dtype"
    named = model.text_config.get(key)
    if (is_nemotron or cache.kind == "gdn") and isinstance(named, str) and named in DTYPE_BYTES:
        return named
    return "float32" if cache.kind == "kda" or is_nemotron else conv


def _elements(state: StateTensor, tp: int, num_speculative_tokens: int) -> int:
    elements = 1
    for axis, size in enumerate(state.shape):
        length = size
        if axis == state.shard_dim:
            length = (size - state.grouped_size) // tp
            if state.grouped_size:
                length += state.grouped_size // min(tp, state.num_groups)
        if axis == state.conv_extra_dim:
            length += num_speculative_tokens
        elements *= length
    return elements
