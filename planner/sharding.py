"""What one rank holds of a module: local shapes under tensor, expert and data parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts import PlanError
from planner.inventory import Buffer, Embedding, Experts, Linear, Tensor
from planner.units import div_ceil, round_up

VOCABULARY_PADDING = 64  # rows (vLLM vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Over how many ranks a module is divided. `moe_tp` divides an expert's width, `ep` the number of experts."""

    tp: int
    moe_tp: int
    ep: int

    @property
    def is_sequence_parallel(self) -> bool:
        """Whether expert layers are split by tokens (ParallelConfig.use_sequence_parallel_moe, since 0.11)."""
        return self.ep > 1 and self.moe_tp > self.tp > 1

    def tp_of(self, module: Linear) -> int:
        """Over how many ranks tensor parallelism divides `module`."""
        if module.whole_unless_divides is not None and module.whole_unless_divides % self.tp:
            return 1
        return 1 if module.is_whole_in_sequence_parallel and self.is_sequence_parallel else self.tp


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLinear:
    """A rank's part of a linear; `full_in` and `full_out` are the sizes before the split, which group scales may need."""

    in_features: int
    out_features: tuple[int, ...]
    full_in: int
    full_out: tuple[int, ...]
    bias_size: int = 0

    @property
    def rows(self) -> int:
        """Outputs of all fused projections together."""
        return sum(self.out_features)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalExperts:
    """A rank's part of the routed experts of one layer."""

    num_experts: int
    hidden_size: int
    intermediate_size: int
    is_gated: bool
    has_bias: bool
    full_intermediate_size: int


def _divided(size: int, parts: int, what: str) -> int:
    if size % parts:
        raise PlanError(
            "tensor_parallel_size",
            parts,
            f"tensor_parallel_size {parts} does not divide {what} ({size}); choose a size that does.",
        )
    return size // parts


def local_linear(module: Linear, tp: int) -> LocalLinear:
    """The rank's shape of a linear module."""
    local_in, outs = module.in_features, module.out_features
    if module.parallel == "row":
        local_in = _divided(module.in_features, tp, f"the input of {module.name}")
    elif module.parallel == "qkv":
        outs = _local_qkv(module, tp)
    elif module.parallel in {"column", "vocab"}:
        outs = _local_columns(module, tp)
    return LocalLinear(
        in_features=local_in,
        out_features=outs,
        full_in=module.in_features,
        full_out=module.out_features,
        bias_size=sum(outs) if module.has_bias else 0,
    )


def _local_columns(module: Linear, tp: int) -> tuple[int, ...]:
    bounds = module.max_shards or (0,) * len(module.out_features)
    outs = tuple(
        _divided(size, min(tp, bound) if bound else tp, f"an output of {module.name}")
        for size, bound in zip(module.out_features, bounds, strict=True)
    )
    padding = -sum(outs) % module.padded_to
    return (*outs, padding) if padding else outs


def _local_qkv(module: Linear, tp: int) -> tuple[int, ...]:
    """Q by heads; K and V by heads until there is one a rank, which is then copied (vLLM linear.py, QKVParallelLinear)."""
    kv_heads = module.kv_heads or 1
    copies_evenly = kv_heads % tp == 0 if kv_heads >= tp else tp % kv_heads == 0
    if not copies_evenly:
        raise PlanError(
            "tensor_parallel_size",
            tp,
            f"tensor_parallel_size {tp} neither divides nor is a multiple of the {kv_heads} KV heads; choose one that does.",
        )
    query, *rest = module.out_features
    head_size = module.head_size or 1
    local_query = _divided(query // head_size, tp, "the attention heads") * head_size
    bounds = module.max_shards[1:] or (0,) * len(rest)
    return (local_query, *(size // min(tp, bound or kv_heads) for size, bound in zip(rest, bounds, strict=True)))


def local_experts(module: Experts, split: Split) -> LocalExperts:
    """The rank's experts: with expert parallelism whole ones, else every expert cut along its width."""
    width = module.intermediate_size
    if split.ep == 1:
        width = _divided(width, split.moe_tp, "the width of an expert")
    whole = module.intermediate_size
    if split.ep == 1 and split.moe_tp > 1 and width < module.least_shard:
        width = module.least_shard
        whole = width * split.moe_tp
    return LocalExperts(
        num_experts=div_ceil(module.num_experts, split.ep),
        hidden_size=module.hidden_size,
        intermediate_size=width,
        is_gated=module.is_gated,
        has_bias=module.has_bias,
        full_intermediate_size=whole,
    )


def local_tensor_size(module: Tensor, tp: int) -> int:
    """The number of elements a rank holds of a tensor."""
    pieces = min(tp, module.max_shards) if module.max_shards else tp
    return _product_of_split(module.shape, module.shard_dim, pieces, module.name)


def _product_of_split(shape: tuple[int, ...], shard_dim: int | None, tp: int, name: str) -> int:
    count = 1
    for dim, size in enumerate(shape):
        count *= _divided(size, tp, f"the size of {name}") if dim == shard_dim else size
    return count


def local_buffer_size(module: Buffer, tp: int) -> int:
    """The number of elements a rank holds of a buffer, its grouped part cut into at most `num_groups` pieces."""
    if module.shard_dim is None or not module.grouped_size:
        return _product_of_split(module.shape, module.shard_dim, tp, module.name)
    whole = module.shape[module.shard_dim]
    local = _divided(whole - module.grouped_size, tp, f"the size of {module.name}")
    local += module.grouped_size // min(tp, module.num_groups)
    others = 1
    for dim, size in enumerate(module.shape):
        others *= 1 if dim == module.shard_dim else size
    return local * others


def local_rows(module: Embedding, tp: int) -> int:
    """The rows of a vocabulary table that a rank holds."""
    rows = round_up(module.num_rows, VOCABULARY_PADDING) if module.is_padded else module.num_rows
    return _divided(rows, tp, f"the rows of {module.name}") if module.is_sharded else rows
