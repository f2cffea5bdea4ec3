"""The parameter tensors that each weight format makes of one linear or of one layer's experts, in bytes per rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.sharding import LocalExperts, LocalLinear

FormatKind = Literal["plain"]
DTYPE_BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "bool": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How a module's weights are stored. `plain` is the model's own dtype."""

    kind: FormatKind = "plain"


PLAIN = Format()


def linear_tensors(form: Format, shape: LocalLinear, dtype_bytes: int) -> tuple[int, ...]:
    """The bytes of each parameter of a linear, its bias included."""
    bias = (shape.bias_size * dtype_bytes,) if shape.bias_size else ()
    return (shape.rows * shape.in_features * dtype_bytes, *bias)


def expert_tensors(form: Format, shape: LocalExperts, dtype_bytes: int) -> tuple[int, ...]:
    """The bytes of each fused parameter of one layer's experts."""
    width_13 = shape.intermediate_size * (2 if shape.is_gated else 1)
    weights = (
        shape.num_experts * width_13 * shape.hidden_size * dtype_bytes,
        shape.num_experts * shape.hidden_size * shape.intermediate_size * dtype_bytes,
    )
    if not shape.has_bias:
        return weights
    biases = (shape.num_experts * width_13 * dtype_bytes, shape.num_experts * shape.hidden_size * dtype_bytes)
    return (*weights, *biases)
