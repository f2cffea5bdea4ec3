"""Every flag as vLLM resolves it for the version, card and usage context, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.answer import ResolvedDefault
from planner.facts import Finding
from planner.flag_checks import check_flags
from planner.flags import absent_flags
from planner.gpu_catalog import GpuFacts
from planner.inventory import ModelFacts
from planner.model_defaults import Served, resolve_model
from planner.quantization_choice import refused_capability, refused_choice
from planner.request import CompileCache, EngineFlags, PlanRequest
from planner.resolution import Ledger, Question
from planner.runner_choice import Engine, in_flight_tokens
from planner.schedule_defaults import Schedule, resolve_schedule
from planner.versions import Era, Version, era_of, parse_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The flags with nothing left open: what every other planner module reads."""

    version: Version
    era: Era
    runner: Literal["v0", "v1", "v2"]
    compile_cache: CompileCache
    gpu: GpuFacts
    flags: EngineFlags  # as given
    gpu_memory_utilization: float
    max_model_len: int  # tokens; for "auto" the derived length, with `is_auto_length`
    is_auto_length: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    dtype: str  # the model's compute dtype: bfloat16, float16, float32
    kv_cache_dtype: str  # never "auto": "bfloat16", "fp8_e4m3", "turboquant_4bit_nc", ...
    quantization: str | None  # vLLM's method name after resolution, checkpoint's or online
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    is_hybrid_manager_enabled: bool
    async_scheduling: bool
    max_concurrent_batches: int
    max_in_flight_tokens: int
    num_speculative_tokens: int
    cudagraph_mode: str  # NONE, PIECEWISE, FULL, FULL_AND_PIECEWISE, FULL_DECODE_ONLY
    capture_sizes: tuple[int, ...]
    mamba_cache_mode: str  # none, align, all
    tp: int
    pp: int
    dp: int
    ep: int  # ranks that share the experts; 1 without expert parallelism
    dcp: int
    defaults: tuple[ResolvedDefault, ...] = ()
    findings: tuple[Finding, ...] = ()


def resolve(request: PlanRequest, model: ModelFacts, gpu: GpuFacts) -> Resolved:
    """All flags of `request` with nothing left open; raises `PlanError` for what vLLM would refuse."""
    version = parse_version(request.vllm_version)
    question = Question(request=request, flags=request.flags, model=model, gpu=gpu, version=version, ledger=Ledger())
    check_flags(request.flags, model, version)
    question.ledger.findings.extend(absent_flags(request.flags, version))
    _check_known(question)
    _check_quantization(question)
    served = resolve_model(question)
    _check_capability(question, served)
    schedule = resolve_schedule(question, served)
    return _assemble(question, served, schedule)


def _check_known(question: Question) -> None:
    """A finding when the release is outside those whose rules were read, 0.6 to 0.33."""
    version = question.version
    if not (0, 6, 0) <= version < (0, 34, 0):
        nearest = "0.33" if version > (0, 33, 0) else "0.6"
        text = f"vLLM {'.'.join(map(str, version))} was not read; the rules of {nearest} are assumed for it."
        question.ledger.find("version-not-read", text, field_name="vllm_version")


def _check_quantization(question: Question) -> None:
    """A refusal when vLLM would not take `--quantization` for this checkpoint."""
    refused = refused_choice(question.flags.quantization, question.model.quantization, question.version)
    if refused is not None:
        question.ledger.find("quantization-not-for-checkpoint", refused, is_refusal=True, field_name="quantization")


def _check_capability(question: Question, served: Served) -> None:
    refused = refused_capability(served.quantization, question.gpu.capability, question.version)
    if refused is not None:
        question.ledger.find("quantization-not-on-card", refused, is_refusal=True, field_name="quantization")


def _assemble(question: Question, served: Served, schedule: Schedule) -> Resolved:
    flags, version, limits = question.flags, question.version, schedule.limits
    is_v0 = served.runner == "v0"
    return Resolved(
        version=version,
        era=Era.V0 if is_v0 else era_of(version),
        runner=served.runner,
        compile_cache=question.request.compile_cache,
        gpu=question.gpu,
        flags=flags,
        gpu_memory_utilization=_utilization(question),
        max_model_len=served.max_model_len,
        is_auto_length=flags.max_model_len == "auto",
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        dtype=served.dtype,
        kv_cache_dtype=served.kv_cache_dtype,
        quantization=served.quantization,
        enable_prefix_caching=served.enable_prefix_caching,
        enable_chunked_prefill=schedule.enable_chunked_prefill,
        is_hybrid_manager_enabled=_hybrid_manager(question, served.runner),
        async_scheduling=schedule.async_scheduling,
        max_concurrent_batches=schedule.batches,
        max_in_flight_tokens=in_flight_tokens(version, limits.max_num_batched_tokens, schedule.batches),
        num_speculative_tokens=question.num_speculative_tokens,
        cudagraph_mode=schedule.cudagraph_mode,
        capture_sizes=schedule.sizes,
        mamba_cache_mode=served.mamba_cache_mode,
        tp=flags.tensor_parallel_size,
        pp=flags.pipeline_parallel_size,
        dp=flags.data_parallel_size,
        ep=flags.tensor_parallel_size * flags.data_parallel_size if flags.enable_expert_parallel else 1,
        dcp=flags.decode_context_parallel_size,
        defaults=tuple(question.ledger.lines),
        findings=tuple(question.ledger.findings),
    )


def _utilization(question: Question) -> float:
    asked = question.flags.gpu_memory_utilization
    default = 0.92 if question.version >= (0, 20, 0) else 0.9
    note = "0.92 since vLLM 0.20, 0.9 before (vllm/config/cache.py)"
    value = default if asked is None else asked
    return question.ledger.note("gpu_memory_utilization", value, note, is_given=asked is not None, kind="read")


def _hybrid_manager(question: Question, runner: Engine) -> bool:
    """Whether layers of unlike kinds get groups of their own."""
    asked, version = question.flags.disable_hybrid_kv_cache_manager, question.version
    has_chunks = any(cache.kind == "chunked" for layer in question.model.layers for cache in layer.caches)
    if runner == "v0" or version < (0, 10, 0):
        is_off, note = True, "this release has none"
    elif asked is not None:
        is_off, note = asked, "asked for"
    elif has_chunks and (version < (0, 14, 0) or question.method in ("eagle", "eagle3", "mtp")):
        is_off, note = True, "off for chunked local attention (before 0.14, or with EAGLE)"
    else:
        is_off, note = False, "on unless a feature forbids it"
    is_given = asked is not None and asked == is_off
    question.ledger.note("disable_hybrid_kv_cache_manager", is_off, note, is_given=is_given)
    return not is_off
