"""The quantisation method that `--quantization` asks for, against the checkpoint's own: what vLLM refuses, what it takes."""

from __future__ import annotations

from planner.inventory import QuantFacts
from planner.versions import Version

# fp8.py quantises while loading in 0.30.0 and refuses to in 0.31.0; fp8_per_tensor came with 0.20.
_FIRST_WITHOUT_ONLINE_FP8 = Version(0, 31, 0)
# The names under which vLLM takes a checkpoint's method (`override_quantization_method` of 0.6.6 to 0.33.0).
_ALSO_CALLED = {
    "awq": frozenset({"awq_marlin", "auto_awq", "marlin", "moe_wna16", "ipex", "cpu_awq"}),
    "gptq": frozenset({"gptq_marlin", "auto_gptq", "marlin", "moe_wna16", "ipex", "gptq_bitblas"}),
    "fp8": frozenset({"deepseek_v4_fp8"}),
}
# Checkpoints whose method vLLM finds itself, whatever is asked for.
_FOUND_ANYWAY = ("modelopt", "mxfp", "gpt_oss", "auto", "inc", "intel", "deepseek_v4")


def online_fp8(version: Version) -> str:
    """The method with which release `version` quantises weights to fp8 while loading them."""
    return "fp8" if version < _FIRST_WITHOUT_ONLINE_FP8 else "fp8_per_tensor"


def refused_choice(asked: str | None, found: QuantFacts | None, version: Version) -> str | None:
    """Why release `version` refuses `asked` for a checkpoint quantised as `found`, or None when it takes it."""
    if asked is None:
        return None
    if found is None:
        is_gone = asked == "fp8" and online_fp8(version) != "fp8"
        return _ONLINE_FP8_IS_GONE if is_gone else None
    if asked in ("humming", found.method, *_ALSO_CALLED.get(found.method, ())) or found.method.startswith(
        _FOUND_ANYWAY
    ):
        return None
    return (
        f"Quantization method specified in the model config ({found.method}) does not match the quantization method "
        f"specified in the `quantization` argument ({asked}). Leave --quantization out."
    )


_ONLINE_FP8_IS_GONE = (
    "The `fp8` quantization method no longer supports online quantization (since vLLM 0.31). "
    "Use --quantization fp8_per_tensor instead."
)


# `get_min_capability` of each method's class: (first release with it, major and minor as one number), newest first. Read in
# 0.6.6, 0.8.5, 0.11, 0.14, 0.19, 0.23, 0.27.1, 0.31 and 0.33; a change is dated to the first of these that has it.
_LEAST_CAPABILITY: dict[str, tuple[tuple[Version, int], ...]] = {
    "fp8": ((Version(0, 14, 0), 75), (Version(0, 6, 0), 80)),
    "deepseek_v4_fp8": ((Version(0, 14, 0), 75),),
    "awq": ((Version(0, 6, 0), 75),),
    "gptq": ((Version(0, 6, 0), 60),),
    "compressed-tensors": ((Version(0, 6, 0), 70),),
    "bitsandbytes": ((Version(0, 6, 0), 70),),
    "mxfp4": ((Version(0, 11, 0), 80),),
    "gpt_oss_mxfp4": ((Version(0, 11, 0), 80),),
    "fbgemm_fp8": ((Version(0, 6, 0), 80),),
    "modelopt": ((Version(0, 31, 0), 80), (Version(0, 6, 0), 89)),
    "modelopt_fp4": ((Version(0, 19, 0), 75),),
    "fp8_per_tensor": ((Version(0, 20, 0), 75),),
    "fp8_per_block": ((Version(0, 20, 0), 75),),
}


def refused_capability(method: str | None, capability: tuple[int, int] | None, version: Version) -> str | None:
    """Why release `version` refuses `method` on a card of `capability`, or None (also where no class states a least one)."""
    if method is None or capability is None:
        return None
    current = capability[0] * 10 + capability[1]
    least = next((number for first, number in _LEAST_CAPABILITY.get(method, ()) if version >= first), 0)
    if current >= least:
        return None
    return (
        f"The quantization method {method} is not supported for the current GPU. Minimum capability: {least}. "
        f"Current capability: {current}."
    )
