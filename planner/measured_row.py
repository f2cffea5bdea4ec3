"""A truth row as a `MeasuredStart`: what scoring by calibration and its tests feed on."""

from __future__ import annotations

from planner.facts import Estimate
from planner.measured_start import MeasuredRank, MeasuredStart, less, printed_gib, release, transient
from planner.truth import TruthRow


def from_row(row: TruthRow) -> MeasuredStart:
    """The start that a truth row records; its figures are as vLLM prints them, rounded to a hundredth of a GiB."""
    version = release(row.version)
    estimate = _printed(row, "cudagraph_est_gib")
    peak = _printed(row, "activation_printed_gib") or _printed(row, "activation_peak_gib")
    is_sum = row.number("activation_printed_gib") is not None
    consumed, weights = _printed(row, "consumed_gib"), _printed(row, "model_load_gib")
    non_torch = _printed(row, "non_torch_gib")
    if non_torch is None and consumed is not None and weights is not None:
        non_torch = less(consumed, weights)
    rank = MeasuredRank(
        weights=weights,
        activation=transient(peak, estimate, version) if is_sum else peak,
        activation_printed=peak,
        non_torch=non_torch,
        graph_estimate=estimate,
        captured_graphs=_printed(row, "cudagraph_gib"),
        kv_pool=_printed(row, "available_kv_gib"),
    )
    return MeasuredStart(
        source=row.row_id,
        version=row.version,
        model_name=row.model_id,
        tensor_parallel_size=row.integer("tp"),
        pipeline_parallel_size=row.integer("pp"),
        utilization=row.number("gpu_memory_utilization"),
        total=_printed(row, "gpu_mem_gib_total"),
        free_at_start=_printed(row, "free_at_start_gib"),
        ranks=(rank,),
        tokens=row.integer("kv_cache_tokens"),
        blocks=row.integer("num_gpu_blocks"),
        concurrency=row.number("max_concurrency"),
        max_model_len=row.integer("max_model_len"),
        needed=_printed(row, "error_needed_gib"),
        available=_printed(row, "error_available_gib"),
        estimated_length=row.integer("error_estimated_max_len"),
        outcome="failed" if row.is_memory_failure or row.is_other_failure else "started",
    )


def _printed(row: TruthRow, name: str) -> Estimate | None:
    value = row.number(name)
    if value is None:
        return None
    return printed_gib(value, f"{row.row_id}: {name}")
