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
