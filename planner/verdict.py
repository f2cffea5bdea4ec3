"""Whether vLLM will start, and if not, at which of its checks it stops and with which words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner import kv_cache
from planner.answer import KvPool, RankPlan
from planner.defaults import Resolved
from planner.facts import Finding
from planner.request import PlanRequest
from planner.state_blocks import least_blocks, too_few_text
from planner.units import GIB
from planner.versions import Version

FIRST_WITH_FREE_CHECK = Version(0, 9, 0)  # not in 0.8.5's worker, there in 0.11.0's
Pools = tuple[KvPool, KvPool, KvPool]  # low, best, high


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer to "will it start", the reason in a sentence, and vLLM's own words when it will not."""

    will_start: bool
    reason: str
    vllm_error: str | None = None
    findings: tuple[Finding, ...] = ()


def judge(request: PlanRequest, resolved: Resolved, ranks: tuple[RankPlan, ...], pools: Pools) -> Verdict:
    """The first of vLLM's start-up checks that fails, in vLLM's order; else a start, with warnings near an edge."""
    stop = (
        _refused(resolved)
        or _too_little_free(request, resolved, ranks)
        or _cache_refused(pools)
        or _weights_do_not_load(request, resolved, ranks)
        or _fixed_pool_does_not_load(request, resolved, ranks, pools[1])
        or _pool_too_small(resolved, pools)
        or _too_few_state_blocks(resolved, pools)
    )
    if stop is not None:
        return stop
    pool = pools[1]
    reason = (
        f"{pool.tokens:,} KV tokens in {pool.num_blocks:,} blocks: "
        f"{pool.max_concurrency:.2f} requests of {pool.max_model_len:,} tokens at once."
    )
    return Verdict(will_start=True, reason=reason, findings=_near_edges(resolved, ranks, pools))


def _refused(resolved: Resolved) -> Verdict | None:
    refusal = next((finding for finding in resolved.findings if finding.severity == "refusal"), None)
    return None if refusal is None else Verdict(will_start=False, reason=refusal.text)


def _cache_refused(pools: Pools) -> Verdict | None:
    """A cache that no backend of the card stores or that the release cannot lay out."""
    refusal = next((finding for finding in pools[1].findings if finding.severity == "refusal"), None)
    return None if refusal is None else Verdict(will_start=False, reason=refusal.text)


def _line(rank: RankPlan, name: str) -> int:
    return next(line.estimate.best_bytes for line in rank.lines if line.name == name)


def _free_at_start(request: PlanRequest, resolved: Resolved, rank: RankPlan) -> int:
    return resolved.gpu.total.best_bytes - request.other_processes_bytes - _line(rank, "context")


def _too_little_free(request: PlanRequest, resolved: Resolved, ranks: tuple[RankPlan, ...]) -> Verdict | None:
    """V1's check before loading: free memory must cover the requested share of the card (absent in 0.8.5)."""
    if resolved.version < FIRST_WITH_FREE_CHECK:
        return None
    total = resolved.gpu.total.best_bytes
    requested = math.ceil(total * resolved.gpu_memory_utilization)
    free = min(_free_at_start(request, resolved, rank) for rank in ranks)
    if free >= requested:
        return None
    largest = math.floor(free / total * 100) / 100
    text = (
        f"Free memory on device cuda:0 ({free / GIB:.2f}/{total / GIB:.2f} GiB) on startup is less than desired GPU "
        f"memory utilization ({resolved.gpu_memory_utilization}, {requested / GIB:.2f} GiB). Decrease GPU memory "
        "utilization or reduce GPU memory used by other processes."
    )
    reason = (
        f"vLLM asks for {requested / GIB:.2f} GiB but about {free / GIB:.2f} GiB will be free: "
        f"gpu_memory_utilization can be at most about {max(largest, 0):.2f} here."
    )
    return Verdict(will_start=False, reason=reason, vllm_error=text)


def _weights_do_not_load(request: PlanRequest, resolved: Resolved, ranks: tuple[RankPlan, ...]) -> Verdict | None:
    for rank in ranks:
        free = _free_at_start(request, resolved, rank)
        load = rank.weights.load.best_bytes
        if load > free:
            reason = (
                f"The weights take {load / GIB:.2f} GiB on each card of stage {rank.pp_rank}, "
                f"more than the {free / GIB:.2f} GiB that are free: loading runs out of memory."
            )
            return Verdict(will_start=False, reason=reason, vllm_error="torch.OutOfMemoryError: CUDA out of memory.")
    return None


def _fixed_pool(resolved: Resolved, pool: KvPool) -> tuple[str, int] | None:
    """The flag that fixes the pool's size, and that size in bytes; the number of blocks has the last word."""
    blocks = resolved.flags.num_gpu_blocks_override
    if blocks is not None:
        return "num_gpu_blocks_override", blocks * pool.bytes_per_block
    given = resolved.flags.kv_cache_memory_bytes
    return None if given is None else ("kv_cache_memory_bytes", given)


def _fixed_pool_does_not_load(
    request: PlanRequest, resolved: Resolved, ranks: tuple[RankPlan, ...], pool: KvPool
) -> Verdict | None:
    """What a user fixes vLLM does not check against the card: weights and pool together must simply be allocatable."""
    fixed = _fixed_pool(resolved, pool)
    if fixed is None:
        return None
    flag, given = fixed
    for rank in ranks:
        needed = rank.weights.load.best_bytes + rank.non_torch.best_bytes + given
        free = _free_at_start(request, resolved, rank)
        if needed > free:
            reason = (
                f"{flag} asks for {given / GIB:.2f} GiB; with the weights that is {needed / GIB:.2f} GiB, "
                f"more than the {free / GIB:.2f} GiB that are free: allocating the pool runs out of memory."
            )
            return Verdict(will_start=False, reason=reason, vllm_error="torch.OutOfMemoryError: CUDA out of memory.")
    return None


_MAY_START = Finding(
    code="may-start",
    severity="info",
    text="Within its error band the pool would be large enough: it may start after all.",
)


def _pool_too_small(resolved: Resolved, pools: Pools) -> Verdict | None:
    _, pool, pool_high = pools
    if pool.fits:
        return None
    findings: tuple[Finding, ...] = ()
    if pool_high.fits:
        findings = (_MAY_START,)
    text = kv_cache.fit_error(pool, resolved)
    if pool.num_blocks <= 0:
        reason = "Nothing is left for the KV cache after weights, activation peak and graphs."
    else:
        reason = (
            f"One request of {pool.max_model_len:,} tokens needs {pool.needed_bytes / GIB:.2f} GiB of KV cache, more than "
            f"the pool holds; {pool.estimated_max_model_len:,} tokens would fit."
        )
    return Verdict(will_start=False, reason=reason, vllm_error=text, findings=findings)


def _too_few_state_blocks(resolved: Resolved, pools: Pools) -> Verdict | None:
    """Full graphs of layers with states: more sequences than blocks stop the start after the pool is laid out."""
    pool = pools[1]
    needed = least_blocks(pool.groups, resolved)
    if needed <= pool.num_blocks:
        return None
    reason = (
        f"Full CUDA graphs need a state block for each of {needed:,} sequences, and the pool has {pool.num_blocks:,} "
        f"blocks: max_num_seqs can be at most {pool.num_blocks:,} here."
    )
    findings = (_MAY_START,) if needed <= pools[2].num_blocks else ()
    text = too_few_text(needed, pool.num_blocks)
    return Verdict(will_start=False, reason=reason, vllm_error=text, findings=findings)


def _near_edges(resolved: Resolved, ranks: tuple[RankPlan, ...], pools: Pools) -> tuple[Finding, ...]:
    findings = []
    if not pools[0].fits:
        text = (
            "At the low end of the error band one request of max_model_len would not fit: keep a margin, "
            f"for instance max_model_len {max(1, pools[0].estimated_max_model_len):,}."
        )
        findings.append(Finding(code="may-not-fit", severity="warning", text=text, field="max_model_len"))
    if least_blocks(pools[0].groups, resolved) > pools[0].num_blocks > 0:
        text = (
            "At the low end of the error band the pool has fewer blocks than max_num_seqs, which full CUDA graphs of "
            f"state layers need: keep max_num_seqs at most {pools[0].num_blocks:,}."
        )
        findings.append(Finding(code="may-lack-state-blocks", severity="warning", text=text, field="max_num_seqs"))
    if resolved.flags.kv_cache_memory_bytes is not None:
        findings += _fixed_pool_overflows(ranks)
    elif any(_line(rank, "unreserved") < 0 for rank in ranks):
        text = (
            "Graphs and the CUDA context need more than the share of the card left outside gpu_memory_utilization: "
            "the start may run out of memory while capturing graphs. Lower gpu_memory_utilization."
        )
        findings.append(
            Finding(code="tight-outside-budget", severity="warning", text=text, field="gpu_memory_utilization")
        )
    return tuple(findings)


def _fixed_pool_overflows(ranks: tuple[RankPlan, ...]) -> list[Finding]:
    over = max(-_line(rank, "unreserved") for rank in ranks)
    if over <= 0:
        return []
    text = (
        f"kv_cache_memory_bytes leaves the card {over / GIB:.2f} GiB short of its other parts; "
        "vLLM does not check this and would run out of memory."
    )
    return [Finding(code="fixed-pool-overflows", severity="warning", text=text, field="kv_cache_memory_bytes")]
