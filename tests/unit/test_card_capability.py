import pytest

from planner.quantization_choice import refused_capability
from planner.versions import Version

NEWEST = Version(0, 33, 0)


@pytest.mark.parametrize(
    ("method", "capability", "version", "is_refused"),
    [
        ("fp8", (7, 0), NEWEST, True),
        ("fp8", (7, 5), NEWEST, False),
        ("fp8", (7, 5), Version(0, 11, 0), True),
        ("awq", (7, 0), NEWEST, True),
        ("gptq", (6, 1), NEWEST, False),
        ("mxfp4", (7, 5), NEWEST, True),
        ("modelopt", (8, 0), NEWEST, False),
        ("modelopt", (8, 0), Version(0, 19, 0), True),
        ("fp8", None, NEWEST, False),
        (None, (7, 0), NEWEST, False),
    ],
)
def test_a_method_needs_a_card_new_enough_for_its_release(method, capability, version, is_refused):
    refusal = refused_capability(method, capability, version)

    assert (refusal is not None) == is_refused


def test_the_refusal_is_vllms_sentence():
    assert refused_capability("fp8", (7, 0), NEWEST) == (
        "The quantization method fp8 is not supported for the current GPU. Minimum capability: 75. Current capability: 70."
    )
