"""A cache that vLLM refuses makes the whole plan a refusal."""

from __future__ import annotations

import pytest
from factories import CATALOGUE, documents_for

from planner import budget
from planner.model_config import read_model
from planner.request import EngineFlags, PlanRequest


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (EngineFlags(kv_cache_dtype="nvfp4"), "kv-dtype-refused"),
        (EngineFlags(disable_hybrid_kv_cache_manager=True), "kv-manager-needed"),
    ],
)
def test_refused_cache_does_not_start(flags: EngineFlags, code: str) -> None:
    model = read_model(documents_for(CATALOGUE / "Qwen--Qwen3.5-9B.json"))
    request = PlanRequest(model_id=model.model_id, gpu="H100", flags=flags)

    made = budget.plan(request, model)

    assert not made.will_start
    assert code in {finding.code for finding in made.findings}
