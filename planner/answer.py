"""The answer's types: `Plan` and what it is made of. Everything is bytes, tokens or blocks; nothing is rounded."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts import Basis, Estimate, Finding
from planner.request import PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """One part of a card's memory. Lines of a rank add up to the card's CUDA total; `kv_pool` may be negative."""

    name: str  # other_processes, weights, activation, non_torch, cuda_graphs, kv_pool, unreserved, ...
    estimate: Estimate
    is_inside_budget: bool = True  # counted by vLLM within utilisation x total


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """One KV cache group as vLLM's planner makes it. `page_bytes` is one layer's page of one block."""

    kind: str
    num_layers: int
    block_size: int
    page_bytes: int
    sliding_window: int | None = None
    blocks_per_request: int = 0  # at max_model_len


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPool:
    """The pool over all ranks: what vLLM's log would print as blocks, tokens and concurrency."""

    groups: tuple[KvGroup, ...]
    block_size: int
    bytes_per_block: int  # of the rank that bounds
    num_blocks: int
    tokens: int
    max_concurrency: float
    needed_bytes: int  # for one request of max_model_len
    estimated_max_model_len: int
    fits: bool
    kv_bytes_per_token: int  # layers whose cache grows with length, one rank
    state_bytes_per_request: int
    max_model_len: int
    findings: tuple[Finding, ...] = ()
    available_bytes: int = 0  # what vLLM's fit check compares `needed_bytes` with, on the rank that bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """Bytes of one rank's weights. `load` is what "Model loading took" prints."""

    parameter_bytes: int
    buffer_bytes: int
    post_load_bytes: int  # copies made after loading, e.g. MLA's absorbed projections
    load: Estimate
    by_role: tuple[tuple[str, int], ...]
    offloaded_bytes: int = 0  # kept in host memory


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """One pipeline stage's card (TP ranks of a stage are alike)."""

    pp_rank: int
    num_layers: int
    weights: RankWeights
    activation: Estimate
    non_torch: Estimate
    cuda_graphs: Estimate
    kv_pool: Estimate
    lines: tuple[BudgetLine, ...]
    captured_graphs: Estimate | None = None  # what capturing really takes, charged or not


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedDefault:
    """One flag as vLLM resolves it, and why."""

    name: str
    value: object
    is_given: bool
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change that makes the plan start (or serve more), with the value to type and what it buys."""

    change: str
    effect: str
    flag: str | None = None
    value: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole answer to a `PlanRequest`."""

    request: PlanRequest
    gpu_name: str
    gpu_total: Estimate
    vllm_version: str
    era: str
    will_start: bool
    reason: str
    vllm_error: str | None  # the text vLLM itself would print
    findings: tuple[Finding, ...]
    resolved: tuple[ResolvedDefault, ...]
    ranks: tuple[RankPlan, ...]
    bounding_rank: int
    pool: KvPool
    pool_low: KvPool
    pool_high: KvPool
    advice: tuple[Advice, ...]
    serve_command: str
    host: tuple[BudgetLine, ...] = ()  # the host's memory, over all cards; no part of a card's sum
    calibration: str | None = None  # the name of the calibration whose constants were used
