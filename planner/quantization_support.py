"""Quantisation methods that are no longer in vLLM's core, and the forms of a method that it refuses."""

from __future__ import annotations

from planner.inventory import QuantFacts
from planner.versions import Version

# vLLM's QuantizationMethods list: gguf is in 0.23 and not in 0.27, bitsandbytes in 0.27.1 and not in 0.31 (sources read);
# the releases themselves by vLLM's 0.24 documentation and pull requests 39612 (gguf) and 43529 (bitsandbytes).
PLUGINS = {"gguf": "vllm-gguf-plugin", "bitsandbytes": "vllm-bnb-plugin"}


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
