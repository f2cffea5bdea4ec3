"""Every flag as vLLM resolves it for the version, card and usage context, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeVar

from planner.answer import ResolvedDefault
from planner.batch_defaults import GEMMA4_LARGEST_ITEM_TOKENS, BatchLimits, BatchQuestion, batch_limits
from planner.dtype_rules import compute_dtype, is_dtype_missing_on, kv_dtype, missing_method
from planner.facts import Basis, BasisKind, Finding
from planner.flag_checks import check_flags, is_attention_free
from planner.flags import absent_flags
from planner.gpu_catalog import GpuFacts
from planner.graph_sizes import GraphQuestion, capture_sizes, default_mode
from planner.inventory import ModelFacts
from planner.length_rules import serving_length
from planner.request import CompileCache, EngineFlags, PlanRequest
from planner.runner_choice import (
    Engine,
    RunnerQuestion,
    choose_async,
    choose_runner,
    concurrent_batches,
    in_flight_tokens,
)
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


_Value = TypeVar("_Value")


@dataclass(slots=True)
class _Ledger:
    """The record of what was resolved and why, and of what the reader must know; filled while resolving."""

    lines: list[ResolvedDefault] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def note(self, name: str, value: _Value, note: str, *, is_given: bool, kind: BasisKind = "derived") -> _Value:
        """`value`, recorded under `name`."""
        basis = Basis(kind="read", note="as given") if is_given else Basis(kind=kind, note=note)
        self.lines.append(ResolvedDefault(name=name, value=value, is_given=is_given, basis=basis))
        return value

    def find(self, code: str, text: str, *, is_refusal: bool = False, field_name: str | None = None) -> None:
        """Record a finding."""
        severity: Literal["refusal", "warning"] = "refusal" if is_refusal else "warning"
        self.findings.append(Finding(code=code, severity=severity, text=text, field=field_name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What every rule asks: the request, the model, the card and the release, with the ledger they write to."""

    request: PlanRequest
    flags: EngineFlags
    model: ModelFacts
    gpu: GpuFacts
    version: Version
    ledger: _Ledger

    @property
    def method(self) -> str | None:
        """The speculative method by vLLM's present name, or None."""
        config = self.flags.speculative_config
        if config is None:
            return None
        return "mtp" if config.method.endswith("mtp") else config.method

    @property
    def num_speculative_tokens(self) -> int:
        """Draft tokens a step, 0 without speculative decoding."""
        config = self.flags.speculative_config
        return config.num_speculative_tokens if config is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """How the model runs: dtypes, length, caching."""

    dtype: str
    kv_cache_dtype: str
    quantization: str | None
    max_model_len: int
    enable_prefix_caching: bool
    mamba_cache_mode: str
    runner: Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schedule:
    """How requests are batched."""

    enable_chunked_prefill: bool
    limits: BatchLimits
    async_scheduling: bool
    batches: int
    cudagraph_mode: str
    sizes: tuple[int, ...]


def resolve(request: PlanRequest, model: ModelFacts, gpu: GpuFacts) -> Resolved:
    """All flags of `request` with nothing left open; raises `PlanError` for what vLLM would refuse."""
    version = parse_version(request.vllm_version)
    question = _Question(request=request, flags=request.flags, model=model, gpu=gpu, version=version, ledger=_Ledger())
    check_flags(request.flags, model, version)
    question.ledger.findings.extend(absent_flags(request.flags, version))
    served = _resolve_model(question)
    schedule = _resolve_schedule(question, served)
    return _assemble(question, served, schedule)


def _assemble(question: _Question, served: _Model, schedule: _Schedule) -> Resolved:
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


# -- how the model runs -----------------------------------------------------------------------------------------------


def _resolve_model(question: _Question) -> _Model:
    quantization = _quantization(question)
    dtype = _dtype(question)
    length = _length(question)
    caching, mamba_mode = _prefix_caching(question)
    return _Model(
        dtype=dtype,
        kv_cache_dtype=_kv_cache_dtype(question, dtype),
        quantization=quantization,
        max_model_len=length,
        enable_prefix_caching=caching,
        mamba_cache_mode=mamba_mode,
        runner=_runner(question, dtype, quantization, mamba_mode),
    )


def _quantization(question: _Question) -> str | None:
    given, found = question.flags.quantization, question.model.quantization
    name = given or (found.method if found else None)
    note = f"the checkpoint's ({found.source})" if found else "the checkpoint is not quantised"
    if name is not None and (missing := missing_method(name, question.version)) is not None:
        question.ledger.find("quantization-not-in-version", missing, is_refusal=True, field_name="quantization")
    return question.ledger.note("quantization", name, note, is_given=given is not None, kind="read")


def _dtype(question: _Question) -> str:
    flags, model, gpu = question.flags, question.model, question.gpu
    capability = gpu.capability
    dtype, note = compute_dtype(
        flags.dtype, model.dtype, model_type=model.model_type, version=question.version, capability=capability
    )
    if is_dtype_missing_on(dtype, capability):
        text = (
            f"Bfloat16 is only supported on GPUs with compute capability of at least 8.0; {gpu.name} has "
            f"{'.'.join(map(str, capability or ()))}. Use --dtype half."
        )
        question.ledger.find("no-bfloat16", text, is_refusal=True, field_name="dtype")
    return question.ledger.note("dtype", dtype, note, is_given=flags.dtype != "auto")


def _length(question: _Question) -> int:
    asked, request = question.flags.max_model_len, question.request
    length, note = serving_length(asked, question.model, question.version, may_exceed=request.allow_long_max_model_len)
    return question.ledger.note("max_model_len", length, note, is_given=asked not in (None, "auto"), kind="read")


def _kv_cache_dtype(question: _Question, dtype: str) -> str:
    asked, found = question.flags.kv_cache_dtype, question.model.quantization
    name, note = kv_dtype(
        asked,
        dtype=dtype,
        version=question.version,
        settings=found.settings if found else None,
        method=found.method if found else None,
    )
    is_glm_dsa = question.model.architecture == "GlmMoeDsaForCausalLM" and question.version >= (0, 32, 0)
    if asked == "auto" and is_glm_dsa and (question.gpu.capability or (0, 0))[0] == 10:
        name, note = "fp8_e4m3", "GLM with sparse attention keeps an fp8 cache on compute capability 10"
    return question.ledger.note("kv_cache_dtype", name, note, is_given=asked != "auto")


# Architectures with the finer Mamba cache mode "all", 0.12 to 0.29 (SupportsMambaPrefixCaching).
_ALL_MODE = ("Bamba", "NemotronH", "Jamba", "Mamba", "Zamba2", "GraniteMoeHybrid", "FalconH1")


def _prefix_caching(question: _Question) -> tuple[bool, str]:
    """Whether prefixes are cached, and the Mamba cache mode that follows."""
    model, asked = question.model, question.flags.enable_prefix_caching
    has_state = model.is_hybrid or is_attention_free(model)
    default, note = _default_prefix_caching(question, has_state=has_state)
    caching = default if asked is None else asked
    if has_state and caching and question.version < (0, 17, 0) and not _has_all_mode(question):
        caching, note = False, "this release cannot cache prefixes of a model with recurrent state"
        if asked:
            question.ledger.find("prefix-caching-ignored", f"enable_prefix_caching is ignored: {note}.")
    mode, mode_note = _mamba_mode(question, has_state=has_state, caching=caching)
    if has_state:
        question.ledger.note(
            "mamba_cache_mode", mode, mode_note, is_given=mode == question.flags.mamba_cache_mode and caching
        )
    question.ledger.note("enable_prefix_caching", caching, note, is_given=asked is not None and caching == asked)
    return caching, mode


def _has_all_mode(question: _Question) -> bool:
    return question.version >= (0, 12, 0) and question.model.architecture.startswith(_ALL_MODE)


def _default_prefix_caching(question: _Question, *, has_state: bool) -> tuple[bool, str]:
    model, version = question.model, question.version
    if version < (0, 8, 0):
        return False, "off by default before 0.8"
    if model.is_encoder_decoder:
        return False, "encoder-decoder models do not cache prefixes"
    if is_attention_free(model):
        return False, "models without attention do not cache prefixes by default"
    if has_state and (version < (0, 26, 0) or (0, 27, 0) <= version < (0, 29, 0)):
        return False, "off by default for models with recurrent state before 0.26 and in 0.27 and 0.28"
    return True, "on by default for generation"


def _mamba_mode(question: _Question, *, has_state: bool, caching: bool) -> tuple[str, str]:
    if not has_state or not caching:
        return "none", "without prefix caching"
    asked, version = question.flags.mamba_cache_mode, question.version
    has_all = _has_all_mode(question)
    if asked == "all" and has_all:
        return "all", "asked for"
    if version < (0, 17, 0) or (asked in (None, "none") and has_all and version < (0, 30, 0)):
        return "all", "the mode of this architecture with prefix caching in this release"
    return "align", "the mode with prefix caching"


def _runner(question: _Question, dtype: str, quantization: str | None, mamba_mode: str) -> Engine:
    model, flags = question.model, question.flags
    runner, note = choose_runner(
        RunnerQuestion(
            version=question.version,
            asked=question.request.model_runner,
            architecture=model.architecture,
            vendor=question.gpu.vendor,
            capability=question.gpu.capability,
            is_moe=model.is_moe,
            is_quantized=model.quantization is not None,
            is_hybrid=model.is_hybrid,
            is_attention_free=is_attention_free(model),
            is_encoder_decoder=model.is_encoder_decoder,
            kv_cache_dtype=flags.kv_cache_dtype,
            dtype=dtype,
            quantization=quantization,
            method=question.method,
            pipeline_parallel_size=flags.pipeline_parallel_size,
            mamba_cache_mode=mamba_mode,
        )
    )
    return question.ledger.note("model_runner", runner, note, is_given=question.request.model_runner != "auto")


# -- how requests are batched -----------------------------------------------------------------------------------------


def _resolve_schedule(question: _Question, served: _Model) -> _Schedule:
    chunked = _chunked_prefill(question, served)
    limits = _limits(question, served, chunked=chunked)
    is_async = _async(question, served.runner)
    batches = concurrent_batches(
        question.version, served.runner, is_async=is_async, pipeline_size=question.flags.pipeline_parallel_size
    )
    mode = _graph_mode(question, served.runner)
    return _Schedule(
        enable_chunked_prefill=chunked,
        limits=limits,
        async_scheduling=is_async,
        batches=batches,
        cudagraph_mode=mode,
        sizes=_sizes(question, served, limits, mode),
    )


def _chunked_prefill(question: _Question, served: _Model) -> bool:
    asked, model = question.flags.enable_chunked_prefill, question.model
    if served.runner == "v0":
        default, note = _chunked_in_v0(question, served.max_model_len)
        value = default if asked is None else asked
    elif model.is_encoder_decoder and question.version >= (0, 11, 0):
        value, note = False, "encoder-decoder models do not chunk prompts"
    else:
        value, note = True if asked is None else asked, "on by default for generation"
        if question.version < (0, 12, 0):
            value, note = True, "always on in the V1 engine of this release"
    is_given = asked is not None and asked == value
    return question.ledger.note("enable_chunked_prefill", value, note, is_given=is_given)


def _chunked_in_v0(question: _Question, length: int) -> tuple[bool, str]:
    model, flags = question.model, question.flags
    has_window = any(cache.kind == "sliding" for layer in model.layers for cache in layer.caches)
    stays_off = model.is_multimodal or model.is_mla or has_window or flags.enable_lora or flags.speculative_config
    if length > 32768 and not stays_off:
        return True, "V0: on for lengths over 32768"
    return False, "V0: off up to 32768, and for windows, multimodal, MLA, LoRA and speculative decoding"


def _limits(question: _Question, served: _Model, *, chunked: bool) -> BatchLimits:
    flags, ledger = question.flags, question.ledger
    limits = batch_limits(
        BatchQuestion(
            version=question.version,
            is_v0=served.runner == "v0",
            gpu=question.gpu,
            usage=question.request.usage_context,
            max_model_len=served.max_model_len,
            is_chunked=chunked,
            is_multimodal=question.model.is_multimodal,
            doubles=flags.performance_mode == "throughput",
            least_item_tokens=_least_item_tokens(question),
            seqs=flags.max_num_seqs,
            tokens=flags.max_num_batched_tokens,
        )
    )
    ledger.note("max_num_seqs", limits.max_num_seqs, limits.seqs_note, is_given=flags.max_num_seqs is not None)
    tokens, is_given = limits.max_num_batched_tokens, flags.max_num_batched_tokens is not None
    ledger.note("max_num_batched_tokens", tokens, limits.tokens_note, is_given=is_given)
    return limits


def _least_item_tokens(question: _Question) -> int:
    """The tokens of one multimodal item where vLLM does not split them: Gemma 4 with two-way attention over images."""
    model = question.model
    sees_whole = model.text_config.get("use_bidirectional_attention") == "vision"
    if model.is_multimodal and model.model_type.startswith("gemma4") and sees_whole:
        return 0 if question.flags.language_model_only else GEMMA4_LARGEST_ITEM_TOKENS
    return 0


def _async(question: _Question, runner: Engine) -> bool:
    asked, pipeline_size = question.flags.async_scheduling, question.flags.pipeline_parallel_size
    default, note = choose_async(question.version, runner, method=question.method, pipeline_size=pipeline_size)
    value = default if asked is None or runner == "v0" else asked
    return question.ledger.note("async_scheduling", value, note, is_given=asked is not None and value == asked)


def _graph_mode(question: _Question, runner: Engine) -> str:
    flags = question.flags
    if flags.enforce_eager:
        return question.ledger.note("cudagraph_mode", "NONE", "--enforce-eager", is_given=False)
    if flags.cudagraph_mode is not None:
        return question.ledger.note("cudagraph_mode", flags.cudagraph_mode, "", is_given=True)
    is_encoder_decoder = question.model.is_encoder_decoder
    mode = default_mode(question.version, is_v0=runner == "v0", is_encoder_decoder=is_encoder_decoder)
    return question.ledger.note("cudagraph_mode", mode, "the default of this release (-O2)", is_given=False)


def _sizes(question: _Question, served: _Model, limits: BatchLimits, mode: str) -> tuple[int, ...]:
    flags = question.flags
    sizes = capture_sizes(
        GraphQuestion(
            version=question.version,
            is_v0=served.runner == "v0",
            mode=mode,
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            num_speculative_tokens=question.num_speculative_tokens,
            is_datacenter_blackwell=(question.gpu.capability or (0, 0))[0] == 10,
            is_gpt_oss=question.model.architecture == "GptOssForCausalLM",
            is_interactive=flags.performance_mode == "interactivity",
            given_sizes=flags.cudagraph_capture_sizes,
            given_max=flags.max_cudagraph_capture_size,
        )
    )
    note = f"{len(sizes)} sizes from max_num_seqs and max_num_batched_tokens by this release's rule"
    is_given = flags.cudagraph_capture_sizes is not None and bool(sizes)
    return question.ledger.note("cudagraph_capture_sizes", sizes, note, is_given=is_given)


# -- memory -----------------------------------------------------------------------------------------------------------


def _utilization(question: _Question) -> float:
    asked = question.flags.gpu_memory_utilization
    default = 0.92 if question.version >= (0, 20, 0) else 0.9
    note = "0.92 since vLLM 0.20, 0.9 before (vllm/config/cache.py)"
    value = default if asked is None else asked
    return question.ledger.note("gpu_memory_utilization", value, note, is_given=asked is not None, kind="read")


def _hybrid_manager(question: _Question, runner: Engine) -> bool:
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
