"""What the lessons compute: plans of catalogue models, runs of the simulator. Pure and kept, so that a lesson is drawn at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from planner.active_parameters import active_parameters
from planner.answer import Plan
from planner.block_hashes import Piece
from planner.contiguous import POLICIES, simulate_contiguous
from planner.facts import PlanError
from planner.folk_formulas import folk_kv_bytes_per_token
from planner.gpu_catalog import find_gpu
from planner.inventory import ModelDocuments, ModelFacts
from planner.model_catalog import catalogue_documents, config_documents
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest
from planner.sequence import SimulatedRequest
from planner.simulate import SimulationResult, simulate
from planner.simulator_config import SimulatorConfig
from planner.step_time import Roofline
from planner.tiers import OffloadConfig, Tier
from planner.v0_schedule import V0Config, V0Frame, simulate_v0
from planner.workload import LengthDistribution, WorkloadSpec, draw_workload

ROOMY_CARD = "B300 288GB"
SMALL_CARD = "GeForce RTX 4090"
MHA, GQA, MLA = "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V2-Lite"
WINDOWS, STATES = "google/gemma-3-27b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct"
LARGE_GQA, LARGE_MLA = "meta-llama/Llama-2-70b-hf", "deepseek-ai/DeepSeek-V3"
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)  # tokens
_V0_RELEASE = "0.6.6"
# The first Gemma, which the catalogue lacks: its shape as its config.json has it, one KV head.
_OWN_CONFIGS: dict[str, dict[str, object]] = {
    "google/gemma-2b": {
        "architectures": ["GemmaForCausalLM"], "model_type": "gemma", "torch_dtype": "bfloat16", "hidden_size": 2048,
        "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
        "intermediate_size": 16384, "vocab_size": 256000, "max_position_embeddings": 8192,
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FolkAndExact:
    """Bytes of keys and values of one token: by the rule of thumb, and as vLLM keeps them."""

    model_id: str
    folk_bytes: int
    exact_bytes: int
    window_tokens: int | None = None  # the longest window of layers that keep only their latest tokens
    has_windows_only: bool = False  # no layer keeps all tokens
    state_bytes: int = 0  # of one request, however long: what linear layers keep

    @property
    def factor(self) -> float | None:
        """By how much the rule of thumb overstates; None where nothing is kept for each token."""
        return self.folk_bytes / self.exact_bytes if self.exact_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """How one allocator used the pool, on average over the steps in which anything ran."""

    allocator: str  # "paged" or a contiguous policy
    mean_running: float
    held_fraction: float  # of the pool's slots that hold a token
    num_steps: int  # until all were served


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """The most blocks that the same requests hold at once, with and without prefix caching."""

    num_requests: int
    with_sharing: int
    without_sharing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Seconds until keys and values are on the card again: from each tier below it, and computed anew."""

    size_bytes: int
    tier_seconds: tuple[float, ...]
    recompute_seconds: float


@lru_cache(maxsize=512)
def planned(
    model_id: str, *, gpu: str = ROOMY_CARD, version: str | None = None, flags: EngineFlags | None = None
) -> tuple[Plan, ModelFacts]:
    """The plan of a catalogue model and the facts it was made from."""
    request = PlanRequest(model_id=model_id, gpu=gpu, flags=flags or EngineFlags())
    if version is not None:
        request = PlanRequest(model_id=model_id, gpu=gpu, vllm_version=version, flags=flags or EngineFlags())
    return answer(request, _documents(model_id))


def _documents(model_id: str) -> ModelDocuments:
    own = _OWN_CONFIGS.get(model_id)
    return catalogue_documents(model_id) if own is None else config_documents(json.dumps(own), model_id)


def plan_of(model_id: str, *, gpu: str = ROOMY_CARD, version: str | None = None, **flags: Any) -> Plan:
    """The plan of a catalogue model with `flags` by vLLM's names."""
    return planned(model_id, gpu=gpu, version=version, flags=EngineFlags(**flags))[0]


def kv_bytes_of(model_id: str, num_tokens: int, kv_cache_dtype: str = "auto") -> int:
    """Bytes of the KV cache that one request of `num_tokens` needs."""
    return plan_of(model_id, max_model_len=num_tokens, kv_cache_dtype=kv_cache_dtype).pool.needed_bytes


def longest(model_id: str) -> int:
    """The model's own longest length in tokens."""
    return planned(model_id, flags=EngineFlags(max_model_len=1024))[1].max_position


def folk_and_exact(model_id: str, facts: ModelFacts, plan: Plan) -> FolkAndExact:
    """The rule of thumb (16-bit numbers, the hidden size) beside what `plan` keeps of one token, on one card."""
    folk = folk_kv_bytes_per_token(len(facts.layers), facts.hidden_size)
    exact = plan.pool.kv_bytes_per_token
    windows = [group for group in plan.pool.groups if group.sliding_window]
    has_windows_only = bool(windows) and not exact
    if has_windows_only:
        exact = sum(group.page_bytes * group.num_layers // group.block_size for group in windows)
    return FolkAndExact(
        model_id=model_id,
        folk_bytes=folk,
        exact_bytes=exact,
        window_tokens=max((group.sliding_window or 0 for group in windows), default=None),
        has_windows_only=has_windows_only,
        state_bytes=plan.pool.state_bytes_per_request,
    )


@lru_cache(maxsize=64)
def catalogue_folk(model_id: str) -> FolkAndExact:
    """The same of a catalogue model, with an unquantised cache."""
    plan, facts = planned(model_id, flags=EngineFlags(max_model_len=1024))
    return folk_and_exact(model_id, facts, plan)


@lru_cache(maxsize=8)
def pool_uses(max_model_len: int) -> tuple[PoolUse, ...]:
    """Paging and the contiguous allocators on the same 96 requests, whose lengths have a tail, in a pool of 16,384 tokens."""
    spec = WorkloadSpec(
        num_requests=96,
        prompt=LengthDistribution(kind="lognormal", mean_tokens=300, spread=0.8, high=768),
        output=LengthDistribution(kind="lognormal", mean_tokens=120, spread=0.6, high=256),
        max_model_len=max_model_len,
    )
    requests = draw_workload(spec, seed=4)
    config = SimulatorConfig(
        num_gpu_blocks=1_025, max_num_batched_tokens=2_048, max_model_len=max_model_len, enable_prefix_caching=False
    )
    paged = simulate(config, requests)
    columns = paged.timeline.columns
    slots = config.num_usable_blocks * config.block_size
    uses = [_use("paged", columns.num_running, columns.held_tokens, slots)]
    for policy in POLICIES:
        found = simulate_contiguous(config, requests, policy).columns
        uses.append(_use(policy, found.num_running, found.used_tokens, slots))
    return tuple(uses)


def _use(name: str, num_running: Sequence[int], held_tokens: Sequence[int], slots: int) -> PoolUse:
    busy = [step for step, running in enumerate(num_running) if running]
    steps = max(1, len(busy))
    return PoolUse(
        allocator=name,
        mean_running=sum(num_running[step] for step in busy) / steps,
        held_fraction=sum(held_tokens[step] for step in busy) / (steps * slots),
        num_steps=len(num_running),
    )


@lru_cache(maxsize=64)
def shared_run(num_requests: int, prompt_tokens: int, shared_tokens: int, block_size: int = 16) -> SharedRun:
    """Requests that begin alike, after the first of them has computed the shared part."""
    requests = [
        SimulatedRequest(
            request_id=f"r{number + 1}",
            arrival_step=0 if number == 0 else 1,
            num_prompt_tokens=prompt_tokens,
            num_output_tokens=1 if number else 2,
            shared_pieces=(Piece(key="system prompt", num_tokens=shared_tokens),) if shared_tokens else (),
        )
        for number in range(num_requests)
    ]
    peaks = [_peak(requests, block_size, is_caching=is_caching) for is_caching in (True, False)]
    return SharedRun(num_requests=num_requests, with_sharing=peaks[0], without_sharing=peaks[1])


def _peak(requests: list[SimulatedRequest], block_size: int, *, is_caching: bool) -> int:
    config = SimulatorConfig(num_gpu_blocks=100_001, block_size=block_size, enable_prefix_caching=is_caching)
    return simulate(config, requests).summary.peak_used_blocks


def long_generations() -> tuple[SimulatedRequest, ...]:
    """24 requests of 256 tokens that each write 768 more: what fills a pool slowly, then all at once."""
    return tuple(
        SimulatedRequest(request_id=f"r{number + 1:02}", num_prompt_tokens=256, num_output_tokens=768)
        for number in range(24)
    )


@lru_cache(maxsize=16)
def preempting_run(num_usable_blocks: int, max_num_seqs: int = 256) -> SimulationResult:
    """`long_generations` in a pool of `num_usable_blocks` of 16 tokens."""
    config = SimulatorConfig(num_gpu_blocks=num_usable_blocks + 1, max_num_seqs=max_num_seqs, max_model_len=2_048)
    return simulate(config, long_generations())


@lru_cache(maxsize=16)
def v0_run(num_gpu_blocks: int, preemption_mode: str) -> tuple[V0Frame, ...]:
    """The same workload on the V0 engine, which could move blocks to host memory."""
    config = V0Config(
        num_gpu_blocks=num_gpu_blocks,
        num_cpu_blocks=4_000,
        max_num_batched_tokens=2_048,
        max_model_len=2_048,
        preemption_mode=preemption_mode,  # type: ignore[arg-type]  # "swap" or "recompute"
    )
    return simulate_v0(config, long_generations())


def v0_plan(model_id: str, **flags: Any) -> Plan:
    """The plan of a catalogue model under the last release whose default engine was V0."""
    return plan_of(model_id, version=_V0_RELEASE, **flags)


def refused(model_id: str, **flags: Any) -> str | None:
    """Why vLLM refuses `flags` for a catalogue model; None where it does not."""
    try:
        plan_of(model_id, **flags)
    except PlanError as problem:
        return problem.text
    return None


def fetch(model_id: str, gpu: str, num_tokens: int, gb_per_second: Sequence[float]) -> Fetch:
    """How long the keys and values of `num_tokens` take from tiers of those speeds, and computed again on `gpu`."""
    plan, facts = planned(model_id, gpu=gpu, flags=EngineFlags(max_model_len=num_tokens))
    size = plan.pool.kv_bytes_per_token
    time = Roofline.of_card(
        find_gpu(gpu),
        weight_bytes=plan.ranks[0].weights.parameter_bytes,
        kv_bytes_per_token=size,
        num_parameters=active_parameters(facts),
    )
    tiers = tuple(Tier(name="", capacity_bytes=0, bytes_per_second=each * 1e9) for each in gb_per_second)
    below = OffloadConfig(
        tiers=tiers, block_bytes=size, recompute_seconds_per_token=time.recompute_seconds_per_token
    )  # "blocks" of one token
    return Fetch(
        size_bytes=num_tokens * size,
        tier_seconds=tuple(below.move_seconds(tier, num_tokens) for tier in tiers),
        recompute_seconds=below.recompute_seconds(num_tokens),
    )
