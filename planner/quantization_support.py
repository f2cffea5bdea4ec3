"""Which quantisation methods left vLLM's core, in which release, and the plug-in that brings each back."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts import Finding


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
