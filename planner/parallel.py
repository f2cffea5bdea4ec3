"""How pipeline parallelism deals layers to stages."""

from __future__ import annotations


def layer_ranges(num_layers: int, pipeline_parallel_size: int) -> tuple[range, ...]:
    """The decoder layers of each stage, first stage first.

    Layers that do not divide go one each to the stages from the second-to-last backwards: the last stage also carries
    the head (vLLM 0.33 distributed/utils.py, get_pp_indices).
    """
    base, remainder = divmod(num_layers, pipeline_parallel_size)
    sizes = [base] * pipeline_parallel_size
    for step in range(remainder):
        sizes[-(step + 2)] += 1
    starts = [sum(sizes[:rank]) for rank in range(pipeline_parallel_size)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))
