"""Which full blocks of a windowed group stay findable: a hit needs only the blocks just below where it ends."""

from __future__ import annotations

from planner.sequence import Sequence
from planner.simulator_config import KvGroup, SimulatorConfig
from planner.units import div_ceil


def blocks_for_hit(span_tokens: int, block_size: int, *, drop_last_hit_block: bool) -> int:
    """The run of cached blocks that a sliding-window hit needs, with the one it drops under EAGLE."""
    return div_ceil(span_tokens - 1, block_size) + (1 if drop_last_hit_block else 0)


def kept_blocks(config: SimulatorConfig, group: KvGroup, sequence: Sequence, start: int, end: int) -> list[int] | None:
    """The blocks of `[start, end)` to make findable; None: all of them."""
    if group.kind != "sliding_window" or group.span_tokens is None:
        return None
    block_size, interval = config.block_size, config.prefix_cache_retention_interval
    need = blocks_for_hit(group.span_tokens, block_size, drop_last_hit_block=config.drop_last_hit_block)
    shift = 1 if config.drop_last_hit_block else 0
    segment = 1 if interval is None else interval // block_size
    if segment and need >= segment:
        return None
    kept = {
        index
        for index in range(start, end)
        if segment and index >= shift and (index - shift) % segment >= segment - need
    }
    if interval is not None:
        for boundary in _boundaries(config, sequence):
            last = boundary // block_size + shift
            kept.update(range(max(start, last - need), min(end, last)))
    return sorted(kept)


def _boundaries(config: SimulatorConfig, sequence: Sequence) -> list[int]:
    """Where a later request that repeats this prompt can resume."""
    block_size, prompt = config.block_size, sequence.num_prompt
    if config.drop_last_hit_block:
        resend, extension = (prompt - 1) // block_size * block_size, prompt // block_size * block_size
        boundaries = [max(resend - block_size, 0), max(extension - block_size, 0)]
    else:
        boundaries = [prompt - 1]
    if sequence.shared_boundary:
        boundaries.append(sequence.shared_boundary)
        if config.drop_last_hit_block:
            boundaries.append(sequence.shared_boundary - block_size)
    return boundaries
