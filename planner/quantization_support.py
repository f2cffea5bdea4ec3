"""Which quantisation methods left vLLM's core, in which release, and the plug-in that brings each back."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts import Finding
from planner.inventory import QuantFacts
from planner.versions import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedMethod:
    """A method that vLLM's core had until the release before 0.`removed_in_minor`."""

    removed_in_minor: int
    plugin: str


# vLLM's QuantizationMethods list: gguf is in 0.23 and not in 0.27, bitsandbytes in 0.27.1 and not in 0.31 (sources read);
# the releases themselves by vLLM's 0.24 documentation and pull requests 39612 (gguf) and 43529 (bitsandbytes).
REMOVED_METHODS: dict[str, RemovedMethod] = {
    "gguf": RemovedMethod(removed_in_minor=24, plugin="vllm-gguf-plugin"),
    "bitsandbytes": RemovedMethod(removed_in_minor=28, plugin="vllm-bnb-plugin"),
}


def removed_method_finding(method: str | None, vllm_minor: int) -> Finding | None:
    """The finding that vLLM 0.`vllm_minor` has `method` no longer in its core, or None where it still has (or never had) it."""
    removed = REMOVED_METHODS.get(method or "")
    if removed is None or vllm_minor < removed.removed_in_minor:
        return None
    since = f"0.{removed.removed_in_minor}"
    text = (
        f"vLLM 0.{vllm_minor} refuses {method} checkpoints: the method left vLLM's core in {since}. Install the plug-in "
        f"{removed.plugin}, or use a release before {since}, which the sizes here are those of."
    )
    return Finding(code="quantization-removed", severity="refusal", text=text, field="quantization")


_FIRST_MINOR_WITH_ONE_GPTQ = 32  # auto_gptq.py alone, on Marlin and Machete; read in 0.32


def refused_settings(facts: QuantFacts, version: Version) -> str | None:
    """Why release `version` refuses a checkpoint of a method it has, in vLLM's words, or None when it takes it."""
    if "gptq" not in facts.method or version < (0, _FIRST_MINOR_WITH_ONE_GPTQ, 0):
        return None
    if facts.settings.get("desc_act") is True and facts.settings.get("group_size") != -1:
        return (
            "GPTQ group activation ordering (desc_act=True) is no longer supported. Use a checkpoint with static "
            "activation ordering or desc_act=False."
        )
    if facts.settings.get("sym", True) is False:
        return f"Unsupported quantization config: bits={facts.settings.get('bits')}, sym=False"
    return None
