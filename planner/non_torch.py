"""Memory that neither weights nor activations explain: kernels, communication buffers, persistent tables.

To 0.26 it is vLLM's own "non-torch" term; from 0.27 vLLM measures the drop of free memory, so tensors that live on after
the profile run (cuBLAS workspace, the V2 runner's penalty tables) are in it too.
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner import drafts, weights
from planner import overhead_constants as constants
from planner.activation import cublas_bytes, dtype_bytes
from planner.defaults import Resolved
from planner.facts import Basis, Estimate
from planner.gpu_catalog import GpuFacts
from planner.inventory import Embedding, ModelFacts
from planner.overhead_constants import Constant
from planner.parallel import layer_ranges
from planner.units import GIB
from planner.versions import Era, Version

_LATE_UNIFIED = Version(0, 28, 0)
_FIRST_LARGER = Version(0, 18, 0)  # Qwen3-14B on one H100: 0.13 GiB in 0.15, 0.16 and 0.17, 0.25 in 0.18
_LARGEST_RADEON_BYTES = 64 * GIB  # graphics cards; accelerators hold more


def non_torch_growth(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Estimate:
    """The bytes consumed between vLLM's first snapshot and the end of profiling that are neither weights nor transient."""
    rule = _constant(model, resolved, pp_rank)
    tables = persistent_tensor_bytes(model, resolved, pp_rank)
    extra = f" + {tables / GIB:.2f} GiB of tables that stay" if tables else ""
    return Estimate(
        best_bytes=int(rule.best * GIB) + tables,
        low_bytes=int(rule.low * GIB) + tables,
        high_bytes=int(rule.high * GIB) + tables,
        basis=Basis(kind="measured", note=f"{rule.source} ({rule.support})"),
        formula=f"{rule.best:.2f} GiB of kernels and communication buffers{extra}",
    )


def card_key(gpu: GpuFacts, *, tensor_parallel_size: int) -> tuple[object, ...]:
    """What this module asks of a card: cards with equal keys have equal growth under the same resolved flags."""
    link = gpu.link if tensor_parallel_size > 1 else None
    return gpu.vendor, gpu.is_unified_memory, link, (gpu.capability or (8, 0)) >= (9, 0)


def persistent_tensor_bytes(model: ModelFacts, resolved: Resolved, pp_rank: int) -> int:
    """Tensors allocated after loading that stay: counted by vLLM from 0.27 on only."""
    if not resolved.era >= Era.V027_031:
        return 0
    is_last = pp_rank == resolved.pp - 1
    tables = resolved.max_num_seqs * model.vocab_size * constants.V2_PENALTY_BYTES_PER_LOGIT
    drafting = drafts.buffer_bytes(drafts.speculation(model, resolved), resolved, dtype_bytes(resolved)) * is_last
    return cublas_bytes(resolved) + (int(tables) if resolved.runner == "v2" and is_last else 0) + drafting


def _constant(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Constant:
    gpu = resolved.gpu
    if gpu.is_unified_memory and gpu.vendor != "AMD":
        return _unified(model, resolved, pp_rank)
    if gpu.vendor == "AMD":
        return _amd(resolved)
    if gpu.vendor == "Intel":
        return constants.NON_TORCH_XPU_V2 if resolved.runner == "v2" else constants.NON_TORCH_XPU
    if resolved.runner == "v0":
        return constants.NON_TORCH_V0 if resolved.tp == 1 else constants.NON_TORCH_V0_TP
    return _tensor_parallel(model, resolved, pp_rank) if resolved.tp > 1 else _one_card(model, resolved)


def _one_card(model: ModelFacts, resolved: Resolved) -> Constant:
    if resolved.era >= Era.V027_031:
        return _with_tied_table(model, resolved) if _keeps_tied_table(model, resolved) else constants.NON_TORCH_027
    if resolved.era >= Era.V021_026:
        return constants.NON_TORCH_021
    if resolved.era >= Era.V017_020:
        if resolved.version < _FIRST_LARGER:
            return constants.NON_TORCH_017_FIRST
        if resolved.pp > 1:
            return constants.NON_TORCH_017_PP
        return constants.NON_TORCH_017_UNALIGNED_LOGITS if model.vocab_size % 4 else constants.NON_TORCH_017
    return constants.NON_TORCH_V1


def _keeps_tied_table(model: ModelFacts, resolved: Resolved) -> bool:
    """Whether compiling a text model leaves a copy of its table: where the head is the embedding, and not from a warm cache."""
    is_compiled = not resolved.flags.enforce_eager and resolved.compile_cache != "warm"
    tables = [module for part in model.parts for module in part.modules if isinstance(module, Embedding)]
    is_tied = bool(tables) and not any(table.role == "head" for table in tables)
    return is_compiled and is_tied and resolved.pp == 1 and not model.is_multimodal


def _with_tied_table(model: ModelFacts, resolved: Resolved) -> Constant:
    rule, left = constants.NON_TORCH_027, constants.TIED_TABLES_LEFT_027
    table_gib = model.vocab_size * model.hidden_size * dtype_bytes(resolved) / GIB
    return replace(
        left,
        best=rule.best + left.best * table_gib,
        low=rule.low + left.low * table_gib,
        high=rule.best + left.high * table_gib,
    )


def _tensor_parallel(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Constant:
    is_nvlink = resolved.gpu.link == "nvlink"
    if not resolved.era >= Era.V017_020:
        return _nvlink_before_017(resolved.tp) if is_nvlink else constants.NON_TORCH_V1_TP_PCIE
    if not is_nvlink:
        return _pcie(resolved.tp)
    if resolved.era >= Era.V021_026:
        return constants.NON_TORCH_TP_NVLINK_021
    return _nvlink_017(len(layer_ranges(len(model.layers), resolved.pp)[pp_rank]), resolved.tp)


def _unified(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Constant:
    """The system's memory beside the engine's own: from 0.17 to 0.27 it grows with what loading read."""
    if resolved.version >= _LATE_UNIFIED:
        return constants.NON_TORCH_UNIFIED_028
    if not resolved.era >= Era.V017_020:
        return constants.NON_TORCH_UNIFIED_BEFORE_017
    rule = constants.NON_TORCH_UNIFIED
    read = constants.NON_TORCH_UNIFIED_PER_WEIGHT * weights.rank_weights(model, resolved, pp_rank).load.best_bytes / GIB
    return replace(rule, best=rule.best + read, low=rule.low + read, high=rule.high + read)


def _amd(resolved: Resolved) -> Constant:
    if resolved.tp > 1:
        return constants.NON_TORCH_AMD_TP
    if resolved.gpu.is_unified_memory:
        return constants.NON_TORCH_AMD_APU
    is_radeon = resolved.gpu.total.best_bytes < _LARGEST_RADEON_BYTES
    return constants.NON_TORCH_RADEON if is_radeon else constants.NON_TORCH_AMD


def _nvlink_before_017(tensor_parallel_size: int) -> Constant:
    rule = constants.NON_TORCH_V1_TP_NVLINK
    return replace(rule, high=rule.high + constants.NON_TORCH_V1_TP_NVLINK_HIGH_PER_RANK_GIB * tensor_parallel_size)


def _nvlink_017(num_layers: int, tensor_parallel_size: int) -> Constant:
    """0.17-0.20 over NVLink: `2.05 + 0.03*d + (0.0006 + 0.001*d)*layers` GiB, d = log2(TP) - 1; eleven rows to 0.02 GiB."""
    doublings = math.log2(tensor_parallel_size) - 1
    base = constants.TP_NVLINK_BASE_GIB + constants.TP_NVLINK_BASE_PER_DOUBLING_GIB * doublings
    slope = constants.TP_NVLINK_PER_LAYER_GIB + constants.TP_NVLINK_PER_LAYER_PER_DOUBLING_GIB * doublings
    best = base + slope * num_layers
    source = "0.19 H100 TP 2 and 4 logs"
    return Constant(best=best, low=best - 0.06, high=best + 0.10 + 0.1 * doublings, source=source, rows=11, models=5)


def _pcie(tensor_parallel_size: int) -> Constant:
    """0.17 on, over PCIe: `0.20*TP - 0.15` GiB."""
    best = constants.TP_PCIE_PER_RANK_GIB * tensor_parallel_size + constants.TP_PCIE_BASE_GIB
    source = "4090 TP 2, RTX PRO 6000 TP 2 and 4; L40S TP 4 the low end"
    return Constant(best=best, low=best * 0.3, high=best + 0.8, source=source, rows=4, models=4)
