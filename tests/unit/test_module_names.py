from __future__ import annotations

import pytest

from planner.module_names import bare, is_engine_pattern, is_part, is_pattern, is_wild


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.3.mlp.down_proj",
        "language_model.model.layers.3.mlp.down_proj",
        "model.language_model.layers.3.mlp.down_proj",
        "layers.3.mlp.down_proj",
    ],
)
def test_names_are_compared_without_their_wrappers(name: str) -> None:
    assert bare(name) == "layers.3.mlp.down_proj"


def test_a_wildcard_meets_either_spelling() -> None:
    assert is_wild("model.layers.3.mlp.gate", ("language_model.model.layers.*.mlp.gate",))
    assert not is_wild("model.layers.3.mlp.gate_proj", ("model.layers.*.mlp.gate",))


def test_a_pattern_matches_from_the_start_of_the_name() -> None:
    assert is_pattern("model.layers.0.self_attn.q_proj", r".*self_attn.*")
    assert not is_pattern("model.layers.0.self_attn.q_proj", r"self_attn")


def test_a_broken_pattern_matches_nothing() -> None:
    assert not is_pattern("model.layers.0.mlp.up_proj", "(")


def test_a_part_of_a_name_is_enough_where_the_method_says_so() -> None:
    assert is_part("model.layers.0.self_attn.q_proj", ("self_attn",))


@pytest.mark.parametrize(
    ("name", "expression", "is_met"),
    [
        ("model.layers.0.mlp.down_proj", r"^model\.layers\.0\..*", True),
        ("language_model.model.layers.0.mlp.down_proj", r"^model\.layers\.0\..*", False),
        ("model.language_model.layers.0.mlp.down_proj", r"language_model\.model\.layers\.0\..*", True),
        ("model.language_model.layers.0.mlp.down_proj", r"model\.language_model\..*", False),
        ("model.visual.blocks.0.attn.qkv", "visual.*", True),
        ("model.layers.0.mlp.down_proj", "(", False),
    ],
)
def test_patterns_are_held_to_the_engines_own_names(name: str, expression: str, is_met: bool) -> None:
    assert is_engine_pattern(name, expression) is is_met
