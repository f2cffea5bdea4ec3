"""CUDA graphs: what vLLM's trial capture takes off the budget (0.20 on) and what the real capture takes from the card."""

from __future__ import annotations

from dataclasses import dataclass

from planner import drafts
from planner import overhead_constants as constants
from planner.defaults import Resolved
from planner.facts import Basis, Estimate
from planner.inventory import Experts, Layer, ModelFacts
from planner.parallel import layer_ranges
from planner.units import GIB
from planner.versions import Era, Version

_FIRST_ESTIMATE = Version(0, 20, 0)  # VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: off in 0.19.0's envs.py, on in 0.20.0's
_FIRST_V2_ESTIMATE = Version(0, 29, 0)  # 0.28.0's V2 runner returns 0 (profile_cudagraph_memory), 0.29.0's measures
_FIRST_ROCM_ESTIMATE = Version(0, 27, 0)  # 0.23 skips ROCm, 0.27.1 includes it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    base_gib: float
    per_layer_gib: float
    per_thousand_hidden_gib: float
    per_moe_layer_gib: float


_ESTIMATE = _Rule(
    base_gib=constants.ESTIMATE_BASE_GIB,
    per_layer_gib=constants.ESTIMATE_PER_LAYER_GIB,
    per_thousand_hidden_gib=constants.ESTIMATE_PER_THOUSAND_HIDDEN_GIB,
    per_moe_layer_gib=constants.ESTIMATE_PER_MOE_LAYER_GIB,
)
_ACTUAL = _Rule(
    base_gib=constants.ACTUAL_BASE_GIB,
    per_layer_gib=constants.ACTUAL_PER_LAYER_GIB,
    per_thousand_hidden_gib=constants.ACTUAL_PER_THOUSAND_HIDDEN_GIB,
    per_moe_layer_gib=constants.ACTUAL_PER_MOE_LAYER_GIB,
)


def charged(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Estimate:
    """The bytes that vLLM subtracts from the budget for graphs: its own estimate from 0.20 on, nothing before."""
    why = _why_nothing(resolved)
    if why is not None:
        return Estimate.exact(0, Basis(kind="read", note=why), why)
    is_v2 = resolved.runner == "v2"
    transient = _gdn_transient_bytes(model, resolved)
    graphs, terms = _linear(model, resolved, pp_rank, _ESTIMATE)
    best = int(max(constants.SMALLEST_GRAPH_GIB, graphs * (constants.V2_ESTIMATE_FACTOR if is_v2 else 1.0)) * GIB)
    width = constants.V2_ESTIMATE_HALF_WIDTH if is_v2 else constants.ESTIMATE_HALF_WIDTH
    experts = _dearer_experts_bytes(model, resolved, pp_rank)
    gdn, dearer_gdn = _gdn_kernel_bytes(model, resolved, pp_rank)
    return Estimate(
        best_bytes=best + transient + gdn,
        low_bytes=int(best * (1 - width)),
        high_bytes=int(best * (1 + width)) + experts + 2 * transient + dearer_gdn,
        basis=Basis(
            kind="measured", note="fitted to vLLM's printed estimates, 0.19 to 0.24 (21 models), one GDN report"
        ),
        formula=f"{len(resolved.capture_sizes)} sizes, {terms} = {(best + transient + gdn) / GIB:.2f} GiB estimated by vLLM",
    )


def captured(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Estimate:
    """The bytes that the real capture takes from the card, whether the budget holds them or not."""
    if not _captures(resolved):
        return Estimate.exact(0, Basis(kind="read", note="no graphs are captured"), "no graphs")
    graphs, terms = _linear(model, resolved, pp_rank, _ACTUAL)
    best = int(max(constants.SMALLEST_GRAPH_GIB, graphs * _actual_factor(resolved)) * GIB)
    return Estimate(
        best_bytes=best,
        low_bytes=int(best * 0.5),
        high_bytes=int(best * 1.6),
        basis=Basis(kind="measured", note="fitted to 'Graph capturing finished' lines, 0.19 to 0.31"),
        formula=f"{len(resolved.capture_sizes)} sizes, {terms} = {best / GIB:.2f} GiB captured",
    )


def _captures(resolved: Resolved) -> bool:
    is_on = not resolved.flags.enforce_eager and resolved.cudagraph_mode != "NONE"
    return is_on and bool(resolved.capture_sizes) and resolved.gpu.vendor in {"NVIDIA", "AMD", "unknown"}


def _why_nothing(resolved: Resolved) -> str | None:
    if resolved.version < _FIRST_ESTIMATE:
        return "before 0.20 graphs live outside the budget, in what gpu_memory_utilization leaves free"
    if not _captures(resolved):
        return "no CUDA graphs are captured"
    if resolved.runner == "v2" and resolved.version < _FIRST_V2_ESTIMATE:
        return "the V2 runner before 0.29 estimates no graph memory"
    if resolved.gpu.vendor == "AMD" and resolved.version < _FIRST_ROCM_ESTIMATE:
        return "before 0.27 vLLM makes no estimate on ROCm"
    return None


def _actual_factor(resolved: Resolved) -> float:
    if resolved.runner == "v2":
        return constants.V2_ACTUAL_FACTOR
    return 1.0 if resolved.era >= Era.V017_020 else constants.ACTUAL_BEFORE_017_FACTOR


def _linear(model: ModelFacts, resolved: Resolved, pp_rank: int, rule: _Rule) -> tuple[float, str]:
    """GiB of all graphs of the stage, and the terms in words.

    A graph costs its layers' nodes; the shared pool costs the largest captured size's tensors, experts' above all.
    """
    num_layers, num_moe = _layer_counts(model, resolved, pp_rank)
    count_share = _num_graphs(resolved) / constants.GRAPH_REFERENCE_COUNT
    width_share = max(resolved.capture_sizes) / constants.GRAPH_REFERENCE_TOKENS
    graphs = count_share * (rule.base_gib + num_layers * rule.per_layer_gib)
    pool = rule.per_thousand_hidden_gib * model.hidden_size / 1000 + rule.per_moe_layer_gib * num_moe
    moe = f", {num_moe} of them MoE" if num_moe else ""
    return graphs + width_share * pool, f"{num_layers} layers{moe}"


def _num_graphs(resolved: Resolved) -> int:
    """PIECEWISE graphs of every size and FULL ones of sizes that decoding sequences can reach, as the mode captures them."""
    longest_decode = resolved.max_num_seqs * (1 + resolved.num_speculative_tokens)
    num_full = sum(size <= longest_decode for size in resolved.capture_sizes)
    num_piecewise = len(resolved.capture_sizes) if "PIECEWISE" in resolved.cudagraph_mode else 0
    return num_piecewise + (num_full if "FULL" in resolved.cudagraph_mode else 0)


def _dearer_experts_bytes(model: ModelFacts, resolved: Resolved, pp_rank: int) -> int:
    """What the experts' tensors of the largest size may take beyond the best value: models of one size lie far apart."""
    _, num_moe = _layer_counts(model, resolved, pp_rank)
    dearer = constants.ESTIMATE_PER_MOE_LAYER_HIGH_GIB - constants.ESTIMATE_PER_MOE_LAYER_GIB
    return int(num_moe * dearer * max(resolved.capture_sizes) / constants.GRAPH_REFERENCE_TOKENS * GIB)


def _layer_counts(model: ModelFacts, resolved: Resolved, pp_rank: int) -> tuple[int, int]:
    """(layers, layers with routed experts) of the stage and its drafter; equal layers share one modules tuple."""
    span = layer_ranges(len(model.layers), resolved.pp)[pp_rank]
    has_experts: dict[int, bool] = {}
    num_moe = 0
    for index in span:
        modules = model.layers[index].modules
        if id(modules) not in has_experts:
            has_experts[id(modules)] = any(isinstance(module, Experts) for module in modules)
        num_moe += has_experts[id(modules)]
    drafting: tuple[Layer, ...] = ()
    if pp_rank == resolved.pp - 1:
        drafting = drafts.captured_layers(drafts.speculation(model, resolved), resolved)
    num_moe += sum(any(isinstance(module, Experts) for module in layer.modules) for layer in drafting)
    return len(span) + len(drafting), num_moe


def _gdn_kernel_bytes(model: ModelFacts, resolved: Resolved, pp_rank: int) -> tuple[int, int]:
    """(best, high) of what the first capture of the stage's gated-delta-net layers adds, V1 runner."""
    if resolved.runner != "v1":
        return 0, 0
    span = layer_ranges(len(model.layers), resolved.pp)[pp_rank]
    layers = sum(any(cache.kind == "gdn" for cache in model.layers[index].caches) for index in span)
    best, high = constants.ESTIMATE_PER_GDN_LAYER_GIB, constants.ESTIMATE_PER_GDN_LAYER_HIGH_GIB
    return int(layers * best * GIB), int(layers * high * GIB)


def _gdn_transient_bytes(model: ModelFacts, resolved: Resolved) -> int:
    """128 KiB a batched token on gated-delta-net hybrids, V1 runner of 0.26; an H100 start of 0.27.1 shows none."""
    is_gdn = any(cache.kind == "gdn" for layer in model.layers[:8] for cache in layer.caches)
    is_charged = is_gdn and resolved.runner == "v1" and Version(0, 26, 0) <= resolved.version < Version(0, 27, 0)
    return constants.GDN_ESTIMATE_BYTES_PER_TOKEN * resolved.max_num_batched_tokens if is_charged else 0
