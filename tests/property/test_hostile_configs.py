"""Whatever stands in a config.json, reading and sizing it ends in facts or in one `PlanError`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories import CATALOGUE, make_documents, make_resolved
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.answer import RankWeights
from planner.facts import PlanError
from planner.model_config import read_model
from planner.plan_json import to_json
from planner.planning import answer
from planner.request import PlanRequest
from planner.weights import rank_weights

MODELS = sorted(CATALOGUE.glob("*.json"))
NONSENSE = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2, 3, 7, 10**9, 10**30, 0.5, -2.5, 1e308, float("nan"), float("inf")]),
    st.sampled_from(["", "32", "auto", "yarn", "fp8", "re:(", "Linear", "model.layers.0"]),
    st.lists(st.sampled_from([0, 1, "full_attention", None, {}]), max_size=3),
    st.dictionaries(st.sampled_from(["rope_type", "factor", "quant_method", "bits", "x"]), st.just(0), max_size=2),
)


def _config(path: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")).get("config") or {}
    return config


def _paths(value: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return [prefix]
    return [prefix, *(path for key, inner in value.items() for path in _paths(inner, (*prefix, key)))]


def _replaced(config: dict[str, Any], path: tuple[str, ...], value: Any, *, drop: bool) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(config))
    here = copy
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    if drop:
        del here[path[-1]]
    return copy


@st.composite
def _broken_configs(draw: st.DrawFn) -> dict[str, Any]:
    config = _config(draw(st.sampled_from(MODELS)))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([path for path in _paths(config) if path] or [("model_type",)]))
        config = _replaced(config, path, draw(NONSENSE), drop=draw(st.booleans()))
    return config


def _outcome(config: dict[str, Any], tp: int) -> RankWeights | PlanError:
    try:
        return rank_weights(read_model(make_documents(config)), make_resolved(tp=tp), 0)
    except PlanError as error:
        return error


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=_broken_configs(), tp=st.sampled_from([1, 2, 3, 8]))
def test_a_broken_config_is_sized_or_refused_in_one_sentence(config: dict[str, Any], tp: int) -> None:
    outcome = _outcome(config, tp)

    if isinstance(outcome, PlanError):
        assert outcome.field
        assert "\n" not in str(outcome)
    else:
        assert 0 <= outcome.load.low_bytes <= outcome.load.best_bytes <= outcome.load.high_bytes


@settings(max_examples=60, deadline=None)
@given(text=st.one_of(st.text(max_size=40), st.sampled_from(["[" * 100_000, "{}", "[]", "1", "null", '{"a":' * 9_000])))
def test_a_text_that_is_no_config_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(PlanError) as caught:
        read_model(make_documents({}, config_json=text))

    assert "\n" not in str(caught.value)


def _written(config: dict[str, Any], release: str) -> str:
    """The answer as strict JSON, or the refusal's sentence."""
    request = PlanRequest(model_id="m", gpu="H100 80GB SXM", vllm_version=release)
    try:
        return json.dumps(to_json(*answer(request, make_documents(config))), allow_nan=False)
    except PlanError as error:
        return error.text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=_broken_configs(), release=st.sampled_from(["0.6.6", "0.11.0", "0.19.0", "0.33.0"]))
def test_a_config_ends_in_a_plan_or_in_one_sentence(config: dict[str, Any], release: str) -> None:
    written = _written(config, release)

    assert "\n" not in written


@pytest.mark.parametrize(
    ("model", "path", "value", "said"),
    [
        ("ibm-granite--granite-4.0-h-tiny", ("num_attention_heads",), 10**12, "more than hidden_size"),
        (
            "moonshotai--Kimi-K3",
            ("text_config", "linear_attn_config", "full_attn_layers"),
            [{}],
            "a list of whole numbers",
        ),
    ],
)
def test_nonsense_in_hybrids_is_refused_by_name(model: str, path: tuple[str, ...], value: object, said: str) -> None:
    config = _replaced(_config(CATALOGUE / f"{model}.json"), path, value, drop=False)

    with pytest.raises(PlanError, match=said) as refusal:
        answer(PlanRequest(model_id="m", gpu="H100 80GB SXM"), make_documents(config))

    assert refusal.value.field == ".".join(path)
