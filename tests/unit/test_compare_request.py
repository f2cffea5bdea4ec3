"""The Compare page's choices as a link: there and back, and nothing that no link of ours holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages.parts.compare_request import COUNTS, FIRST, KV_DTYPES, VIEWS, WEIGHTS, CompareInput, from_link, to_link
from planner.facts import PlanError
from planner.gpu_catalog import gpu_names
from planner.model_catalog import catalogue_ids


def _some(choices: tuple[object, ...]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(st.sampled_from(choices), max_size=5, unique=True).map(tuple)


INPUTS = st.builds(
    CompareInput,
    view=st.sampled_from(VIEWS),
    num_requests=st.integers(0, 10**9),
    has_all_models=st.booleans(),
    models=_some(catalogue_ids()),
    cards=_some(gpu_names()),
    counts=_some(COUNTS),
    kv_dtypes=_some(KV_DTYPES),
    weights=_some(WEIGHTS),
    prompt_p50=st.integers(0, 10**9),
    rate=st.integers(0, 9999).map(lambda number: number / 8),
)


@given(INPUTS)
def test_a_link_brings_the_choices_back(asked: CompareInput) -> None:
    text = to_link(asked)

    assert (FIRST if text is None else from_link(text)) == asked


def test_the_first_visit_needs_no_link() -> None:
    assert to_link(FIRST) is None


def test_a_link_holds_only_what_differs() -> None:
    assert to_link(replace(FIRST, num_requests=4, cards=("L4", "T4"))) == "num_requests!4~cards!L4|T4"


@pytest.mark.parametrize(
    "text",
    [
        "view!nonsense",
        "num_requests!1e9",
        "num_requests!-1",
        "num_requests!",
        "cards!A card that is not there",
        "counts!3",
        "models!../../etc/passwd",
        "unknown!1",
        "has_all_models!maybe",
        "rate!nan",
        "~",
        "x" * 9000,
    ],
)
def test_a_strange_link_is_refused(text: str) -> None:
    with pytest.raises(PlanError) as caught:
        from_link(text)

    assert caught.value.field == "fit"
