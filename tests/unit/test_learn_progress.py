"""Progress files: what was saved comes back, and nothing else is taken."""

from __future__ import annotations

import json

import pytest

from pages.parts.learn_lesson import Attempt
from pages.parts.learn_progress import from_json, to_json
from pages.parts.learn_state import SLUGS
from planner.facts import PlanError

ATTEMPTS = {
    "weights": Attempt(num_tries=3, is_solved=True, used_hint=True, last_given=24.3),
    "token": Attempt(num_tries=2, saw_answer=True, last_given=512.0),
}


def test_saved_progress_comes_back() -> None:
    assert from_json(to_json(ATTEMPTS).encode(), SLUGS) == ATTEMPTS


def test_lesson_that_we_do_not_have_is_left_out() -> None:
    record = to_json(ATTEMPTS | {"gone": Attempt()})

    assert from_json(record.encode(), SLUGS) == ATTEMPTS


@pytest.mark.parametrize(
    "change", [{"num_tries": -1}, {"num_tries": True}, {"is_solved": "yes"}, {"last_given": "<b>"}]
)
def test_row_of_another_kind_is_refused(change: dict[str, object]) -> None:
    record = json.loads(to_json(ATTEMPTS))
    record["lessons"][0] |= change

    with pytest.raises(PlanError, match="no progress file"):
        from_json(json.dumps(record).encode(), SLUGS)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b"null", b"\xff\xfe", b'{"lessons": 1}', b'{"lessons": [{}]}', b"[" * 50_000, b" " * 70_000],
)
def test_other_file_is_refused(text: bytes) -> None:
    with pytest.raises(PlanError, match="no progress file"):
        from_json(text, SLUGS)


def test_answer_that_is_no_number_is_refused() -> None:
    text = to_json(ATTEMPTS).replace("24.3", "NaN")

    with pytest.raises(PlanError, match="no progress file"):
        from_json(text.encode(), SLUGS)
