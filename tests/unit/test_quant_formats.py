from __future__ import annotations

import pytest

from planner.quant_formats import (
    PLAIN,
    Format,
    expert_growth,
    expert_tensors,
    fp8,
    integer_groups,
    linear_tensors,
    mx,
    nvfp4,
)
from planner.sharding import LocalExperts, LocalLinear

# Two fused outputs of 256 rows over 512 inputs.
LINEAR = LocalLinear(in_features=512, out_features=(256, 256), full_in=512, full_out=(256, 256))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (PLAIN, (512 * 512 * 2,)),
        (fp8("tensor"), (512 * 512, 2 * 4)),
        (fp8("tensor", is_static=True), (512 * 512, 2 * 4, 2 * 4)),
        (fp8("channel"), (512 * 512, 512 * 4)),
        (fp8("block"), (512 * 512, 4 * 4 * 4)),
        (nvfp4(), (512 * 512 // 2, 512 * 512 // 16, 2 * 4, 2 * 4)),
        (nvfp4(has_input_scale=False), (512 * 512 // 2, 512 * 512 // 16, 2 * 4)),
        (mx(4), (512 * 512 // 2, 512 * 512 // 32)),
        (integer_groups(4, 128, has_zeros=True), (512 * 512 // 2, 512 * 4 * 2, 512 * 4 // 2)),
        (integer_groups(8, -1, has_zeros=False), (512 * 512, 512 * 2)),
    ],
)
def test_a_linear_holds_its_packed_weight_and_what_goes_with_it(form: Format, expected: tuple[int, ...]) -> None:
    assert linear_tensors(form, LINEAR, 2) == expected


def test_a_bias_stays_in_the_models_dtype() -> None:
    biased = LocalLinear(in_features=512, out_features=(256,), full_in=512, full_out=(256,), bias_size=256)

    assert linear_tensors(fp8("tensor"), biased, 2)[-1] == 256 * 2


def _experts(width: int, *, full: int = 1408, has_bias: bool = False) -> LocalExperts:
    return LocalExperts(
        num_experts=8,
        hidden_size=2048,
        intermediate_size=width,
        is_gated=True,
        has_bias=has_bias,
        full_intermediate_size=full,
    )


def test_plain_experts_are_two_fused_tensors() -> None:
    assert expert_tensors(PLAIN, _experts(1408), 2) == (8 * 2 * 1408 * 2048 * 2, 8 * 2048 * 1408 * 2)


def test_scale_blocks_of_a_cut_expert_get_finer_until_they_fit() -> None:
    # 1408 / 8 = 176 rows hold no whole block of 128; gcd(128, 176, 2048) = 16 is under 32, so 128 stays
    # 1408 / 2 = 704 rows: gcd(128, 704, 2048) = 64
    _, scales_13, _, scales_2 = expert_tensors(fp8("block"), _experts(704), 2)

    assert scales_13 == 8 * 2 * (704 // 64) * (2048 // 64) * 4
    assert scales_2 == 8 * (2048 // 64) * (704 // 64) * 4


def test_mxfp4_experts_are_padded_as_the_kernel_wants() -> None:
    padded = expert_tensors(mx(4, pad_hidden=256, pad_intermediate=128), _experts(2880 // 8, full=2880), 2)

    assert padded[0] == 8 * 2 * 384 * 2048 // 2


def test_a_layout_that_rounds_inputs_up_adds_bytes_after_loading() -> None:
    form = Format(bits=4, pad_columns_after_load=256)
    shape = LocalExperts(
        num_experts=1,
        hidden_size=2880,
        intermediate_size=2880,
        is_gated=True,
        has_bias=False,
        full_intermediate_size=2880,
    )

    assert expert_growth(form, shape) == (5760 + 2880) * (3072 - 2880) // 2
