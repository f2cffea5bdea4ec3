"""Which quantisation methods left vLLM's core, in which release, and the plug-in that brings each back."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts import Finding
from planner.versions import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedMethod:
    """A method that vLLM's core had until the release before `removed_in`."""

    removed_in: Version
    plugin: str


# vLLM's QuantizationMethods list: gguf is in 0.23 and not in 0.27, bitsandbytes in 0.27.1 and not in 0.31 (sources read);
# the releases themselves by vLLM's 0.24 documentation and pull requests 39612 (gguf) and 43529 (bitsandbytes).
REMOVED_METHODS: dict[str, RemovedMethod] = {
    "gguf": RemovedMethod(removed_in=Version(0, 24, 0), plugin="vllm-gguf-plugin"),
    "bitsandbytes": RemovedMethod(removed_in=Version(0, 28, 0), plugin="vllm-bnb-plugin"),
}


def removed_method_finding(method: str | None, version: Version) -> Finding | None:
    """The finding that `method` is no longer in the core of vLLM `version`, or None where it still is (or never was) there."""
    removed = REMOVED_METHODS.get(method or "")
    if removed is None or version < removed.removed_in:
        return None
    since = f"{removed.removed_in.major}.{removed.removed_in.minor}"
    text = (
        f"vLLM {version.major}.{version.minor} has no {method} quantisation of its own: it left vLLM's core in {since}. "
        f"Install the plug-in {removed.plugin}, or use a release before {since}."
    )
    return Finding(code="quantization-removed", severity="warning", text=text, field="quantization")
