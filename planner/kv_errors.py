"""The text that vLLM itself prints when the KV pool cannot hold one request, release by release."""

from __future__ import annotations

from planner.units import GIB
from planner.versions import Version

_DOCS = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."


def _gib(num_bytes: int, version: Version) -> str:
    value = num_bytes / GIB
    # `.2f` up to 0.13; later releases print `round(value, 2)`, so 16 GiB reads "16.0".
    return f"{value:.2f}" if version < (0, 14, 0) else str(round(value, 2))


def no_memory_text(version: Version) -> str:
    """The error of vLLM for a pool without room for a single usable block."""
    if version < (0, 13, 0):
        tail = "when initializing the engine."
    elif version < (0, 22, 0):
        tail = f"when initializing the engine. {_DOCS}"
    else:
        tail = (
            "when initializing the engine (this flag also controls CPU memory reservation on the CPU backend, despite "
            f"its name). {_DOCS}"
        )
    return f"No available memory for the cache blocks. Try increasing `gpu_memory_utilization` {tail}"


def too_long_text(
    version: Version, *, max_model_len: int, needed_bytes: int, available_bytes: int, estimated_max_model_len: int
) -> str:
    """The error of vLLM for a pool that cannot hold one request of `max_model_len` tokens."""
    models = "models's" if version < (0, 22, 0) else "model's"
    lead = (
        f"To serve at least one request with the {models} max seq len ({max_model_len}), "
        f"({_gib(needed_bytes, version)} GiB KV cache is needed, which is larger than the available KV cache memory "
        f"({_gib(available_bytes, version)} GiB). "
    )
    if estimated_max_model_len > 0:
        lead += _estimate(version, estimated_max_model_len)
    if version < (0, 13, 0):
        return (
            f"{lead}Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
        )
    cpu = " (which also controls CPU memory on the CPU backend)" if version >= (0, 22, 0) else ""
    return (
        f"{lead}Try increasing `gpu_memory_utilization`{cpu} or decreasing `max_model_len` when initializing the engine. "
        f"{_DOCS}"
    )


def _estimate(version: Version, estimated_max_model_len: int) -> str:
    based = "Based on the available memory,"
    if version < (0, 9, 0):
        return f"{based}  "  # 0.8 drops the second half of its own sentence
    return f"{based} the estimated maximum model length is {estimated_max_model_len}. "


def v0_too_long_text(*, max_model_len: int, pool_tokens: int) -> str:
    """The V0 engine's error for a pool smaller than `max_model_len` tokens."""
    return (
        f"The model's max seq len ({max_model_len}) is larger than the maximum number of tokens that can be stored in "
        f"KV cache ({pool_tokens}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
        "initializing the engine."
    )


def auto_fit_text() -> str:
    """The error of vLLM for `--max-model-len auto` with room for not even one token."""
    return (
        "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. "
        "Try increasing `gpu_memory_utilization`."
    )
