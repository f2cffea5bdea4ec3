"""Which block a full tier drops."""

from __future__ import annotations

import pytest

from planner.eviction import make_store


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_a_tier_without_room_passes_everything_on(policy):
    store = make_store(policy, 0)

    assert store.put(5) == 5
    assert len(store) == 0


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_no_tier_holds_more_than_its_room(policy):
    store = make_store(policy, 3)

    dropped = [store.put(content) for content in (1, 2, 3, 4, 2, 5, 1, 6, 4, 1)]

    assert len(store) == 3
    assert all(gone is None or gone not in store or gone in (1, 2, 4) for gone in dropped)


def test_arc_takes_a_lost_content_back_as_wanted_again():
    store = make_store("arc", 4)
    for content in (1, 2, 3, 4):
        store.put(content)
    assert store.put(5) == 1

    store.put(1)  # lost a moment ago: it is held among those wanted again
    for content in range(10, 14):
        store.put(content)

    assert 1 in store


def test_arc_learns_from_what_it_lost_among_the_wanted_again():
    store = make_store("arc", 2)
    for content in (1, 2):
        store.put(content)
        store.use(content)
    store.put(3)  # drops 1 of those wanted again
    assert 1 not in store

    store.put(1)

    assert 1 in store
    assert len(store) == 2


def test_arc_put_of_a_held_content_only_uses_it():
    store = make_store("arc", 2)
    store.put(1)

    assert store.put(1) is None
    assert len(store) == 1
