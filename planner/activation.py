"""The activation peak of vLLM's profile run: the stages it passes through and the bytes each holds at once.

The peak is the largest stage, not the sum: encoder, decoder layers, compilation, sampler. Sources: profile_run and
_dummy_sampler_run of v1/worker/gpu_model_runner.py (V1) and v1/worker/gpu/model_runner.py (V2), 0.8 to 0.33.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner import drafts
from planner import overhead_constants as constants
from planner.defaults import Resolved
from planner.encoder_activation import EncoderPeak, encoder_peak
from planner.facts import Basis, Estimate
from planner.gpu_catalog import GpuFacts
from planner.inventory import Experts, Linear, ModelFacts
from planner.parallel import layer_ranges
from planner.units import GIB, MIB
from planner.versions import Era, Version

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


def card_key(resolved: Resolved) -> tuple[object, ...]:
    """What this module asks of a card: cards with equal keys have equal peaks under the same resolved flags."""
    gpu = resolved.gpu
    counted = num_sms(gpu) if resolved.era is Era.V017_020 else None
    return gpu.vendor, (gpu.capability or (8, 0)) >= (9, 0), gpu.capability == (12, 0), counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of the profile run, with the interval of its peak."""

    name: str
    best_bytes: int
    low_bytes: int
    high_bytes: int
    formula: str


def activation_peak(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Estimate:
    """The bytes that the profile run holds beside the weights at its peak, on one card of stage `pp_rank`."""
    workspace = shared_workspace_bytes(model, resolved, pp_rank)
    stages = _stages(model, resolved, pp_rank)
    top = max(stages, key=lambda stage: stage.best_bytes)
    low = max(stage.low_bytes for stage in stages)
    high = max(stage.high_bytes for stage in stages)
    kept = f" + shared workspace {workspace / GIB:.2f}" if workspace else ""
    return Estimate(
        best_bytes=top.best_bytes + workspace,
        low_bytes=min(low, top.best_bytes) + workspace // 2 if workspace else min(low, top.best_bytes),
        high_bytes=high + workspace + workspace // 20,
        basis=Basis(kind="derived", note=_note(resolved, top)),
        formula=f"{top.name}: {top.formula}{kept} = {(top.best_bytes + workspace) / GIB:.2f} GiB",
    )


def _note(resolved: Resolved, top: Stage) -> str:
    return f"largest stage of vLLM's profile run ({top.name}), {resolved.runner.upper()} runner, {resolved.era.label}"


def _stages(model: ModelFacts, resolved: Resolved, pp_rank: int) -> tuple[Stage, ...]:
    encoder = encoder_peak(model, resolved) if pp_rank == 0 else None
    stages = [_layer_stage(model, resolved, pp_rank, encoder)]
    if encoder is not None:
        stages.append(_encoder_stage(encoder))
    if pp_rank == 0 and _compiles_embedding(model, resolved):
        stages.append(_compile_stage(model, resolved))
    if pp_rank == resolved.pp - 1:
        stages.append(_sampler_stage(model, resolved, encoder))
        stages += draft_stages(model, resolved)
    return tuple(stages)


def draft_stages(model: ModelFacts, resolved: Resolved) -> list[Stage]:
    """The drafter's forward pass over the whole batch, the target's hidden states kept beside it."""
    found = drafts.speculation(model, resolved)
    if found.facts is None or resolved.runner == "v0" or not found.facts.layers:
        return []
    size, tokens, width = dtype_bytes(resolved), resolved.max_num_batched_tokens, found.facts.hidden_size
    tuples = {id(layer.modules): layer.modules for layer in found.facts.layers}
    linears = [module for modules in tuples.values() for module in modules if isinstance(module, Linear)]
    widest = max((_module_width(module, resolved) for module in linears), default=0)
    kept = (1 + 2 * found.num_aux_hidden_states) * model.hidden_size
    copies = constants.LAYER_RESIDUAL_COPIES + 2  # the input projection reads two vectors of a token
    best = tokens * (widest + copies * width + kept) * size
    return [
        Stage(
            name="drafter",
            best_bytes=best,
            low_bytes=best - best // 4,
            high_bytes=best + best // 4,
            formula=f"{tokens:,} tokens x ({widest:,} + {copies} x {width:,} + {kept:,} of the target) x {size} B",
        )
    ]


def dtype_bytes(resolved: Resolved) -> int:
    """The bytes of one activation value."""
    return _DTYPE_BYTES.get(resolved.dtype, 2)


def _token_bytes(model: ModelFacts, resolved: Resolved) -> int:
    """One tensor of `max_num_batched_tokens` hidden vectors."""
    return resolved.max_num_batched_tokens * model.hidden_size * dtype_bytes(resolved)


# -- sampler ------------------------------------------------------------------------------------------------------------


def sampler_bytes_per_logit(resolved: Resolved) -> tuple[float, float, float]:
    """(best, low, high) bytes per logit at the sampler's peak: the logits and the copies sampling makes."""
    rule = _sampler_rule(resolved)
    logits = dtype_bytes(resolved)
    low = constants.FUSED_SAMPLER_BYTES_PER_LOGIT.low if _may_use_flashinfer(resolved) else rule.low
    return rule.best + logits, min(low, rule.low) + logits, rule.high + logits


def _may_use_flashinfer(resolved: Resolved) -> bool:
    """0.9 to 0.11 sample with FlashInfer where it is installed (14 and 17 bytes a logit in two logs); from 0.12 if asked."""
    is_nvidia = resolved.gpu.vendor in {"NVIDIA", "unknown"}
    return is_nvidia and resolved.runner == "v1" and Version(0, 9, 0) <= resolved.version < Version(0, 12, 0)


def _sampler_rule(resolved: Resolved) -> constants.Constant:
    if resolved.runner == "v2" and resolved.version < Version(0, 33, 0):
        return constants.V2_PLAIN_SAMPLER_BYTES_PER_LOGIT
    if resolved.era >= Era.V017_020 and sampled_rows(resolved) >= 8:
        return constants.FUSED_SAMPLER_BYTES_PER_LOGIT
    return constants.SORT_SAMPLER_BYTES_PER_LOGIT


def sampled_rows(resolved: Resolved) -> int:
    """The rows of logits in the profile run: one per dummy request."""
    return max(1, min(resolved.max_num_batched_tokens, resolved.max_num_seqs))


def _sampler_stage(model: ModelFacts, resolved: Resolved, encoder: EncoderPeak | None) -> Stage:
    rows = sampled_rows(resolved)
    logits = rows * model.vocab_size
    best, low, high = sampler_bytes_per_logit(resolved)
    row_bytes = rows * model.hidden_size * dtype_bytes(resolved)
    kept = encoder.kept_bytes if encoder is not None else 0
    copies = 3 if resolved.pp > 1 else 1  # a later stage was handed hidden states and residual besides
    fixed = copies * _token_bytes(model, resolved) + 2 * row_bytes + kept + workspace_bytes(model, resolved)
    return Stage(
        name="sampler",
        best_bytes=int(logits * best) + fixed,
        low_bytes=int(logits * low) + fixed - kept // 2 - 10 * MIB,
        high_bytes=int(logits * high) + fixed + kept // 2 + 10 * MIB,
        formula=f"{rows:,} x {model.vocab_size:,} x {best:.1f} B + {fixed / GIB:.2f} GiB of hidden states and workspaces",
    )


def workspace_bytes(model: ModelFacts, resolved: Resolved) -> int:
    """Library workspaces that grow during the profile run; from 0.27 they count as consumed instead."""
    if resolved.era >= Era.V027_031 or resolved.gpu.vendor not in {"NVIDIA", "unknown"}:
        return 0
    return cublas_bytes(resolved) + _triton_buffer_bytes(model, resolved)


def cublas_bytes(resolved: Resolved) -> int:
    """The cuBLAS workspace, which PyTorch's allocator holds."""
    if resolved.gpu.vendor not in {"NVIDIA", "unknown"}:
        return 0
    is_hopper_up = (resolved.gpu.capability or (8, 0)) >= (9, 0)
    return constants.CUBLAS_WORKSPACE_HOPPER_BYTES if is_hopper_up else constants.CUBLAS_WORKSPACE_BYTES


def _triton_buffer_bytes(model: ModelFacts, resolved: Resolved) -> int:
    """Triton's top-k/top-p buffer: one fp32 row of the vocabulary a multiprocessor (0.17 to 0.20; then FlashInfer)."""
    is_used = resolved.era is Era.V017_020 and resolved.runner == "v1" and sampled_rows(resolved) >= 8
    return num_sms(resolved.gpu) * model.vocab_size * 4 if is_used else 0


def num_sms(gpu: GpuFacts) -> int:
    """The card's streaming multiprocessors, or a typical count for a card that is not listed."""
    found = next((count for key, count in constants.NUM_SMS.items() if key in gpu.name), None)
    return found if found is not None else constants.TYPICAL_NUM_SMS


# -- layers and compilation ---------------------------------------------------------------------------------------------


def _layer_stage(model: ModelFacts, resolved: Resolved, pp_rank: int, encoder: EncoderPeak | None) -> Stage:
    width = max((_module_width(module, resolved) for module in _modules(model, resolved, pp_rank)), default=0)
    tokens = resolved.max_num_batched_tokens
    size = dtype_bytes(resolved)
    copies = _residual_copies(resolved, pp_rank)
    kept = encoder.kept_bytes if encoder is not None else 0
    context = mla_context_bytes(model, resolved)
    peak = tokens * width * size + int(copies * _token_bytes(model, resolved)) + context + _first_gemm_bytes(resolved)
    best = peak + kept
    return Stage(
        name="layers",
        best_bytes=best,
        low_bytes=best - kept // 2 - peak // 10,
        high_bytes=best + kept // 2 + peak // (2 if resolved.era >= Era.V027_031 else 5),
        formula=f"{tokens:,} tokens x ({width:,} + {copies:g} x {model.hidden_size:,}) x {size} B"
        + (f" + {context / GIB:.2f} GiB of up-projected context" if context else ""),
    )


def _residual_copies(resolved: Resolved, pp_rank: int) -> float:
    """How many vectors of `hidden_size` a token holds at the layers' peak, beside the widest module's values."""
    is_v1 = resolved.runner == "v1" and not resolved.era >= Era.V027_031
    copies: float = constants.LAYER_RESIDUAL_COPIES_V1 if is_v1 else constants.LAYER_RESIDUAL_COPIES
    if resolved.runner == "v0" and resolved.tp > 1:
        copies += constants.V0_TENSOR_PARALLEL_COPIES
    return copies + (2 if pp_rank > 0 else 0)


def _first_gemm_bytes(resolved: Resolved) -> int:
    """The cuBLAS workspace, which the layers' first product allocates inside the profile run; from 0.27 it is consumed."""
    return cublas_bytes(resolved) if resolved.runner == "v1" and not resolved.era >= Era.V027_031 else 0


def _modules(model: ModelFacts, resolved: Resolved, pp_rank: int) -> list[Linear]:
    """The distinct linear modules of the stage's layers (equal layers share one tuple)."""
    span = layer_ranges(len(model.layers), resolved.pp)[pp_rank]
    tuples = {id(model.layers[index].modules): model.layers[index].modules for index in span}
    return [module for modules in tuples.values() for module in modules if isinstance(module, Linear)]


def _module_width(module: Linear, resolved: Resolved) -> int:
    """Values per token alive around one linear module: a gated MLP holds gate, up and their product."""
    is_split = module.parallel in {"column", "qkv"}
    outputs = sum(module.out_features) // (resolved.tp if is_split else 1)
    if module.role in {"mlp", "shared_experts"} and is_split:
        return outputs + (outputs // 2 if len(module.out_features) > 1 else outputs)
    return outputs * 3 // 2


def _compiles_embedding(model: ModelFacts, resolved: Resolved) -> bool:
    """Whether torch.compile sees the embedding table: not for multimodal models, which are fed embeddings."""
    is_compiled = not resolved.flags.enforce_eager and resolved.runner != "v0"
    return is_compiled and not model.is_multimodal


def _compile_stage(model: ModelFacts, resolved: Resolved) -> Stage:
    table = model.vocab_size * model.hidden_size * dtype_bytes(resolved) // resolved.tp
    low = table + constants.COLD_COMPILE_TOKEN_COPIES * _token_bytes(model, resolved)
    is_large_blackwell = resolved.gpu.capability == (12, 0) and resolved.tp == 1
    best = low + (int(table * _extra_tables_sm120(resolved)) if is_large_blackwell else 0)
    is_warm = resolved.compile_cache == "warm"
    is_cold = resolved.compile_cache == "cold"
    return Stage(
        name="warm compile" if is_warm else "cold compile",
        best_bytes=0 if is_warm else best,
        low_bytes=low - table // 10 if is_cold else 0,
        high_bytes=0 if is_warm else max(best, low + int(table * _most_extra_tables(resolved))),
        formula=f"{model.vocab_size:,} x {model.hidden_size:,} embedding held twice while compiling"
        + ("" if is_cold else " (a fresh container assumed)"),
    )


def _extra_tables_sm120(resolved: Resolved) -> float:
    """Tables beyond the first that a cold compile holds on a card of 12.0."""
    is_late = resolved.era >= Era.V027_031
    return constants.COLD_COMPILE_EXTRA_TABLES_SM120_027 if is_late else constants.COLD_COMPILE_EXTRA_TABLES_SM120


def _most_extra_tables(resolved: Resolved) -> float:
    """Tables beyond the first that a cold compile may hold at most."""
    seen = _extra_tables_sm120(resolved) if resolved.gpu.capability == (12, 0) else 0.0
    return seen + constants.COLD_COMPILE_MOST_EXTRA_TABLES


def _encoder_stage(encoder: EncoderPeak) -> Stage:
    return Stage(
        name="encoder",
        best_bytes=encoder.peak_bytes,
        low_bytes=encoder.peak_bytes // 2,
        high_bytes=int(encoder.peak_bytes * 1.4),
        formula=encoder.formula,
    )


def mla_context_bytes(model: ModelFacts, resolved: Resolved) -> int:
    """What a profile run allocates for latent attention's up-projected context: `tokens * heads/tp * (nope + v) * b`.

    tokens = min(max(8*L, 4*sequences*block), 65536) (layers/attention/mla_attention.py); sparse backends do without.
    """
    if not model.is_mla or _indexer_layers(model) or resolved.runner == "v0":
        return 0
    wanted = max(8 * resolved.max_model_len, 4 * resolved.max_num_seqs * 64)
    tokens = min(wanted, constants.MLA_CONTEXT_TOKENS)
    heads = max(1, model.num_attention_heads // resolved.tp)
    return tokens * heads * (model.mla_nope_head_dim + model.mla_v_head_dim) * dtype_bytes(resolved)


def _indexer_layers(model: ModelFacts) -> bool:
    return any(cache.kind == "indexer" for layer in model.layers for cache in layer.caches)


# -- workspaces that stay -----------------------------------------------------------------------------------------------


def shared_workspace_bytes(model: ModelFacts, resolved: Resolved, pp_rank: int) -> int:
    """The larger of the experts' and the sparse indexer's workspace: they take turns in one buffer (v1/worker/workspace.py)."""
    return max(moe_workspace_bytes(model, resolved, pp_rank), indexer_workspace_bytes(model, resolved))


def indexer_workspace_bytes(model: ModelFacts, resolved: Resolved) -> int:
    """The sparse indexer's gather buffer: 40 keys of 132 B for every token of `max_model_len` (backends/mla/indexer.py)."""
    has_workspace = _indexer_layers(model) and resolved.era >= Era.V017_020
    return resolved.max_model_len * constants.INDEXER_BYTES_PER_TOKEN if has_workspace else 0


# -- MoE workspace ------------------------------------------------------------------------------------------------------


def moe_workspace_bytes(model: ModelFacts, resolved: Resolved, pp_rank: int) -> int:
    """The routed experts' workspace, kept once grown: `T*k*(max(N/2, h) + max(N, h))*b`, N the fused gate and up.

    Triton and Marlin experts (fused_moe/experts/triton_moe.py, workspace_shapes). MXFP4 on 9.0 and up runs kernels
    that do not use it, and V0 frees it.
    """
    experts = _widest_experts(model, resolved, pp_rank)
    if experts is None or _is_mxfp4_without_workspace(resolved):
        return 0
    fused = experts.intermediate_size * (2 if experts.is_gated else 1) // (1 if resolved.ep > 1 else resolved.tp)
    out = fused // 2 if experts.is_gated else fused
    slots = resolved.max_num_batched_tokens * experts.top_k * (resolved.dp if resolved.ep > 1 else 1)
    values = max(out, experts.hidden_size) + max(fused, experts.hidden_size)
    return slots * values * dtype_bytes(resolved)


def _widest_experts(model: ModelFacts, resolved: Resolved, pp_rank: int) -> Experts | None:
    span = layer_ranges(len(model.layers), resolved.pp)[pp_rank]
    tuples = {id(model.layers[index].modules): model.layers[index].modules for index in span}
    found = [module for modules in tuples.values() for module in modules if isinstance(module, Experts)]
    return max(found, key=lambda module: module.top_k * module.intermediate_size, default=None)


def _is_mxfp4_without_workspace(resolved: Resolved) -> bool:
    is_mxfp4 = resolved.quantization is not None and "mxfp4" in resolved.quantization
    return is_mxfp4 and (resolved.gpu.vendor != "NVIDIA" or (resolved.gpu.capability or (8, 0)) >= (9, 0))
