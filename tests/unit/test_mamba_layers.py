"""State-space mixers: what tensor parallelism divides, and what each sequence keeps."""

from __future__ import annotations

import pytest

from planner.families.mamba_layers import GatedDeltaNetShape, Mamba1Shape, Mamba2Shape, short_conv_cache
from planner.inventory import Buffer, Linear
from planner.sharding import local_buffer_size, local_linear

ONE_GROUP = Mamba2Shape(
    hidden_size=2048,
    num_heads=48,
    head_size=64,
    state_size=256,
    num_groups=1,
    conv_kernel=4,
    intermediate_size=3072,
    has_norm=False,
)


def _linear(name: str, shape: Mamba2Shape) -> Linear:
    found = next(module for module in shape.modules("mamba") if module.name == f"mamba.{name}")
    assert isinstance(found, Linear)
    return found


@pytest.mark.parametrize(("tp", "rows"), [(1, 6704), (2, 3608), (4, 2060)])
def test_a_single_group_of_b_and_c_is_copied_to_every_rank(tp: int, rows: int) -> None:
    # (gate 3072 + x 3072 + dt 48) / tp + B 256 + C 256
    assert local_linear(_linear("in_proj", ONE_GROUP), tp).rows == rows


def test_groups_are_divided_as_long_as_there_are_enough() -> None:
    shape = Mamba2Shape(
        hidden_size=4096,
        num_heads=128,
        head_size=64,
        state_size=128,
        num_groups=8,
        conv_kernel=4,
        intermediate_size=8192,
    )

    assert local_linear(_linear("conv1d", shape), 2).rows == (8192 + 2 * 8 * 128) // 2


def test_the_convolution_state_keeps_its_single_group_whole() -> None:
    window = ONE_GROUP.cache().states[0]

    assert window.shape == (3, 3072 + 2 * 256)
    assert (window.grouped_size, window.num_groups, window.conv_extra_dim) == (512, 1, 0)


def test_the_convolution_view_is_divided_like_the_state() -> None:
    view = next(module for module in ONE_GROUP.modules("mamba") if isinstance(module, Buffer))

    assert local_buffer_size(view, 2) == (3072 // 2 + 512) * 4


def test_a_first_generation_mixer_keeps_a_state_per_channel() -> None:
    shape = Mamba1Shape(hidden_size=4096, intermediate_size=8192, state_size=16, conv_kernel=4, time_step_rank=256)

    assert [state.shape for state in shape.cache().states] == [(3, 8192), (8192, 16)]


@pytest.mark.parametrize(("is_replicated", "parallel"), [(False, "column"), (True, "replicated")])
def test_a_delta_net_keeps_its_gates_whole_where_the_weight_format_needs_it(is_replicated: bool, parallel: str) -> None:
    shape = GatedDeltaNetShape(
        hidden_size=2048,
        num_k_heads=16,
        num_v_heads=32,
        head_k_size=128,
        head_v_size=128,
        conv_kernel=4,
        is_interleaved=False,
        replicates_ba=is_replicated,
    )

    gates = next(module for module in shape.modules("linear_attn") if module.name.endswith("in_proj_ba"))

    assert isinstance(gates, Linear)
    assert gates.parallel == parallel


def test_a_short_convolution_keeps_a_window_alone() -> None:
    assert [state.shape for state in short_conv_cache(2048, 3).states] == [(2, 2048)]
