"""Which engine and model runner a vLLM release takes, async scheduling, and how many batches are in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.facts import PlanError
from planner.request import Runner
from planner.versions import Version

Engine = Literal["v0", "v1", "v2"]

FIRST_V1 = Version(0, 8, 0)  # V1 is the default engine since 0.8.0
FIRST_WITHOUT_V0 = Version(0, 11, 0)
FIRST_V2_RUNNER = Version(0, 12, 0)  # VLLM_USE_V2_MODEL_RUNNER appears between 0.11.0 and 0.14.0
FIRST_ASYNC = Version(0, 14, 0)  # async scheduling is on by default since 0.14.0

_EAGLE_LIKE = frozenset({"eagle", "eagle3", "mtp", "extract_hidden_states"})
# The dense models that take the V2 runner by default in 0.23 (unquantised only) and 0.24, and the MoE models that do from
# 0.24 to 0.28, when all dense ones do (0.25 on) but MoE models in general do not (vllm/config/vllm.py).
_V2_DENSE = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"})
_V2_AT_022 = frozenset({"Qwen3ForCausalLM"})
_V2_MOE = frozenset({"DeepseekV2ForCausalLM", "GraniteMoeForCausalLM", "Qwen2MoeForCausalLM"})
_V2_MOE_SINCE = {
    "InklingForCausalLM": Version(0, 26, 0),
    "InklingForConditionalGeneration": Version(0, 26, 0),
    "LongcatFlashNgramForCausalLM": Version(0, 26, 0),
    "KimiK3ForConditionalGeneration": Version(0, 27, 0),
    "DeepseekV4ForCausalLM": Version(0, 28, 0),
}
_ASYNC_METHODS = {
    "ngram_gpu": Version(0, 18, 0),
    "dflash": Version(0, 21, 0),
    "dspark": Version(0, 25, 0),
    "draft_model": Version(0, 28, 0),
}
NEVER = Version(999, 0, 0)
_V1_ON_ROCM = frozenset({"DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "GlmMoeDsaForCausalLM"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerQuestion:
    """What the choice depends on. `method` is the speculative method, None without."""

    version: Version
    asked: Runner
    architecture: str
    vendor: str
    capability: tuple[int, int] | None
    is_moe: bool
    is_quantized: bool
    is_hybrid: bool
    is_attention_free: bool
    is_encoder_decoder: bool
    kv_cache_dtype: str
    dtype: str
    quantization: str | None
    method: str | None
    pipeline_parallel_size: int
    mamba_cache_mode: str


def choose_runner(question: RunnerQuestion) -> tuple[Engine, str]:
    """The engine ("v0") or model runner ("v1", "v2") that starts, and why."""
    version = question.version
    if version < FIRST_V1:
        _refuse_unless(question.asked == "auto", question, "has the V0 engine only by default")
        return "v0", "vLLM before 0.8 starts the V0 engine"
    if question.asked == "v2":
        _refuse_unless(version >= FIRST_V2_RUNNER, question, "has no V2 model runner")
        return "v2", "asked for (VLLM_USE_V2_MODEL_RUNNER=1)"
    if question.asked == "v1":
        return "v1", "asked for (VLLM_USE_V2_MODEL_RUNNER=0)"
    if version < FIRST_WITHOUT_V0 and (reason := _reason_for_v0(question)):
        return "v0", f"vLLM {version.major}.{version.minor} falls back to the V0 engine for {reason}"
    return _default_runner(question)


def _refuse_unless(allowed: bool, question: RunnerQuestion, text: str) -> None:
    if not allowed:
        version = ".".join(map(str, question.version))
        raise PlanError("model_runner", question.asked, f"vLLM {version} {text}; leave model_runner at auto.")


def _reason_for_v0(question: RunnerQuestion) -> str | None:
    """Why 0.8 to 0.10 would not run V1 (`_is_v1_supported_oracle`, read in 0.8.5), or None."""
    is_early, method, kv_dtype = question.version < (0, 10, 0), question.method, question.kv_cache_dtype
    reads_fp8 = question.capability is None or question.capability[0] == 9  # FlashAttention 3
    reasons = {
        "a card below compute capability 8.0": question.capability is not None and question.capability < (8, 0),
        "GGUF": question.quantization == "gguf",
        "dtype float32": question.dtype == "float32",
        "an encoder-decoder model": question.is_encoder_decoder,
        "a model with recurrent state": is_early and (question.is_hybrid or question.is_attention_free),
        f"kv_cache_dtype {kv_dtype}": is_early
        and kv_dtype != "auto"
        and not (kv_dtype.startswith("fp8") and reads_fp8),
        "this kind of speculative decoding": is_early and method not in (None, "ngram", "eagle", "eagle3"),
        "pipeline parallelism without Ray": question.version < (0, 9, 0) and question.pipeline_parallel_size > 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _default_runner(question: RunnerQuestion) -> tuple[Engine, str]:
    version = question.version
    if version < (0, 22, 0):
        return "v1", "the V1 model runner is the default up to 0.21"
    if version < (0, 29, 0) and not _is_v2_model(question):
        return "v1", f"{question.architecture or 'this model'} is not among the models that took the V2 runner then"
    if (0, 29, 0) <= version < (0, 32, 0) and question.vendor == "AMD" and question.architecture in _V1_ON_ROCM:
        return "v1", "on ROCm this architecture keeps the V1 runner"
    if (missing := _missing_in_v2(question)) is not None:
        return "v1", f"the V2 runner of this release does not support {missing}"
    return "v2", "the V2 runner is the default for this model in this release"


def _is_v2_model(question: RunnerQuestion) -> bool:
    """Whether 0.23 to 0.28 count the model among those that default to V2 (`_is_default_v2_model_runner_model`)."""
    version, architecture = question.version, question.architecture
    if version < (0, 24, 0):
        dense = _V2_DENSE if version >= (0, 23, 0) else _V2_AT_022
        return architecture in dense and not question.is_moe and not question.is_quantized
    listed = architecture in _V2_MOE or version >= _V2_MOE_SINCE.get(architecture, NEVER)
    if version < (0, 25, 0):
        return listed or architecture in _V2_DENSE
    if question.is_attention_free or (question.is_hybrid and not (listed and version >= (0, 27, 0))):
        return False
    return listed or not question.is_moe


def _missing_in_v2(question: RunnerQuestion) -> str | None:
    """What the V2 runner of the release lacks for this question, or None."""
    version = question.version
    if question.is_hybrid and version < (0, 23, 0):
        return "models with recurrent state"
    if question.is_hybrid and version < (0, 25, 0) and question.mamba_cache_mode == "align":
        return "recurrent state in cache mode align"
    if (0, 30, 0) <= version < (0, 32, 0) and question.mamba_cache_mode == "all":
        return "mamba cache mode 'all'"
    return None if question.method is None else _method_missing_in_v2(question, question.method)


def _method_missing_in_v2(question: RunnerQuestion, method: str) -> str | None:
    version = question.version
    if version >= (0, 30, 0):
        missing = {"suffix", "custom_class"}
        if version < (0, 32, 0):
            missing |= {"ngram", "ngram_gpu", "medusa", "mlp_speculator"}
        return f"speculative method '{method}'" if method in missing else None
    if method == "eagle3" and question.pipeline_parallel_size > 1:
        return "EAGLE3 with pipeline parallelism"
    known = {"eagle", "eagle3", "mtp"} | {name for name in ("dflash", "dspark") if version >= _ASYNC_METHODS[name]}
    return None if method in known else f"speculative method '{method}'"


def choose_async(version: Version, runner: Engine, *, method: str | None, pipeline_size: int) -> tuple[bool, str]:
    """Whether async scheduling is on when not asked for, and why."""
    if runner == "v0" or version < FIRST_ASYNC:
        return False, "async scheduling is off by default before 0.14"
    if version >= (0, 33, 0) and runner == "v2":
        return True, "on by default since 0.14"
    allowed = _EAGLE_LIKE | {known for known, since in _ASYNC_METHODS.items() if version >= since}
    if method is not None and method not in allowed:
        return False, f"off with {method}-based speculative decoding"
    is_off_on_pipeline = version < (0, 16, 0) or (version >= (0, 31, 0) and runner == "v1")
    if pipeline_size > 1 and is_off_on_pipeline:
        return False, "off with pipeline parallelism"
    return True, "on by default since 0.14"


def concurrent_batches(version: Version, runner: Engine, *, is_async: bool, pipeline_size: int) -> int:
    """How many batches the engine keeps in flight (`max_concurrent_batches`)."""
    if runner == "v0":
        return pipeline_size
    if is_async and runner == "v2" and version >= (0, 23, 0):
        return pipeline_size + 1
    if is_async and (pipeline_size == 1 or version < (0, 16, 0)):
        return 2
    return pipeline_size


def in_flight_tokens(version: Version, max_num_batched_tokens: int, batches: int) -> int:
    """The tokens a sliding window must hold beside itself: one batch up to 0.25, all batches in flight since 0.26."""
    return max_num_batched_tokens * (batches if version >= (0, 26, 0) else 1)
