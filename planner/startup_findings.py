"""What a reader of a start-up log must know: contradictions, what was left out, what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.facts import Finding
from planner.startup_facts import RankMemory, StartupLog
from planner.startup_start import Start
from planner.units import GIB
from planner.versions import Version

_LARGEST_GAP_BYTES = round(0.05 * GIB)
_FIRST_CHARGED = Version(0, 20, 0)


def findings_of(log: StartupLog, start: Start, *, is_cut: bool) -> StartupLog:
    """`log` with its findings."""
    budgets = (finding for rank in log.ranks if (finding := _budget(rank, log)) is not None)
    return replace(log, findings=(*_reading(log, start, is_cut=is_cut), *budgets))


def _reading(log: StartupLog, start: Start, *, is_cut: bool) -> Iterator[Finding]:
    """What was left out of the reading, or contradicts itself."""
    if not (log.lines or log.ranks or log.unread or log.outcome != "unknown"):
        text = "No line of a vLLM start was recognised; give the log from its beginning, or the part where the engine starts."
        yield Finding(code="log-empty", severity="warning", text=text)
    if log.num_starts > 1:
        text = f"The log holds {log.num_starts} starts; this is number {log.start_number}."
        yield Finding(code="log-several-starts", severity="info", text=text)
    if is_cut or start.num_left_out:
        text = "The log is longer than what is read of one; its end was left out."
        yield Finding(code="log-cut", severity="warning", text=text)
    if start.is_folded:
        text = "Ray left out equal lines of other ranks; the weakest rank may not be among those shown."
        yield Finding(code="log-ranks-folded", severity="warning", text=text)
    if log.unread:
        shown = ", ".join(str(line.number) for line in log.unread[:10])
        text = f"{len(log.unread)} lines look like memory lines and were not understood: {shown}."
        yield Finding(code="log-lines-unread", severity="info", text=text)
    versions = {str(said.value) for said in start.contradictions.get("vllm_version", ())}
    if len(versions) > 1:
        text = f"The start names two releases: {' and '.join(sorted(versions))}."
        yield Finding(code="log-two-releases", severity="warning", text=text)


def _budget(rank: RankMemory, log: StartupLog) -> Finding | None:
    """A finding when what the budget was is not what its parts add up to."""
    gap = budget_gap_bytes(rank, log)
    if gap is None or abs(gap) <= _LARGEST_GAP_BYTES:
        return None
    name = f"rank {rank.rank}" if rank.rank else "the start"
    text = (
        f"The printed parts of {name} do not add up to utilisation x total: {gap / GIB:+.2f} GiB are "
        f"{'missing' if gap > 0 else 'too much'}."
    )
    return Finding(code="log-budget-open", severity="warning", text=text)


def budget_gap_bytes(rank: RankMemory, log: StartupLog) -> int | None:
    """Bytes of the budget that no printed part explains, or None when not all of them are printed.

    requested - weights - activation - non-torch - pool; from 0.20 on the graph estimate is a part too, and from 0.27 on
    weights and non-torch are one part, and the activation holds the estimate.
    """
    requested, pool, peak = rank.requested, rank.available_kv, rank.activation_peak
    if requested is None or pool is None or peak is None:
        return None
    rest = requested.best_bytes - pool.best_bytes - peak.best_bytes
    if rank.consumed is not None:
        return rest - rank.consumed.best_bytes
    if rank.weights is None or rank.non_torch is None:
        return None
    rest -= rank.weights.best_bytes + rank.non_torch.best_bytes
    estimate = rank.cuda_graphs_estimate or log.memory("cuda_graphs_estimate")
    if estimate is None or (log.release is not None and log.release.last < _FIRST_CHARGED):
        return rest
    return min(rest, rest - estimate.best_bytes, key=abs)  # an environment variable switches the charge off
