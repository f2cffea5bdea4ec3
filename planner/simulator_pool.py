"""The simulator's engine that a plan describes: its pool, KV groups and scheduler flags."""

from __future__ import annotations

from dataclasses import dataclass

from planner.answer import KvGroup as PlannedGroup
from planner.answer import Plan
from planner.facts import Finding, PlanError
from planner.request import SpeculativeConfig
from planner.simulator_config import KvGroup, SimulatorConfig
from planner.versions import parse_version

# By default only the window's end at a prompt's boundary stays findable: config/cache.py of 0.31 to 0.33, not of 0.27.
_RETENTION_SINCE = (0, 31)
_STATE_KINDS = frozenset({"mamba", "ring", "cross"})
_WITH_OWN_KV = ("eagle", "mtp", "draft_model", "dflash")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEngine:
    """A simulated engine with what had to be left out of it."""

    config: SimulatorConfig
    findings: tuple[Finding, ...]


def engine_of_plan(plan: Plan, *, chunk_tokens: int | None = None) -> PlannedEngine:
    """The engine of `plan`; raises `PlanError` when the plan has no pool. `chunk_tokens`: of chunked local attention."""
    pool = plan.pool
    if pool.num_blocks < 2:
        text = "This plan leaves no room for a KV pool, so there is nothing to simulate."
        raise PlanError("num_gpu_blocks", pool.num_blocks, text)
    groups = tuple(_group(group, pool.block_size, chunk_tokens) for group in pool.groups)
    values = {default.name: default.value for default in plan.resolved}
    wants_caching = values.get("enable_prefix_caching") is True
    is_like = all(group.kind != "state" and group.block_size is None for group in groups)
    release = _release(plan.vllm_version)
    num_drafted, num_lookahead = _drafting(plan.request.flags.speculative_config)
    config = SimulatorConfig(
        num_gpu_blocks=pool.num_blocks,
        block_size=pool.block_size,
        max_num_seqs=_integer(values, "max_num_seqs"),
        max_num_batched_tokens=_integer(values, "max_num_batched_tokens"),
        max_model_len=pool.max_model_len,
        enable_prefix_caching=wants_caching and is_like,
        groups=groups,
        async_scheduling=values.get("async_scheduling") is True,
        enable_chunked_prefill=values.get("enable_chunked_prefill") is not False,
        prefix_cache_retention_interval=0 if release >= _RETENTION_SINCE else None,
        release=release,
        num_speculative_tokens=num_drafted,
        num_lookahead_tokens=num_lookahead,
    )
    return PlannedEngine(config=config, findings=_findings(plan, lost_caching=wants_caching and not is_like))


def _group(group: PlannedGroup, block_size: int, chunk_tokens: int | None) -> KvGroup:
    kinds = set(group.kind.split("+"))
    own_size = None if group.block_size == block_size else group.block_size
    if kinds & _STATE_KINDS:
        return KvGroup(kind="state", name=group.kind, num_state_blocks=max(1, group.blocks_per_request))
    if kinds <= {"sliding", "sliding_mla"} and group.sliding_window is not None:
        return KvGroup(kind="sliding_window", span_tokens=group.sliding_window, name=group.kind, block_size=own_size)
    if kinds == {"chunked"}:
        if chunk_tokens is None:
            text = "This model attends in local chunks; say how many tokens a chunk has."
            raise PlanError("chunk_tokens", None, text)
        return KvGroup(kind="chunked_local", span_tokens=chunk_tokens, name=group.kind, block_size=own_size)
    return KvGroup(kind="full", name=group.kind, block_size=own_size)


def _drafting(speculative: SpeculativeConfig | None) -> tuple[int, int]:
    """Drafted tokens and the slots a drafter with KV of its own needs (DFlash: one more)."""
    if speculative is None:
        return 0, 0
    drafted = speculative.num_speculative_tokens
    has_own = speculative.method.startswith(_WITH_OWN_KV)
    lookahead = drafted + (speculative.method == "dflash") if has_own else 0
    return drafted, lookahead


def _findings(plan: Plan, *, lost_caching: bool) -> tuple[Finding, ...]:
    findings = []
    if lost_caching:
        text = (
            "Prefix caching is left out here: the simulator follows it only where all KV groups keep tokens in "
            "blocks of one size, and this model has state or blocks of other sizes."
        )
        findings.append(Finding(code="simulated-without-prefix-caching", severity="info", text=text))
    if _release(plan.vllm_version) < (0, 8):
        text = "This release has the V0 engine; the steps shown are those of V1. The V0 view shows swap and recompute."
        findings.append(Finding(code="simulated-as-v1", severity="info", text=text))
    return tuple(findings)


def _integer(values: dict[str, object], name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int):
        raise PlanError(name, value, f"The plan does not say {name}.")
    return value


def _release(version: str) -> tuple[int, int]:
    found = parse_version(version)
    return (found.major, found.minor)
