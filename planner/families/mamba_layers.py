"""Layers that keep a recurrent state: Mamba 1 and 2, gated delta nets, short convolutions, KDA, linear attention.

Each shape gives the modules of one mixer and its `Cache`; state shapes are those of the whole model, with vLLM's default layout
(convolution window first). Sources: vllm/model_executor/layers/mamba of 0.33.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.families.blocks import column_linear, replicated_linear, row_linear
from planner.inventory import Buffer, Cache, Linear, Module, StateTensor, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2Shape:
    """The dimensions of a Mamba-2 mixer; `num_groups` B/C groups are copied to ranks beyond their count."""

    hidden_size: int
    num_heads: int
    head_size: int
    state_size: int
    num_groups: int
    conv_kernel: int
    intermediate_size: int  # num_heads * head_size
    has_conv_bias: bool = True
    has_bias: bool = False
    has_norm: bool = True

    @property
    def grouped_size(self) -> int:
        """Channels of B and C together."""
        return 2 * self.num_groups * self.state_size

    def modules(self, name: str) -> tuple[Module, ...]:
        """The modules of `MambaMixer2` under `name`."""
        inner, groups = self.intermediate_size, self.num_groups * self.state_size
        bound = (0, self.num_groups, self.num_groups)
        return (
            replace(
                column_linear(
                    f"{name}.in_proj",
                    self.hidden_size,
                    inner,
                    inner,
                    groups,
                    groups,
                    self.num_heads,
                    role="mamba",
                    has_bias=self.has_bias,
                ),
                max_shards=(0, *bound, 0),
            ),
            replace(
                column_linear(
                    f"{name}.conv1d", self.conv_kernel, inner, groups, groups, role="mamba", has_bias=self.has_conv_bias
                ),
                max_shards=bound,
                quantizable=False,
            ),
            Buffer(
                name=f"{name}.conv_weights",
                shape=(inner + self.grouped_size, self.conv_kernel),
                shard_dim=0,
                grouped_size=self.grouped_size,
                num_groups=self.num_groups,
            ),
            Tensor(name=f"{name}.A", role="mamba", shape=(self.num_heads,), shard_dim=0, dtype="float32"),
            Tensor(name=f"{name}.D", role="mamba", shape=(self.num_heads,), shard_dim=0),
            Tensor(name=f"{name}.dt_bias", role="mamba", shape=(self.num_heads,), shard_dim=0),
            row_linear(f"{name}.out_proj", inner, self.hidden_size, role="mamba", has_bias=self.has_bias),
            *((Tensor(name=f"{name}.norm", role="norm", shape=(inner,), shard_dim=0),) if self.has_norm else ()),
        )

    def cache(self) -> Cache:
        """The convolution window and the state-space state of one sequence."""
        return Cache(
            kind="mamba2",
            states=(
                StateTensor(
                    shape=(self.conv_kernel - 1, self.intermediate_size + self.grouped_size),
                    shard_dim=1,
                    dtype_rule="conv",
                    conv_extra_dim=0,
                    grouped_size=self.grouped_size,
                    num_groups=self.num_groups,
                ),
                StateTensor(shape=(self.num_heads, self.head_size, self.state_size), shard_dim=0, dtype_rule="ssm"),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1Shape:
    """The dimensions of a Mamba-1 mixer. `has_inner_norms`: Jamba's learned norms on dt, B and C."""

    hidden_size: int
    intermediate_size: int
    state_size: int
    conv_kernel: int
    time_step_rank: int
    has_conv_bias: bool = True
    has_bias: bool = False
    has_inner_norms: bool = False

    def modules(self, name: str) -> tuple[Module, ...]:
        """The modules of `MambaMixer` under `name`."""
        inner, rank, state = self.intermediate_size, self.time_step_rank, self.state_size
        norms = (("dt_layernorm", rank), ("b_layernorm", state), ("c_layernorm", state)) if self.has_inner_norms else ()
        return (
            replace(
                column_linear(f"{name}.conv1d", self.conv_kernel, inner, role="mamba", has_bias=self.has_conv_bias),
                quantizable=False,
            ),
            column_linear(f"{name}.in_proj", self.hidden_size, inner, inner, role="mamba", has_bias=self.has_bias),
            replace(row_linear(f"{name}.x_proj", inner, rank + 2 * state, role="mamba"), quantizable=False),
            replace(column_linear(f"{name}.dt_proj", rank, inner, role="mamba", has_bias=True), quantizable=False),
            Tensor(name=f"{name}.A", role="mamba", shape=(inner, state), shard_dim=0, dtype="float32"),
            Tensor(name=f"{name}.D", role="mamba", shape=(inner,), shard_dim=0),
            row_linear(f"{name}.out_proj", inner, self.hidden_size, role="mamba", has_bias=self.has_bias),
            *(Tensor(name=f"{name}.{part}", role="norm", shape=(size,)) for part, size in norms),
        )

    def cache(self) -> Cache:
        """The convolution window and the state-space state of one sequence."""
        return Cache(
            kind="mamba1",
            states=(
                StateTensor(shape=(self.conv_kernel - 1, self.intermediate_size), shard_dim=1, dtype_rule="conv"),
                StateTensor(shape=(self.intermediate_size, self.state_size), shard_dim=0, dtype_rule="ssm"),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNetShape:
    """The dimensions of Qwen's gated delta net.

    `is_interleaved`: Qwen3-Next stores q, k, v and z (and b and a) as one tensor; Qwen3.5 as separate ones, and replicates
    b and a where the checkpoint is AWQ, GPTQ or AutoRound (`replicates_ba`).
    """

    hidden_size: int
    num_k_heads: int
    num_v_heads: int
    head_k_size: int
    head_v_size: int
    conv_kernel: int
    is_interleaved: bool
    replicates_ba: bool = False

    @property
    def key_size(self) -> int:
        """Channels of all query (or key) heads."""
        return self.num_k_heads * self.head_k_size

    @property
    def value_size(self) -> int:
        """Channels of all value heads."""
        return self.num_v_heads * self.head_v_size

    def modules(self, name: str) -> tuple[Module, ...]:
        """The modules of `QwenGatedDeltaNetAttention` under `name`."""
        conv_size = 2 * self.key_size + self.value_size
        return (
            replace(column_linear(f"{name}.conv1d", self.conv_kernel, conv_size, role="mamba"), quantizable=False),
            *self._input_projections(name),
            Tensor(name=f"{name}.dt_bias", role="mamba", shape=(self.num_v_heads,), shard_dim=0),
            Tensor(name=f"{name}.A_log", role="mamba", shape=(self.num_v_heads,), shard_dim=0, dtype="float32"),
            Tensor(name=f"{name}.norm", role="norm", shape=(self.head_v_size,)),
            row_linear(f"{name}.out_proj", self.value_size, self.hidden_size, role="mamba"),
        )

    def _input_projections(self, name: str) -> tuple[Linear, Linear]:
        sizes = (self.key_size, self.key_size, self.value_size, self.value_size)
        if self.is_interleaved:
            return (
                column_linear(f"{name}.in_proj_qkvz", self.hidden_size, sum(sizes), role="mamba"),
                column_linear(f"{name}.in_proj_ba", self.hidden_size, 2 * self.num_v_heads, role="mamba"),
            )
        heads = (self.num_v_heads, self.num_v_heads)
        wide = column_linear(f"{name}.in_proj_qkvz", self.hidden_size, *sizes, role="mamba")
        if self.replicates_ba:
            narrow = replicated_linear(f"{name}.in_proj_ba", self.hidden_size, *heads, role="mamba")
        else:
            narrow = column_linear(f"{name}.in_proj_ba", self.hidden_size, *heads, role="mamba")
        return (
            replace(wide, prefixes=(f"{name}.in_proj_qkv", f"{name}.in_proj_z")),
            replace(narrow, prefixes=(f"{name}.in_proj_b", f"{name}.in_proj_a")),
        )

    def cache(self) -> Cache:
        """The convolution window and the delta-rule state of one sequence."""
        return Cache(
            kind="gdn",
            states=(
                StateTensor(
                    shape=(self.conv_kernel - 1, 2 * self.key_size + self.value_size),
                    shard_dim=1,
                    dtype_rule="conv",
                    conv_extra_dim=0,
                ),
                StateTensor(
                    shape=(self.num_v_heads, self.head_v_size, self.head_k_size), shard_dim=0, dtype_rule="ssm"
                ),
            ),
        )


def short_conv_modules(name: str, hidden_size: int, kernel: int, *, bias: bool) -> tuple[Module, ...]:
    """The modules of LFM2's gated short convolution, whose inner width is the hidden size."""
    return (
        replace(column_linear(f"{name}.conv", kernel, hidden_size, role="mamba", has_bias=bias), quantizable=False),
        column_linear(
            f"{name}.in_proj", hidden_size, hidden_size, hidden_size, hidden_size, role="mamba", has_bias=bias
        ),
        row_linear(f"{name}.out_proj", hidden_size, hidden_size, role="mamba", has_bias=bias),
    )


def short_conv_cache(hidden_size: int, kernel: int) -> Cache:
    """The convolution window of one sequence."""
    window = StateTensor(shape=(kernel - 1, hidden_size), shard_dim=1, dtype_rule="conv", conv_extra_dim=0)
    return Cache(kind="short_conv", states=(window,))


def linear_attention_cache(num_heads: int, head_size: int) -> Cache:
    """The key-value outer-product state of one sequence (lightning attention)."""
    state = StateTensor(shape=(num_heads, head_size, head_size), shard_dim=0, dtype_rule="ssm")
    return Cache(kind="linear_attention", states=(state,))
