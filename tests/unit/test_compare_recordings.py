"""Two recordings on one grid of time since their starts."""

from __future__ import annotations

import numpy as np
import pytest

from live.compare_recordings import Chosen, align, engine_keys, increase, means
from live.recording import Recording
from live.store import About, Store
from planner.facts import PlanError


def recorded(path, start_ms: int, key: str, usage: list[float], tokens: list[float]) -> Recording:
    store = Store.create(path, About(source="x"))
    for tick, (share, count) in enumerate(zip(usage, tokens, strict=True)):
        numbers = {f"{key}/kv_usage_fraction": share, f"{key}/generation_tokens": count, "gpu0/used_bytes": 1.0}
        store.append(start_ms + 1000 * tick, numbers, "")
    store.close()
    return Recording.open(path)


@pytest.fixture
def pair(tmp_path):
    first = recorded(tmp_path / "a.kvscope", 1_000_000, "a#0", [0.1, 0.3, 0.5, 0.7], [100, 110, 5, 15])
    second = recorded(tmp_path / "b.kvscope", 9_000_500, "b#0", [0.2, 0.4], [7, 9])
    return first, second


def test_both_begin_at_zero_and_the_shorter_one_ends(pair):
    aligned = align(Chosen(recording=pair[0], engine="a#0"), Chosen(recording=pair[1], engine="b#0"))

    assert aligned.seconds.tolist() == [0, 2]
    assert aligned.first["kv_usage_fraction"].tolist() == pytest.approx([0.2, 0.6])
    assert aligned.second["kv_usage_fraction"].tolist() == pytest.approx([0.3, np.nan], nan_ok=True)


def test_counters_are_what_was_added_through_a_restart(pair):
    aligned = align(Chosen(recording=pair[0], engine="a#0"), Chosen(recording=pair[1], engine="b#0"))

    assert aligned.first["generation_tokens"].tolist() == [5.0, 20.0]
    assert aligned.fields == ("kv_usage_fraction", "generation_tokens")


def test_a_start_can_be_chosen(pair):
    chosen = Chosen(recording=pair[0], engine="a#0", start_ms=1_002_000)

    aligned = align(chosen, Chosen(recording=pair[1], engine="b#0"), ("kv_usage_fraction",))

    assert aligned.first["kv_usage_fraction"][0] == pytest.approx(0.6)


def test_engines_are_found_by_their_series(pair):
    assert engine_keys(pair[0]) == ("a#0",)


def test_an_engine_that_is_not_there_is_refused(pair):
    with pytest.raises(PlanError, match="a#0"):
        align(Chosen(recording=pair[0], engine="c#0"), Chosen(recording=pair[1], engine="b#0"))


def test_increase_counts_through_holes_and_restarts():
    assert increase(np.array([np.nan, 5, np.nan, 8, 2, 3])).tolist() == pytest.approx(
        [np.nan, 0, np.nan, 3, 5, 6], nan_ok=True
    )
    assert np.isnan(increase(np.full(3, np.nan))).all()


def test_means_leave_out_what_is_outside():
    found = means(np.array([0, 10, 19, 40]), np.array([1.0, 2, 4, 8]), 10, 10, 2)

    assert found.tolist() == pytest.approx([3.0, np.nan], nan_ok=True)
