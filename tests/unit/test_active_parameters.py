"""Active parameters against what the models' makers state."""

from __future__ import annotations

import pytest

from planner.active_parameters import active_parameters
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import PlanRequest


@pytest.mark.parametrize(
    ("model_id", "stated_billions"),
    [
        ("meta-llama/Llama-3.1-8B", 8.03 - 0.525),  # all but the input embedding, 128,256 × 4,096
        ("Qwen/Qwen3-30B-A3B", 3.3 - 0.31),  # stated with the embedding, 151,936 × 2,048
        ("deepseek-ai/DeepSeek-V3", 37.0),
    ],
)
def test_active_parameters_are_the_stated_ones(model_id: str, stated_billions: float) -> None:
    model = facts_for(PlanRequest(model_id=model_id, gpu="H100 80GB SXM"), catalogue_documents(model_id))

    assert active_parameters(model) / 1e9 == pytest.approx(stated_billions, rel=0.025)
