"""Whatever one key of a hybrid or multimodal config holds, reading it gives a model or one sentence that names the field."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

from factories import make_documents
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.facts import PlanError
from planner.model_config import read_model

CASES = Path(__file__).parents[1] / "golden" / "oracle_extra_hybrid.jsonl"
CONFIGS = [json.loads(line)["config"] for line in CASES.read_text(encoding="utf-8").splitlines()[1:]]
NONSENSE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**50, -(2**50), 10**30]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(st.one_of(st.integers(-2, 2), st.text(max_size=3), st.none()), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(-2, 2), max_size=2),
)


def _keys(config: dict[str, Any], before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in config.items():
        found.append((*before, key))
        if isinstance(value, dict):
            found += _keys(value, (*before, key))
    return found


def _with(config: dict[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    changed = deepcopy(config)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_one_bad_value_is_read_or_refused(data: st.DataObject) -> None:
    config = data.draw(st.sampled_from(CONFIGS))
    path = data.draw(st.sampled_from(_keys(config)))
    changed = _with(config, path, data.draw(NONSENSE))

    told = _told_of(changed)

    assert told == "" or (told.endswith(".") and "\n" not in told)


def _told_of(config: dict[str, Any]) -> str:
    """What the reader is told of the config; nothing when a model with layers came of it."""
    try:
        model = read_model(make_documents(config))
    except PlanError as error:
        return error.text
    return "" if model.layers else "no layers"
