"""Which encoder towers a rank builds, by release, flags and pipeline stage."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_resolved

from planner.encoder_activation import encoder_peak
from planner.inventory import ModelFacts
from planner.model_catalog import catalogue_documents
from planner.model_config import read_model
from planner.request import EngineFlags
from planner.weights import rank_weights

NO_PICTURES = (("image", 0), ("video", 0))


def _model(name: str = "Qwen/Qwen3.5-27B") -> ModelFacts:
    return read_model(catalogue_documents(name))


def has_tower(**changes: Any) -> bool:
    roles = dict(rank_weights(_model(), make_resolved(**changes), 0).by_role)
    return roles.get("vision", 0) > 0


@pytest.mark.parametrize(
    ("flags", "is_built"),
    [
        (EngineFlags(), True),
        (EngineFlags(language_model_only=True), False),
        (EngineFlags(limit_mm_per_prompt=NO_PICTURES), False),
        (EngineFlags(limit_mm_per_prompt=(("image", 0),)), True),
        (EngineFlags(limit_mm_per_prompt=(("image", 0), ("video", 1))), True),
        (EngineFlags(skip_mm_profiling=True), True),
    ],
)
def test_a_tower_is_left_out_when_no_prompt_may_feed_it(flags: EngineFlags, is_built: bool) -> None:
    assert has_tower(flags=flags) is is_built


def test_most_classes_built_their_tower_whatever_the_limits_up_to_0_14() -> None:
    flags = EngineFlags(limit_mm_per_prompt=NO_PICTURES)

    assert has_tower(flags=flags, version="0.14.0")
    assert not has_tower(flags=flags, version="0.19.0")


@pytest.mark.parametrize(
    "flags",
    [
        EngineFlags(skip_mm_profiling=True),
        EngineFlags(language_model_only=True),
        EngineFlags(limit_mm_per_prompt=(("image", 0), ("video", 0), ("audio", 0))),
    ],
)
def test_a_tower_that_is_not_profiled_has_no_activation(flags: EngineFlags) -> None:
    assert encoder_peak(_model(), make_resolved()) is not None
    assert encoder_peak(_model(), make_resolved(flags=flags)) is None
