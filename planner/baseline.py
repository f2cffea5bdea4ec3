"""Memory that is gone before vLLM takes its first snapshot: CUDA context, communicator, other processes.

vLLM never charges it to the budget; it only checks that what is left free covers `gpu_memory_utilization * total`
(vLLM 0.33 v1/worker/utils.py, request_memory).
"""

from __future__ import annotations

from planner.defaults import Resolved
from planner.facts import Basis, Estimate
from planner.gpu_catalog import GpuFacts
from planner.units import GIB, MIB

# (best, low, high) in MiB: total minus "free at startup" of public start-up logs, 0.19 to 0.31, read 2026-11.
_ONE_NVIDIA_CARD = (450, 110, 930)  # H100 0.51 GiB, A100 80GB 0.41, L4 0.19, MIG slice 0.11, 96 GB PCIe 0.91
_NVIDIA_TP_NVLINK = (1570, 900, 2060)  # H100 TP 2 and 4: 1.53 to 1.55 GiB, one model 2.01; PP 1.43
_NVIDIA_TP_PCIE = (980, 450, 1600)  # RTX PRO 6000 at TP 4: 0.96 GiB
_AMD_CARD = (340, 10, 660)  # MI300X 0.33 GiB, R9700 at TP 4 0.63, Strix Halo 0.01
_UNIFIED_MEMORY = (7400, 4000, 11000)  # GB10: 7.15 to 10.3 GiB, page cache and desktop included
_OTHER_VENDOR = (500, 100, 1000)  # Arc Pro B60 0.88 GiB: one card only


def context(resolved: Resolved) -> Estimate:
    """The bytes a card has lost before vLLM's snapshot, other processes apart."""
    best, low, high = _row(resolved.gpu, resolved.tp * resolved.pp)
    note = "total minus free at start in public logs: 0.1 to 0.9 GiB on one card, 1.5 GiB with NCCL over NVLink"
    return Estimate(
        best_bytes=best * MIB,
        low_bytes=low * MIB,
        high_bytes=high * MIB,
        basis=Basis(kind="measured", note=note),
        formula=f"{best / 1024:.2f} GiB for {resolved.gpu.vendor}, {resolved.tp * resolved.pp} ranks",
    )


def context_bytes(gpu: GpuFacts, num_ranks: int) -> int:
    """The best value of `context` for one card of `num_ranks` that work together."""
    return _row(gpu, num_ranks)[0] * MIB


def _row(gpu: GpuFacts, num_ranks: int) -> tuple[int, int, int]:
    if gpu.vendor == "AMD":
        return _AMD_CARD
    if gpu.is_unified_memory:
        return _UNIFIED_MEMORY
    if gpu.vendor != "NVIDIA":
        return _OTHER_VENDOR
    if num_ranks == 1:
        best, low, high = _ONE_NVIDIA_CARD
        # A small card cannot have lost a large card's context: a MIG slice of 16 GiB had lost 0.11 GiB.
        return max(low, min(best, gpu.total.best_bytes // GIB * 12)), low, high
    return _NVIDIA_TP_PCIE if gpu.link == "pcie" else _NVIDIA_TP_NVLINK
