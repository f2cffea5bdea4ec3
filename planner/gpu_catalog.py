"""Cards: totals as CUDA reports them (the base of gpu_memory_utilization), apart from marketed and driver sizes."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One card. `total` is the CUDA total in bytes with the range seen over drivers."""

    name: str
    vendor: str  # "NVIDIA", "AMD", "Intel", ...
    nvml_names: tuple[str, ...]
    total: Estimate
    driver_total_bytes: int | None
    marketed_gb: float | None
    capability: tuple[int, int] | None  # CUDA compute capability; None off NVIDIA
    bandwidth_bytes_per_second: int | None
    bf16_flops_per_second: int | None
    is_unified_memory: bool = False
    link: str | None = None  # "nvlink", "pcie", ...
    power_limit_watts: int | None = None
