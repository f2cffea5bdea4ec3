"""A configuration of nonsensical sizes: the matrix refuses what the plan refuses, and overflows nowhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.gpu_catalog import find_gpu
from planner.matrix import MatrixQuestion, Split, sheet
from planner.model_catalog import catalogue_documents
from planner.model_folder import config_documents
from planner.planning import answer
from planner.request import EngineFlags, PlanRequest

LLAVA = "llava-hf/llava-v1.6-mistral-7b-hf"


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("", {"image_grid_pinpoints": [[10**30, 10**30]]}),
        ("vision_config", {"image_size": 2**40, "patch_size": 1}),
        ("text_config", {"hidden_size": 2**39, "vocab_size": 2**39}),
    ],
)
def test_sizes_beyond_an_integer_are_too_large_for_any_card(part: str, changes: dict[str, Any]) -> None:
    config = json.loads(catalogue_documents(LLAVA).config_json)
    (config[part] if part else config).update(changes)
    request = PlanRequest(model_id=LLAVA, gpu="L4", flags=EngineFlags(max_model_len=4096))
    plan, model = answer(request, config_documents(json.dumps(config), LLAVA))
    one = Split(tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1)

    cells = sheet(MatrixQuestion(request=request, gpus=(find_gpu("L4"),), splits=(one,), kv_dtypes=("auto",)), model)

    assert not plan.will_start
    assert cells.stop((0, 0, 0)) in {"weights", "no_room"}
