"""The blocks that capturing full CUDA graphs asks of a cache with states: one for each decoding sequence."""

from __future__ import annotations

from collections.abc import Iterable

from planner.answer import KvGroup
from planner.defaults import Resolved
from planner.versions import Version

FIRST_WITH_CHECK = Version(0, 20, 0)  # before, capture sizes were cut instead


def least_blocks(groups: Iterable[KvGroup], resolved: Resolved) -> int:
    """The fewest blocks with which the engine captures its graphs; 0 where it does not ask.

    Mamba and linear attention keep a sequence's state in a block of the pool, and a full graph of max_num_seqs
    sequences reads as many (config/compilation.py, resolve_cudagraph_mode_and_sizes, 0.20 to 0.33, both runners). With
    a drafter the mode depends on the attention backend, so nothing is said.
    """
    asks = resolved.version >= FIRST_WITH_CHECK and "FULL" in resolved.cudagraph_mode
    if not asks or resolved.flags.enforce_eager or resolved.flags.speculative_config is not None:
        return 0
    return resolved.max_num_seqs if any("mamba" in group.kind.split("+") for group in groups) else 0


def too_few_text(max_num_seqs: int, num_blocks: int) -> str:
    """The error as vLLM words it."""
    return (
        f"max_num_seqs ({max_num_seqs}) exceeds available Mamba cache blocks ({num_blocks}). Each decode sequence "
        "requires one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most "
        f"{num_blocks} or increase gpu_memory_utilization."
    )
