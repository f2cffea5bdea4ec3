"""What one start of vLLM measured, term by term and rank by rank, in the terms of a plan.

vLLM prints some terms as sums that differ by release; here they are taken apart. A figure that cannot be told is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from planner.error_lines import ErrorReading
from planner.facts import Basis, Estimate, PlanError
from planner.startup_facts import RankMemory, StartOutcome, StartupLog
from planner.units import GIB
from planner.versions import Era, Version, era_of, parse_version

Term = Literal["activation", "non_torch", "graph_estimate", "captured_graphs"]
TERMS: tuple[Term, ...] = ("activation", "non_torch", "graph_estimate", "captured_graphs")

_FIRST_CHARGED = Version(0, 20, 0)  # the graph estimate comes off the budget (envs.py)
_STAGE = re.compile(r"PP(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRank:
    """One card's figures. `activation` is the transient peak alone; `activation_printed` is as vLLM prints it."""

    rank: str = ""
    pp_rank: int | None = None  # None: the log names no stage
    weights: Estimate | None = None
    activation: Estimate | None = None
    activation_printed: Estimate | None = None  # from 0.27 on with the graph estimate in it
    non_torch: Estimate | None = None
    graph_estimate: Estimate | None = None
    captured_graphs: Estimate | None = None
    kv_pool: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStart:
    """One start, whether it succeeded or not; None where nothing says it."""

    source: str  # the file's name, or a row's
    version: str | None = None
    model_name: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    utilization: float | None = None
    total: Estimate | None = None  # the card's CUDA total
    free_at_start: Estimate | None = None
    ranks: tuple[MeasuredRank, ...] = ()
    tokens: int | None = None
    blocks: int | None = None
    concurrency: float | None = None
    max_model_len: int | None = None
    needed: Estimate | None = None  # of a failed start: what one request needs
    available: Estimate | None = None  # and what there was
    estimated_length: int | None = None
    outcome: StartOutcome = "unknown"
    failure: str | None = None
    load_format: str | None = None  # as the user gave it
    has_lora: bool = False
    has_draft: bool = False

    @property
    def weakest(self) -> MeasuredRank | None:
        """The rank with the least memory for the KV cache: it bounds the pool. The first where none prints it."""
        printing = [rank for rank in self.ranks if rank.kv_pool is not None]
        if printing:
            return min(printing, key=lambda rank: rank.kv_pool.best_bytes if rank.kv_pool else 0)
        return next(iter(self.ranks), None)


def release(version: str | None) -> Version | None:
    """The release that `version` names, None where it names none."""
    try:
        return None if version is None else parse_version(version)
    except PlanError:
        return None


def is_graph_estimate_charged(version: Version) -> bool:
    """Whether this release takes its estimate of graph memory off the budget."""
    return version >= _FIRST_CHARGED


# -- from a log ---------------------------------------------------------------------------------------------------------


def from_log(log: StartupLog, source: str, version: str | None = None) -> MeasuredStart:
    """The start that `log` tells of; `version` stands in where the log tells no release."""
    told = version_of(log) or version
    reading = log.failed_start.reading if log.failed_start is not None else None
    failed = reading or _NOTHING
    return MeasuredStart(
        source=source,
        version=told,
        model_name=log.model_name,
        tensor_parallel_size=log.tensor_parallel_size,
        pipeline_parallel_size=log.pipeline_parallel_size,
        utilization=log.gpu_memory_utilization or failed.gpu_memory_utilization,
        total=log.memory("card_total") or _stated(failed.total_bytes),
        free_at_start=log.memory("free_at_start") or _stated(failed.free_bytes),
        ranks=tuple(_rank(rank, release(told), log) for rank in log.ranks),
        tokens=log.kv_cache_tokens,
        blocks=log.num_gpu_blocks,
        concurrency=log.max_concurrency,
        max_model_len=log.max_model_len or failed.max_model_len,
        needed=_stated(failed.needed_bytes),
        available=_stated(failed.available_bytes),
        estimated_length=failed.estimated_max_model_len,
        outcome=log.outcome,
        failure=log.failure,
        load_format=_text(dict(log.arguments).get("load_format")),
        has_lora=bool(dict(log.arguments).get("enable_lora")),
        has_draft=bool(dict(log.arguments).get("speculative_config")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


_NOTHING = ErrorReading(kind="out_of_memory")


def version_of(log: StartupLog) -> str | None:
    """The release as a banner prints it, else the newest that its source lines allow."""
    if release(log.vllm_version) is not None or log.release is None:
        return log.vllm_version
    return ".".join(map(str, log.release.last))


def _stated(num_bytes: int | None) -> Estimate | None:
    """The bytes of a figure that an error line printed with two decimals of a GiB."""
    return None if num_bytes is None else printed_gib(num_bytes / GIB, "the start-up log's error line")


def _rank(rank: RankMemory, version: Version | None, log: StartupLog) -> MeasuredRank:
    stage = _STAGE.search(rank.rank)
    total = rank.card_total or log.memory("card_total")
    estimate = rank.cuda_graphs_estimate or log.memory("cuda_graphs_estimate") or _from_equivalent(log, total)
    non_torch = rank.non_torch
    if non_torch is None and rank.consumed is not None and rank.weights is not None:
        non_torch = less(rank.consumed, rank.weights)
    return MeasuredRank(
        rank=rank.rank,
        pp_rank=int(stage[1]) if stage else None,
        weights=rank.weights,
        activation=transient(rank.activation_peak, estimate, version),
        activation_printed=rank.activation_peak,
        non_torch=non_torch,
        graph_estimate=estimate,
        captured_graphs=rank.cuda_graphs,
        kv_pool=rank.available_kv or rank.kv_given,
    )


def _from_equivalent(log: StartupLog, total: Estimate | None) -> Estimate | None:
    """The graph estimate as the share of the card by which the "equivalent" utilisation is lower."""
    equivalent = log.equivalent_utilization
    if equivalent is None or log.gpu_memory_utilization is None or total is None:
        return None
    best = (log.gpu_memory_utilization - equivalent) * total.best_bytes
    half = total.best_bytes / 10_000  # four decimals are printed
    return Estimate(
        best_bytes=round(best),
        low_bytes=round(best - half),
        high_bytes=round(best + half),
        basis=Basis(
            kind="read", note="the difference of the two utilisations that vLLM prints, times the card's total"
        ),
    )


def transient(printed: Estimate | None, graphs: Estimate | None, version: Version | None) -> Estimate | None:
    """The activation peak alone: from 0.27 on the printed one holds the graph estimate too."""
    is_sum = version is not None and era_of(version) >= Era.V027_031
    if printed is None or not is_sum:
        return printed
    return None if graphs is None else less(printed, graphs)


def less(whole: Estimate, part: Estimate) -> Estimate:
    """`whole - part`, with the uncertainty of both."""
    return Estimate(
        best_bytes=whole.best_bytes - part.best_bytes,
        low_bytes=whole.low_bytes - part.high_bytes,
        high_bytes=whole.high_bytes - part.low_bytes,
        basis=Basis(kind="read", note="one printed figure less another"),
        formula=f"{whole.best_bytes / GIB:.2f} - {part.best_bytes / GIB:.2f} GiB",
    )


def printed_gib(value: float, note: str, decimals: int = 2) -> Estimate:
    """The bytes of a figure printed in GiB, with the interval that rounding to `decimals` leaves."""
    half = 0.5 * 10**-decimals
    return Estimate(
        best_bytes=round(value * GIB),
        low_bytes=round((value - half) * GIB),
        high_bytes=round((value + half) * GIB),
        basis=Basis(kind="read", note=note),
        formula=f"{value} GiB",
    )
