"""What a mixture-of-experts layer has in place of its MLP: router, score bias, routed experts, shared experts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.families.blocks import gated_mlp
from planner.inventory import Experts, Linear, Module, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertBlock:
    """A router with its experts, as one architecture writes it; `intermediate_size` is of one expert."""

    num_experts: int
    intermediate_size: int
    top_k: int
    prefix: str = "mlp"
    experts_name: str = "experts"
    router_name: str = "gate"
    router_rows: int | None = None  # None: one per expert
    router_dtype: str | None = None
    has_router_bias: bool = False
    score_bias_name: str | None = None  # a value per router row added to its score (e_score_correction_bias)
    has_expert_bias: bool = False
    shared_intermediate_size: int = 0
    shared_prefix: str | None = None  # None: "{prefix}.shared_experts"
    has_shared_gate: bool = False
    has_shared_bias: bool = False
    is_shared_whole_in_sequence_parallel: bool = False
    quantizes_router: bool = False  # Qwen3-MoE's and LFM2-MoE's; the other classes give theirs no quantisation config

    def modules(self, hidden_size: int) -> tuple[Module, ...]:
        """Router, score bias, routed experts and shared experts for hidden states of `hidden_size`."""
        experts = Experts(
            name=f"{self.prefix}.{self.experts_name}",
            num_experts=self.num_experts,
            hidden_size=hidden_size,
            intermediate_size=self.intermediate_size,
            top_k=self.top_k,
            prefixes=(f"{self.prefix}.{self.experts_name}",),
            has_bias=self.has_expert_bias,
        )
        router = self._router(self.router_name, hidden_size, self.num_router_rows, dtype=self.router_dtype)
        return (router, *self._score_bias(), experts, *self._shared(hidden_size))

    @property
    def num_router_rows(self) -> int:
        """Outputs of the router."""
        return self.router_rows or self.num_experts

    def _router(self, name: str, hidden_size: int, rows: int, *, dtype: str | None) -> Linear:
        return Linear(
            name=f"{self.prefix}.{name}",
            role="router",
            in_features=hidden_size,
            out_features=(rows,),
            parallel="replicated",
            prefixes=(f"{self.prefix}.{name}",),
            has_bias=self.has_router_bias and name == self.router_name,
            quantizable=self.quantizes_router and name == self.router_name,
            dtype=dtype,
        )

    def _score_bias(self) -> tuple[Tensor, ...]:
        if self.score_bias_name is None:
            return ()
        name = f"{self.prefix}.{self.score_bias_name}"
        return (Tensor(name=name, role="router", shape=(self.num_router_rows,), dtype="float32"),)

    def _shared(self, hidden_size: int) -> tuple[Linear, ...]:
        gate = (self._router("shared_expert_gate", hidden_size, 1, dtype=None),) if self.has_shared_gate else ()
        if not self.shared_intermediate_size:
            return gate
        shared = gated_mlp(
            hidden_size,
            self.shared_intermediate_size,
            prefix=self.shared_prefix or f"{self.prefix}.shared_experts",
            has_bias=self.has_shared_bias,
            role="shared_experts",
        )
        is_whole = self.is_shared_whole_in_sequence_parallel
        return gate + tuple(replace(linear, is_whole_in_sequence_parallel=is_whole) for linear in shared)
