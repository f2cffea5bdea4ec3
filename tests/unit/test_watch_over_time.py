"""What readers of one recorder share of its charts, and what makes one reader's another than the other's."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from live.shared import Shared
from live.watched import Watched
from pages.parts import watch_over_time, watch_state
from pages.parts.watch_seen import Seen


def seen(known: object = None) -> Seen:
    found: Any = SimpleNamespace(
        status=SimpleNamespace(moment=("ok", 1, 1)),
        sample=SimpleNamespace(identity="engine 0", cache_config=None),
        plan=None,
        known=known,
    )
    return cast("Seen", found)


def test_readers_who_know_the_load_and_who_do_not_see_their_own_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = cast("Watched", SimpleNamespace(shared=Shared(), marks=lambda _: ()))
    numbers = count()
    monkeypatch.setattr(watch_over_time, "_made", lambda *_: next(numbers))
    monkeypatch.setattr(watch_over_time, "language", lambda: "en")
    monkeypatch.setattr(watch_state, "value", lambda _: 5)
    known = SimpleNamespace(name="demo", start_ms=1000)

    readers = (seen(), seen(known), seen(), seen(known))
    drawn: list[object] = [watch_over_time._shared(watched, reader, 1000) for reader in readers]

    assert drawn == [0, 1, 0, 1]


def test_a_note_is_drawn_within_the_moment_in_which_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    marks: list[str] = []
    watched = cast("Watched", SimpleNamespace(shared=Shared(), marks=lambda _: tuple(marks)))
    monkeypatch.setattr(watch_over_time, "_made", lambda *given: given[3])
    monkeypatch.setattr(watch_over_time, "language", lambda: "en")
    monkeypatch.setattr(watch_state, "value", lambda _: 5)

    before: object = watch_over_time._shared(watched, seen(), 1000)
    marks.append("changed max_num_seqs")
    after: object = watch_over_time._shared(watched, seen(), 1000)

    assert [before, after] == [(), ("changed max_num_seqs",)]
