"""Which quantisation methods are no longer in vLLM's core."""

from __future__ import annotations

import pytest

from planner.quantization_support import removed_method_finding
from planner.versions import parse_version


@pytest.mark.parametrize(
    ("method", "last", "first_without", "plugin"),
    [("gguf", "0.23.1", "0.24.0", "vllm-gguf-plugin"), ("bitsandbytes", "0.27.1", "0.28.0", "vllm-bnb-plugin")],
)
def test_removed_method_is_a_finding_from_its_release_on(method, last, first_without, plugin):
    finding = removed_method_finding(method, parse_version(first_without))

    assert removed_method_finding(method, parse_version(last)) is None
    assert plugin in finding.text


@pytest.mark.parametrize("method", ["fp8", None, "awq"])
def test_method_of_the_core_is_no_finding(method):
    assert removed_method_finding(method, parse_version("0.33.0")) is None
