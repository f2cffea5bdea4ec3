"""The card's part of the form: whose power limit is taken where a machine has cards of several kinds."""

from __future__ import annotations

import pytest

from live.nvml import DetectedGpu
from pages.parts.card_input import _power_limit_watts


def card(name: str, watts: int | None) -> DetectedGpu:
    return DetectedGpu(
        index=0,
        name=name,
        total_bytes=2**35,
        used_bytes=0,
        free_bytes=2**35,
        reserved_bytes=None,
        compute_capability=None,
        is_mig_enabled=False,
        processes=(),
        power_limit_watts=watts,
    )


@pytest.mark.parametrize(
    ("gpus", "watts"),
    [
        ((card("NVIDIA L4", 72), card("NVIDIA L4", 60)), 72),
        ((card("NVIDIA L4", 72), card("NVIDIA GeForce RTX 4090", 450)), 72),
        ((card("NVIDIA L4", 72), card("NVIDIA GeForce RTX 4090", None)), 72),
        ((card("NVIDIA L4", 72), card("NVIDIA L4", None)), None),
    ],
)
def test_the_limit_is_of_the_cards_as_the_first(gpus: tuple[DetectedGpu, ...], watts: int | None) -> None:
    assert _power_limit_watts(gpus) == watts
