"""Towers and language models put together: stages, modalities, ties and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from factories import make_documents, make_resolved

from planner.facts import PlanError
from planner.inventory import ModelFacts, Part
from planner.model_config import read_model
from planner.request import EngineFlags
from planner.weights import rank_weights

TEXT = {
    "model_type": "qwen3_vl_text",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "vocab_size": 1024,
    "rope_scaling": {"mrope_section": [12, 10, 10], "rope_type": "default"},
}
VISION = {
    "model_type": "qwen3_vl",
    "depth": 2,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_heads": 4,
    "num_position_embeddings": 64,
    "out_hidden_size": 256,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "in_channels": 3,
    "deepstack_visual_indexes": [0],
}
CONFIG: dict[str, Any] = {  # parsed JSON
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "text_config": TEXT,
    "vision_config": VISION,
}


def _model(config: dict[str, Any] = CONFIG, *, vllm_minor: int = 33) -> ModelFacts:
    return read_model(make_documents(config), vllm_minor=vllm_minor)


def _tower(model: ModelFacts) -> Part:
    return next(part for part in model.parts if part.modalities)


def test_the_tower_is_on_the_first_stage_since_033_and_on_every_one_before() -> None:
    assert _tower(_model(vllm_minor=33)).stage == "first"
    assert _tower(_model(vllm_minor=32)).stage == "every"


def test_the_rotary_cache_held_four_times_the_positions_before_032() -> None:
    old, new = (rank_weights(_model(vllm_minor=minor), make_resolved(), 0).buffer_bytes for minor in (31, 32))

    assert old - new == 3 * 4096 * 64 * 2


@pytest.mark.parametrize(
    "flags",
    [EngineFlags(language_model_only=True), EngineFlags(limit_mm_per_prompt=(("image", 0), ("video", 0)))],
    ids=["text only", "no pictures"],
)
def test_a_tower_without_any_input_is_not_built(flags: EngineFlags) -> None:
    whole = rank_weights(_model(), make_resolved(), 0)
    bare = rank_weights(_model(), make_resolved(flags=flags), 0)

    assert whole.parameter_bytes - bare.parameter_bytes == _tower_bytes()


def test_a_tower_is_built_while_one_of_its_inputs_may_come() -> None:
    flags = EngineFlags(limit_mm_per_prompt=(("image", 0),))

    assert rank_weights(_model(), make_resolved(flags=flags), 0) == rank_weights(_model(), make_resolved(), 0)


def _tower_bytes() -> int:
    hidden, wide, merged, out = 128, 256, 512, 256
    block = 4 * hidden + 3 * hidden * (hidden + 1) + hidden * (hidden + 1) + wide * (hidden + 1) + hidden * (wide + 1)
    patches, positions = hidden * 3 * 2 * 256 + hidden, 64 * hidden
    merger = merged * (merged + 1) + out * (merged + 1)
    return 2 * (patches + positions + 2 * block + 2 * hidden + merger + 2 * merged + merger)


def test_layers_have_the_names_of_the_multimodal_checkpoint() -> None:
    assert _model().layers[0].prefix == "model.language_model.layers.0"


@pytest.mark.parametrize(("is_tied", "copies"), [(True, 1), (False, 2)])
def test_the_root_says_whether_the_tables_are_tied(is_tied: bool, copies: int) -> None:
    model = _model(CONFIG | {"tie_word_embeddings": is_tied})
    weights = dict(rank_weights(model, make_resolved(), 0).by_role)

    assert weights["embedding"] + weights.get("head", 0) == copies * 1024 * 256 * 2


def test_an_unknown_language_model_is_refused_by_name() -> None:
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": TEXT | {"model_type": "strange"},
        "vision_config": {"model_type": "clip_vision_model"},
    }

    with pytest.raises(PlanError, match="strange"):
        _model(config)


def test_a_tower_that_llava_does_not_take_is_refused() -> None:
    config = json.loads(json.dumps(CONFIG)) | {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": TEXT | {"model_type": "llama"},
        "vision_config": {"model_type": "strange", "hidden_size": 64},
    }

    with pytest.raises(PlanError, match="strange"):
        _model(config)
