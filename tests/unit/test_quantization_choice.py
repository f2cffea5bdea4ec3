"""The method that `--quantization` asks for against the checkpoint's own."""

import pytest

from planner.inventory import QuantFacts
from planner.quantization_choice import refused_choice
from planner.versions import Version


def checkpoint(method: str) -> QuantFacts:
    return QuantFacts(method=method, settings={"quant_method": method}, source="config.json")


@pytest.mark.parametrize(
    ("asked", "method"),
    [
        (None, "fp8"),
        ("fp8", "fp8"),
        ("awq_marlin", "awq"),
        ("gptq_marlin", "gptq"),
        ("humming", "fp8"),
        ("awq", "modelopt"),
    ],
)
def test_a_method_that_vllm_takes_for_the_checkpoint_is_not_refused(asked, method):
    assert refused_choice(asked, checkpoint(method), Version(0, 33, 0)) is None


@pytest.mark.parametrize(("asked", "method"), [("awq", "fp8"), ("fp8", "compressed-tensors"), ("gptq", "awq")])
def test_another_method_than_the_checkpoints_is_refused_in_vllms_words(asked, method):
    text = refused_choice(asked, checkpoint(method), Version(0, 33, 0))

    assert f"model config ({method}) does not match" in str(text)


@pytest.mark.parametrize(("version", "is_refused"), [((0, 30, 0), False), ((0, 31, 0), True)])
def test_fp8_while_loading_is_refused_since_031(version, is_refused):
    assert (refused_choice("fp8", None, Version(*version)) is not None) is is_refused
