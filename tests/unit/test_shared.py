"""What readers share: made once for a key, again for another, never kept when making failed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from live.shared import Shared


def test_a_value_is_made_once_for_its_key() -> None:
    shared, numbers = Shared(), count()

    assert [shared.once(("window", 60), lambda: next(numbers)) for _ in range(3)] == [0, 0, 0]
    assert shared.once(("window", 300), lambda: next(numbers)) == 1


def test_twenty_readers_at_once_have_it_made_once() -> None:
    shared, numbers = Shared(), count()

    with ThreadPoolExecutor(20) as readers:
        found = list(readers.map(lambda _: shared.once("tick 1", lambda: next(numbers)), range(200)))

    assert set(found) == {0}


def test_what_failed_is_tried_again() -> None:
    shared = Shared()

    def fail() -> int:
        raise ValueError("no window")

    with pytest.raises(ValueError, match="no window"):
        shared.once("tick 1", fail)

    assert shared.once("tick 1", lambda: 5) == 5


def test_the_oldest_value_goes_first() -> None:
    shared, numbers = Shared(most_kept=2), count()

    for key in ("a", "b", "a", "c"):
        shared.once(key, lambda: next(numbers))

    assert shared.once("a", lambda: next(numbers)) == 0
    assert shared.once("b", lambda: next(numbers)) == 3


def test_what_is_made_may_ask_for_another() -> None:
    shared = Shared()

    assert shared.once("figure", lambda: shared.once("window", lambda: 1) + 1) == 2
