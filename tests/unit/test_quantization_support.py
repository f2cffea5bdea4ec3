"""Which quantisation methods are no longer in vLLM's core."""

from __future__ import annotations

import pytest

from planner.dtype_rules import missing_method
from planner.versions import Version


@pytest.mark.parametrize(
    ("method", "first_minor_without", "plugin"),
    [("gguf", 24, "vllm-gguf-plugin"), ("bitsandbytes", 28, "vllm-bnb-plugin")],
)
def test_a_removed_method_is_missing_from_its_release_on_and_the_plugin_is_named(method, first_minor_without, plugin):
    text = missing_method(method, Version(0, first_minor_without, 0))

    assert missing_method(method, Version(0, first_minor_without - 1, 0)) is None
    assert plugin in str(text)


@pytest.mark.parametrize("method", ["fp8", "awq"])
def test_a_method_of_the_core_is_not_missing(method):
    assert missing_method(method, Version(0, 33, 0)) is None
