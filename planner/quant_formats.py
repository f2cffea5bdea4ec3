"""The parameter tensors that a weight format makes of one linear or of one layer's experts, in bytes per rank.

A `Format` describes what the create_weights methods of vLLM's quantisation layers (0.32, 0.33) allocate: the packed weight,
its scales by tensor, channel, block or group, zero points, and the scalars beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from typing import Literal, NamedTuple

from planner.facts import PlanError
from planner.sharding import LocalExperts, LocalLinear
from planner.units import div_ceil, round_up

Scale = Literal["none", "tensor", "channel", "block", "group"]
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
_FLOAT32_BYTES = 4
_FINEST_BLOCK = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How a module's weights are stored; `bits` 0 is the model's own dtype.

    `scale_bytes` of one scale, 0 for the model's dtype. `group_size` -1: one group over the input. `tensor_scalars`: float32
    values beside the scales, one per fused output (a second weight scale, an input scale); `dtype_scalars` the same in the
    model's dtype. `moe_scalars` counts them for
    experts: (per expert and projection of w13, per expert of w13, per expert of w2). `pad_hidden`, `pad_intermediate`: what
    the expert kernel rounds the sizes up to. `experts_have_bias`: biases are made whether the model has them or not.
    `pad_columns_after_load`: what the kernel's own layout rounds the inputs of packed values up to once they are loaded.
    """

    bits: int | Fraction = 0
    scale: Scale = "none"
    scale_bytes: int = _FLOAT32_BYTES
    block: tuple[int, int] = (1, 1)
    group_size: int = -1
    has_zeros: bool = False
    has_order: bool = False
    tensor_scalars: int = 0
    dtype_scalars: int = 0
    moe_scalars: tuple[int, int, int] = (0, 0, 0)
    shape_bytes: int = 0
    moe_shape_bytes: int = 0
    pad_hidden: int = 1
    pad_intermediate: int = 1
    experts_have_bias: bool = False
    pad_columns_after_load: int = 1
    keeps_groups_whole: bool = False  # refuses a rank's input that is no multiple of the group


PLAIN = Format()


def linear_tensors(form: Format, shape: LocalLinear, dtype_bytes: int) -> tuple[int, ...]:
    """The bytes of each parameter of a linear, its bias included."""
    bias = [shape.bias_size * dtype_bytes] if shape.bias_size else []
    rows, columns = shape.rows, shape.in_features
    if not form.bits:
        return (rows * columns * dtype_bytes, *bias)
    _check_cut(form, shape)
    tensors = [_packed_bytes(rows * columns, form)]
    tensors += _scales(form, _Matrices(1, rows, columns, len(shape.out_features)), dtype_bytes)
    tensors += [_FLOAT32_BYTES * len(shape.out_features)] * form.tensor_scalars
    tensors += [dtype_bytes * len(shape.out_features)] * form.dtype_scalars
    if form.has_order:
        tensors.append(4 * columns)
    if form.shape_bytes:
        tensors.append(form.shape_bytes)
    return (*tensors, *bias)


def _check_cut(form: Format, shape: LocalLinear) -> None:
    """Refuse an input cut by TP inside a block or group, as block FP8, AWQ and compressed-tensors do."""
    unit = form.block[1] if form.scale == "block" else form.group_size if form.keeps_groups_whole else 1
    if unit > 1 and shape.in_features != shape.full_in and shape.in_features % unit:
        tp = shape.full_in // shape.in_features
        raise PlanError(
            "tensor_parallel_size",
            tp,
            f"tensor_parallel_size {tp} cuts an input of {shape.full_in} to {shape.in_features}, which is not divisible by "
            f"the quantisation's group of {unit}; choose a smaller size.",
        )


def _packed_bytes(num_values: int, form: Format) -> int:
    return -int(-(num_values * form.bits) // 8)


class _Matrices(NamedTuple):
    num: int  # 1 for a linear, else the experts on the rank
    rows: int
    columns: int
    fused: int  # projections that share the matrix


def _scales(form: Format, matrices: _Matrices, dtype_bytes: int) -> list[int]:
    """The scale tensor of the matrices, and the zero points beside it."""
    experts, rows, columns, num_fused = matrices
    if form.scale == "none":
        return []
    width = form.scale_bytes or dtype_bytes
    if form.scale == "tensor":
        return [experts * num_fused * width]
    if form.scale == "channel":
        return [experts * rows * width]
    if form.scale == "block":
        return [experts * div_ceil(rows, form.block[0]) * div_ceil(columns, form.block[1]) * width]
    groups = 1 if form.group_size < 0 else columns // form.group_size
    zeros = [_packed_bytes(experts * rows * groups, form)] if form.has_zeros else []
    return [experts * rows * groups * width, *zeros]


def expert_tensors(form: Format, shape: LocalExperts, dtype_bytes: int) -> tuple[int, ...]:
    """The bytes of each fused parameter of one layer's experts: w13, w2 and what goes with them."""
    num, fused = shape.num_experts, 2 if shape.is_gated else 1
    hidden = round_up(shape.hidden_size, form.pad_hidden)
    width = round_up(shape.intermediate_size, form.pad_intermediate)
    biases = [num * fused * width * dtype_bytes, num * hidden * dtype_bytes]
    biases = biases if shape.has_bias or form.experts_have_bias else []
    if not form.bits:
        return (num * fused * width * hidden * dtype_bytes, num * hidden * width * dtype_bytes, *biases)
    if form.scale == "block":
        form = replace(
            form, block=_expert_block(form.block, width, hidden, is_cut=width != shape.full_intermediate_size)
        )
    tensors: list[int] = []
    for rows, columns, projections in ((fused * width, hidden, fused), (hidden, width, 1)):
        tensors.append(_packed_bytes(num * rows * columns, form))
        if form.scale == "block" and projections == 2:  # each projection's rows are rounded up to blocks of their own
            tensors += [2 * size for size in _scales(form, _Matrices(num, rows // 2, columns, 1), dtype_bytes)]
        else:
            tensors += _scales(form, _Matrices(num, rows, columns, projections), dtype_bytes)
    tensors += _moe_scalars(form, num, fused)
    return (*tensors, *biases)


def _expert_block(block: tuple[int, int], width: int, hidden: int, *, is_cut: bool) -> tuple[int, int]:
    """The scale blocks of experts: finer ones where a cut expert does not hold whole ones (refine_fp8_moe_block_shape)."""
    rows, columns = block
    if width % rows == 0 and not (is_cut and width % columns):
        return block
    finer = gcd(rows, columns, width, hidden)
    return (finer, finer) if finer >= _FINEST_BLOCK else block


def expert_growth(form: Format, shape: LocalExperts) -> int:
    """The bytes that a kernel's own layout adds to the packed values of w13 and w2 after loading."""
    if form.pad_columns_after_load == 1:
        return 0
    hidden = round_up(shape.hidden_size, form.pad_hidden)
    width = round_up(shape.intermediate_size, form.pad_intermediate)
    fused = 2 if shape.is_gated else 1
    added = fused * width * (round_up(hidden, form.pad_columns_after_load) - hidden)
    added += hidden * (round_up(width, form.pad_columns_after_load) - width)
    return _packed_bytes(shape.num_experts * added, form)


def _moe_scalars(form: Format, num: int, fused: int) -> list[int]:
    by_projection, of_w13, of_w2 = form.moe_scalars
    scalars = [_FLOAT32_BYTES * num * fused] * by_projection + [_FLOAT32_BYTES * num] * (of_w13 + of_w2)
    return scalars + [form.moe_shape_bytes * num] * (2 if form.moe_shape_bytes else 0)


def embedding_tensors(form: Format, rows: int, columns: int, bias_size: int, dtype_bytes: int) -> tuple[int, ...]:
    """The bytes of each parameter of a vocabulary table on a rank."""
    shape = LocalLinear(
        in_features=columns, out_features=(rows,), full_in=columns, full_out=(rows,), bias_size=bias_size
    )
    return linear_tensors(form, shape, dtype_bytes)


def fp8(scale: Scale, *, is_static: bool = False, block: tuple[int, int] = (128, 128)) -> Format:
    """Eight-bit floats with float32 scales; `is_static`: the checkpoint brings input scales too."""
    return Format(
        bits=8,
        scale=scale,
        block=block,
        tensor_scalars=int(is_static),
        moe_scalars=(0, 1, 1) if is_static else (0, 0, 0),
    )


def int8() -> Format:
    """Eight-bit integers with a float32 scale per output."""
    return Format(bits=8, scale="channel")


def nvfp4(*, group_size: int = 16, has_input_scale: bool = True) -> Format:
    """Four-bit floats: an e4m3 scale per group, a float32 scale per fused output, and an input scale (experts: always)."""
    return Format(
        bits=4,
        scale="group",
        scale_bytes=1,
        group_size=group_size,
        tensor_scalars=1 + int(has_input_scale),
        moe_scalars=(2, 0, 2),
    )


def mx(bits: int, *, pad_hidden: int = 1, pad_intermediate: int = 1) -> Format:
    """MXFP4 or MXFP8: one e8m0 scale per 32 values."""
    return Format(
        bits=bits,
        scale="group",
        scale_bytes=1,
        group_size=32,
        pad_hidden=pad_hidden,
        pad_intermediate=pad_intermediate,
    )


def integer_groups(bits: int, group_size: int, *, has_zeros: bool) -> Format:
    """Packed integers with a scale of the model's dtype per group (AWQ, GPTQ, compressed-tensors pack-quantized)."""
    return Format(bits=bits, scale="group", scale_bytes=0, group_size=group_size, has_zeros=has_zeros)
