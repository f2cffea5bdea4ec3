"""The compute dtype, the KV cache dtype and the quantisation method as vLLM resolves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from planner.facts import PlanError
from planner.quantization_support import PLUGINS
from planner.versions import Version

_DTYPES = {
    "half": "float16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "float32": "float32",
}
# Model types that float16 breaks (`_FLOAT16_NOT_SUPPORTED_MODELS`, vllm/config/model.py).
_NO_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "plamo2", "glm4"})

# The release from which `--kv-cache-dtype` takes each name (`CacheDType` in the sources of 25 releases from 0.8.5 to 0.33.0).
KV_DTYPES: dict[str, Version] = {
    "auto": Version(0, 0, 0),
    "fp8": Version(0, 0, 0),
    "fp8_e4m3": Version(0, 0, 0),
    "fp8_e5m2": Version(0, 0, 0),
    "fp8_inc": Version(0, 10, 0),
    "bfloat16": Version(0, 11, 0),
    "fp8_ds_mla": Version(0, 12, 0),
    "float16": Version(0, 18, 0),
    "turboquant_k8v4": Version(0, 20, 0),
    "turboquant_4bit_nc": Version(0, 20, 0),
    "turboquant_k3v4_nc": Version(0, 20, 0),
    "turboquant_3bit_nc": Version(0, 20, 0),
    "int8_per_token_head": Version(0, 20, 0),
    "fp8_per_token_head": Version(0, 20, 0),
    "nvfp4": Version(0, 20, 0),
    "int4_per_token_head": Version(0, 25, 0),
    "nvfp4_ds_mla": Version(0, 30, 0),
    "nvfp4_4over6": Version(0, 28, 0),
    "ultraquant_4bit": Version(0, 32, 0),
    "octave_k3v4": Version(0, 33, 0),
    "octave_k3v3": Version(0, 33, 0),
    "octave_k3v3_compact": Version(0, 33, 0),
}


def compute_dtype(  # noqa: PLR0913 - what the rule asks, all by name
    asked: str,
    config_dtype: str,
    *,
    model_type: str,
    version: Version,
    capability: tuple[int, int] | None,
    is_pooling: bool = False,
) -> tuple[str, str]:
    """The dtype the model runs in, and why; raises `PlanError` for a name vLLM does not know."""
    if asked.lower() != "auto":
        if asked.lower() not in _DTYPES:
            text = f"Unknown dtype: {asked!r}; write auto, half, float16, bfloat16, float or float32."
            raise PlanError("dtype", asked, text)
        return _DTYPES[asked.lower()], "asked for"
    has_bfloat16 = capability is None or capability >= (8, 0)
    preferred = "bfloat16" if has_bfloat16 or model_type in _NO_FLOAT16 else "float16"
    if config_dtype == "float32" and is_pooling and version >= (0, 9, 0) and model_type not in _NO_FLOAT16:
        return "float16", "float32 embedding models and classifiers load in float16"
    if config_dtype == "float32":
        return _downcast(preferred, model_type, version)
    if config_dtype == "bfloat16" and not has_bfloat16 and version >= (0, 9, 0):
        return preferred, "this card has no bfloat16; vLLM falls back"
    return config_dtype, "the checkpoint's dtype (config.json)"


def _downcast(preferred: str, model_type: str, version: Version) -> tuple[str, str]:
    if version >= (0, 9, 0):
        return preferred, "float32 checkpoints load in the card's preferred dtype since 0.9"
    if model_type == "gemma2":
        return "bfloat16", "float32 Gemma 2 loads in bfloat16"
    return "float16", "float32 checkpoints load in float16 before 0.9"


def is_dtype_missing_on(dtype: str, capability: tuple[int, int] | None) -> bool:
    """Whether the card cannot run `dtype`: bfloat16 needs compute capability 8.0."""
    return dtype == "bfloat16" and capability is not None and capability < (8, 0)


def check_kv_dtype(name: str, version: Version) -> None:
    """Raise `PlanError` when the release does not take `name` for `--kv-cache-dtype`."""
    since = KV_DTYPES.get(name)
    if since is not None and version >= since:
        return
    known = ", ".join(known for known, first in KV_DTYPES.items() if version >= first)
    release = ".".join(map(str, version))
    reason = f"came with vLLM {'.'.join(map(str, since))}" if since else "is no KV cache dtype of vLLM"
    raise PlanError("kv_cache_dtype", name, f"kv_cache_dtype {name!r:.40} {reason}; vLLM {release} takes {known}.")


def kv_dtype(
    asked: str, *, dtype: str, version: Version, settings: Mapping[str, object] | None, method: str | None
) -> tuple[str, str]:
    """The KV cache's dtype, never "auto", and why. `settings` is the checkpoint's quantisation config."""
    if asked in ("fp8", "fp8_e4m3"):
        return "fp8_e4m3", "asked for (fp8 is fp8_e4m3)"
    if asked != "auto":
        return asked, "asked for"
    if settings is not None and method is not None:
        named = _checkpoint_kv_dtype(settings, method, version)
        if named is not None:
            return named, f"the checkpoint's own KV cache scheme ({method})"
    return dtype, "the model's dtype"


def _checkpoint_kv_dtype(settings: Mapping[str, object], method: str, version: Version) -> str | None:
    if method.startswith("modelopt") and version >= (0, 12, 0):
        return _modelopt_kv_dtype(settings)
    if method == "compressed-tensors" and version >= (0, 15, 0) and settings.get("kv_cache_scheme"):
        return "fp8_e4m3"
    return None


def _modelopt_kv_dtype(settings: Mapping[str, object]) -> str | None:
    inner = settings.get("quantization")
    sections = (inner if isinstance(inner, Mapping) else settings, settings)
    keys = ("kv_cache_scheme", "kv_cache_quant_algo")
    scheme = next((section[key] for key in keys for section in sections if section.get(key)), None)
    if isinstance(scheme, Mapping):
        is_float = scheme.get("type") == "float"
        if is_float and scheme.get("num_bits") == 8 and scheme.get("dynamic") is False:
            return "fp8_e4m3"
        return "nvfp4" if is_float and scheme.get("num_bits") == 4 else None
    if isinstance(scheme, str):
        return {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}.get(scheme.lower())
    return None


class _Span(NamedTuple):
    first: Version
    gone: Version  # the first release without it


def _span(first: tuple[int, int], gone: tuple[int, int] = (999, 0)) -> _Span:
    return _Span(Version(*first, 0), Version(*gone, 0))


# Quantisation methods by release (`QuantizationMethods` in the sources of 28 releases from 0.6.6 to 0.33.0).
_METHODS: dict[str, _Span] = {
    "aqlm": _span((0, 0), (0, 10)),
    "auto-round": _span((0, 9)),  # from 0.15 the checkpoint's name for `inc`, which overrides it
    "auto_awq": _span((0, 24)),
    "auto_gptq": _span((0, 22)),
    "awq": _span((0, 0)),
    "awq_marlin": _span((0, 0)),
    "bitblas": _span((0, 8), (0, 16)),
    "bitsandbytes": _span((0, 0), (0, 28)),
    "compressed-tensors": _span((0, 0)),
    "cpu_awq": _span((0, 12), (0, 23)),
    "deepseek_v4_fp8": _span((0, 20)),
    "deepspeedfp": _span((0, 0), (0, 15)),
    "experts_int8": _span((0, 0)),
    "fbgemm_fp8": _span((0, 0)),
    "fp8": _span((0, 0)),
    "fp8_per_block": _span((0, 20)),
    "fp8_per_channel": _span((0, 24)),
    "fp8_per_tensor": _span((0, 20)),
    "fp_quant": _span((0, 12)),
    "gguf": _span((0, 0), (0, 24)),
    "gpt_oss_mxfp4": _span((0, 20)),
    "gptq": _span((0, 0)),
    "gptq_bitblas": _span((0, 8), (0, 16)),
    "gptq_marlin": _span((0, 0)),
    "gptq_marlin_24": _span((0, 0), (0, 16)),
    "hqq": _span((0, 0), (0, 15)),
    "humming": _span((0, 20)),
    "inc": _span((0, 10)),
    "int8_per_channel_weight_only": _span((0, 20)),
    "ipex": _span((0, 0), (0, 16)),
    "marlin": _span((0, 0), (0, 10)),
    "modelopt": _span((0, 0)),
    "modelopt_fp4": _span((0, 9)),
    "modelopt_mixed": _span((0, 17)),
    "modelopt_mxfp8": _span((0, 16)),
    "moe_wna16": _span((0, 7)),
    "mxfp4": _span((0, 10)),
    "mxfp8": _span((0, 19)),
    "nvfp4": _span((0, 8), (0, 9)),
    "nvfp4_per_token": _span((0, 26)),
    "online": _span((0, 20)),
    "petit_nvfp4": _span((0, 10), (0, 20)),
    "ptpc_fp8": _span((0, 7), (0, 19)),
    "qqq": _span((0, 0), (0, 10)),
    "quark": _span((0, 7)),
    "rtn": _span((0, 9), (0, 15)),
    "torchao": _span((0, 8)),
    "tpu_int8": _span((0, 0), (0, 14)),
}
# Names that vLLM gave an older method later: a checkpoint of the method runs on the older release too.
_OLDER_NAMES = {
    "auto_awq": "awq",
    "auto_gptq": "gptq",
    "deepseek_v4_fp8": "fp8",
    "gpt_oss_mxfp4": "mxfp4",
    "modelopt_fp4": "nvfp4",
    "modelopt_mxfp8": "modelopt",
    "modelopt_mixed": "modelopt",
}


def check_quantization(name: str) -> None:
    """Raise `PlanError` when no release of vLLM has quantisation method `name`."""
    if name not in _METHODS:
        known = ", ".join(method for method, span in _METHODS.items() if span.gone > Version(900, 0, 0))
        text = f"quantization {name!r:.40} is no method of vLLM; it takes {known}."
        raise PlanError("quantization", name, text)


_DEPRECATED = frozenset({"fbgemm_fp8", "fp_quant"})  # quantization/__init__.py of 0.14 to 0.32


def missing_method(name: str, version: Version) -> str | None:
    """Why release `version` cannot load method `name`, in the reader's words, or None when it can."""
    if name in _DEPRECATED and version >= (0, 14, 0):
        return f"The quantization method {name} is deprecated; vLLM loads it only with --allow-deprecated-quantization."
    spans = [_METHODS[known] for known in (name, _OLDER_NAMES.get(name, "")) if known in _METHODS]
    release = ".".join(map(str, version))
    if not spans:
        return f"Quantisation method {name!r:.40} is not among those of vLLM {release}."
    if any(span.first <= version < span.gone for span in spans):
        return None
    if version >= spans[0].gone:
        gone = f"{spans[0].gone.major}.{spans[0].gone.minor}"
        remedy = f"Install the plug-in {PLUGINS[name]}, or take" if name in PLUGINS else "Take"
        return f"vLLM {release} has no quantisation method {name}: it was removed in {gone}. {remedy} an older release."
    first = f"{spans[0].first.major}.{spans[0].first.minor}"
    return f"vLLM {release} has no quantisation method {name}: it came with {first}."
