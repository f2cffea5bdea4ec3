"""How a model runs when flags leave it open: dtypes, length, prefix caching, runner; by release and card."""

from __future__ import annotations

from dataclasses import dataclass

from planner.dtype_rules import compute_dtype, is_dtype_missing_on, kv_dtype, missing_method
from planner.flag_checks import is_attention_free
from planner.inventory import ModelFacts
from planner.length_rules import serving_length
from planner.quantization_support import refused_settings
from planner.resolution import Question
from planner.runner_choice import Engine, RunnerQuestion, choose_runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model as it runs."""

    dtype: str
    kv_cache_dtype: str
    quantization: str | None
    max_model_len: int
    enable_prefix_caching: bool
    mamba_cache_mode: str
    runner: Engine


def resolve_model(question: Question) -> Served:
    """How the model of `question` runs, every decision recorded in its ledger."""
    quantization = _quantization(question)
    dtype = _dtype(question)
    length = _length(question)
    caching, mamba_mode = _prefix_caching(question)
    return Served(
        dtype=dtype,
        kv_cache_dtype=_kv_cache_dtype(question, dtype),
        quantization=quantization,
        max_model_len=length,
        enable_prefix_caching=caching,
        mamba_cache_mode=mamba_mode,
        runner=_runner(question, dtype, quantization, mamba_mode),
    )


def _quantization(question: Question) -> str | None:
    given, found = question.flags.quantization, question.model.quantization
    name = given or (found.method if found else None)
    note = f"the checkpoint's ({found.source})" if found else "the checkpoint is not quantised"
    if name is not None and (missing := missing_method(name, question.version)) is not None:
        question.ledger.find("quantization-not-in-version", missing, is_refusal=True, field_name="quantization")
    elif found and (refused := refused_settings(found, question.version)) is not None:
        question.ledger.find("quantization-refused", refused, is_refusal=True, field_name="quantization")
    return question.ledger.note("quantization", name, note, is_given=given is not None, kind="read")


_POOLING_SUFFIXES = ("ForSequenceClassification", "ForTokenClassification", "RewardModel")


def is_pooling(model: ModelFacts) -> bool:
    """Whether the model gives vectors or scores, not text: by its class, or as it attends both ways and keeps nothing."""
    return model.architecture.endswith(_POOLING_SUFFIXES) or sees_both_ways(model)


def sees_both_ways(model: ModelFacts) -> bool:
    """Whether an embedding class attends both ways and so keeps nothing; a causal class told to do so still counts as text."""
    kinds = {cache.kind for layer in model.layers for cache in layer.caches}
    return kinds == {"encoder_only"} and not model.architecture.endswith("ForCausalLM")


def _dtype(question: Question) -> str:
    flags, model, gpu = question.flags, question.model, question.gpu
    capability = gpu.capability
    dtype, note = compute_dtype(
        flags.dtype,
        model.dtype,
        model_type=model.model_type,
        version=question.version,
        capability=capability,
        is_pooling=is_pooling(model),
    )
    if is_dtype_missing_on(dtype, capability):
        text = (
            f"Bfloat16 is only supported on GPUs with compute capability of at least 8.0; {gpu.name} has "
            f"{'.'.join(map(str, capability or ()))}. Use --dtype half."
        )
        question.ledger.find("no-bfloat16", text, is_refusal=True, field_name="dtype")
    return question.ledger.note("dtype", dtype, note, is_given=flags.dtype != "auto")


def _length(question: Question) -> int:
    asked, request = question.flags.max_model_len, question.request
    length, note = serving_length(asked, question.model, question.version, may_exceed=request.allow_long_max_model_len)
    return question.ledger.note("max_model_len", length, note, is_given=asked not in (None, "auto"), kind="read")


def _kv_cache_dtype(question: Question, dtype: str) -> str:
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


# Architectures with the finer Mamba cache mode "all" (SupportsMambaPrefixCaching): their default to 0.27, gone in 0.32.
_ALL_MODE = ("Bamba", "NemotronH", "Jamba", "Mamba", "Zamba2", "GraniteMoeHybrid", "FalconH1")


def _prefix_caching(question: Question) -> tuple[bool, str]:
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


def _has_all_mode(question: Question) -> bool:
    return question.version >= (0, 12, 0) and question.model.architecture.startswith(_ALL_MODE)


def _default_prefix_caching(question: Question, *, has_state: bool) -> tuple[bool, str]:
    model, version = question.model, question.version
    if version < (0, 8, 0):
        return False, "off by default before 0.8"
    if model.is_encoder_decoder:
        return False, "encoder-decoder models do not cache prefixes"
    if is_attention_free(model):
        return False, "models without attention do not cache prefixes by default"
    # ModelConfig.is_prefix_caching_supported is false for hybrids to 0.25.1; 0.26.0 and 0.27.1 keep it opt-in in arg_utils
    # ("and not model_config.is_hybrid"); from 0.28.0 on that condition is gone.
    if has_state and version < (0, 28, 0):
        return False, "off by default for models with recurrent state before 0.28"
    return True, "on by default for generation"


def _mamba_mode(question: Question, *, has_state: bool, caching: bool) -> tuple[str, str]:
    if not has_state or not caching:
        return "none", "without prefix caching"
    asked, version = question.flags.mamba_cache_mode, question.version
    has_all = _has_all_mode(question)
    if asked == "all" and has_all:
        return "all", "asked for"
    if version < (0, 17, 0) or (asked in (None, "none") and has_all and version < (0, 28, 0)):
        return "all", "the mode of this architecture with prefix caching in this release"
    return "align", "the mode with prefix caching"


def _runner(question: Question, dtype: str, quantization: str | None, mamba_mode: str) -> Engine:
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
