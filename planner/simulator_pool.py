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
    drafting = _drafting(plan.request.flags.speculative_config)
    hashes_ahead = drafting.reads_ahead and release >= (0, 33)
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
        num_speculative_tokens=drafting.num_tokens,
        num_lookahead_tokens=drafting.num_lookahead_tokens,
        num_draft_slots=drafting.num_draft_slots,
        num_hash_lookahead_tokens=1 if hashes_ahead else 0,
        drop_last_hit_block=drafting.reads_ahead and not hashes_ahead,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drafting:
    """What a drafter asks of the scheduler and the prefix cache; `config/vllm.py` and `config/speculative.py` of 0.33."""

    num_tokens: int = 0
    num_lookahead_tokens: int = 0  # slots for KV of the drafter's own; DFlash: one more than drafted
    num_draft_slots: int = 0
    reads_ahead: bool = False  # its KV at a position depends on the next token


def _drafting(speculative: SpeculativeConfig | None) -> _Drafting:
    if speculative is None:
        return _Drafting()
    method, drafted = speculative.method, speculative.num_speculative_tokens
    if method == "draft_model":
        return _Drafting(num_tokens=drafted, num_lookahead_tokens=drafted, num_draft_slots=1)
    if method == "dflash":
        return _Drafting(num_tokens=drafted, num_lookahead_tokens=drafted + 1)
    if method.startswith("eagle") or method.endswith("mtp"):
        return _Drafting(num_tokens=drafted, num_lookahead_tokens=drafted, reads_ahead=True)
    return _Drafting(num_tokens=drafted)


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
