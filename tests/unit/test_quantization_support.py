"""Which quantisation methods are no longer in vLLM's core."""

from __future__ import annotations

import pytest

from planner.quantization_support import removed_method_finding


@pytest.mark.parametrize(
    ("method", "first_minor_without", "plugin"),
    [("gguf", 24, "vllm-gguf-plugin"), ("bitsandbytes", 28, "vllm-bnb-plugin")],
)
def test_removed_method_is_a_finding_from_its_release_on(method, first_minor_without, plugin):
    finding = removed_method_finding(method, first_minor_without)

    assert removed_method_finding(method, first_minor_without - 1) is None
    assert plugin in finding.text
    assert finding.severity == "refusal"


@pytest.mark.parametrize("method", ["fp8", None, "awq"])
def test_method_of_the_core_is_no_finding(method):
    assert removed_method_finding(method, 33) is None
