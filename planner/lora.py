"""The buffers that `--enable-lora` allocates beside every linear: room for `max_loras` adapters of `max_lora_rank`."""

from __future__ import annotations

from dataclasses import dataclass

from planner.inventory import Experts, Linear
from planner.request import EngineFlags
from planner.sharding import Split, local_experts, local_linear


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraShape:
    """How many adapters, of what rank, and whether their A (column) or B (row) matrices are divided too."""

    num_adapters: int
    rank: int
    is_fully_sharded: bool

    @classmethod
    def of(cls, flags: EngineFlags) -> LoraShape | None:
        """The shape the flags ask for, or None without LoRA."""
        if not flags.enable_lora:
            return None
        return cls(num_adapters=flags.max_loras, rank=flags.max_lora_rank, is_fully_sharded=flags.fully_sharded_loras)


def lora_tensors(module: Linear | Experts, lora: LoraShape, split: Split, dtype_bytes: int) -> tuple[int, ...]:
    """The bytes of each A and B buffer of a module on a rank: adapters x (rank x in, out x rank), one pair per projection.

    Column-parallel: A whole, B divided; row-parallel: A divided, B whole; fully sharded: the whole one divided as well
    (vLLM lora/layers/base_linear.py, column_parallel_linear.py, row_parallel_linear.py, fused_moe.py).
    """
    unit = lora.num_adapters * dtype_bytes
    tp = split.tp if lora.is_fully_sharded else 1
    if isinstance(module, Experts):
        shape = local_experts(module, split)
        per_rank = unit * lora.rank * shape.num_experts
        into, out = per_rank * shape.hidden_size, per_rank * shape.intermediate_size
        return (*((into // tp, out) * (2 if shape.is_gated else 1)), out, into // tp)
    shape_linear = local_linear(module, split.tp_of(module))
    size_in = shape_linear.in_features * lora.rank * unit
    if module.parallel == "row":
        return (size_in, shape_linear.rows * lora.rank * unit // tp)
    a_bytes = size_in // tp if module.parallel in {"column", "qkv"} else size_in
    return tuple(size for rows in shape_linear.out_features for size in (a_bytes, rows * lora.rank * unit))
