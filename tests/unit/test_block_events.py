"""Events in words."""

from __future__ import annotations

import pytest

from planner.block_events import BlockEvent, blocks_in_words, ranges


def event(kind, **values):
    return BlockEvent(step=1, kind=kind, request_id="r3", **values)


def test_blocks_become_ranges():
    assert ranges([7, 4, 5, 9, 5]) == ((4, 5), (7, 7), (9, 9))


def test_many_ranges_are_shortened():
    assert blocks_in_words(ranges(range(0, 20, 2))) == "blocks 0, 2, 4, 6 and 6 more ranges"
    assert blocks_in_words(((7, 7),)) == "block 7"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (event("arrived", num_tokens=1200), "r3 arrives with 1,200 prompt tokens"),
        (event("admitted", num_blocks=1), "r3 starts with 1 block"),
        (event("admitted", num_blocks=4, num_tokens=32), "r3 starts with 4 blocks, 32 tokens found in the cache"),
        (event("resumed", num_blocks=4), "r3 resumes with 4 blocks, all to recompute"),
        (event("resumed", num_blocks=4, num_tokens=16), "r3 resumes with 4 blocks, 16 tokens found in the cache"),
        (event("shared", blocks=((4, 9),), other_request_id="r1"), "r3 shares blocks 4–9 with r1"),
        (event("shared", blocks=((4, 4),)), "r3 takes cached block 4 back into use"),
        (event("preempted", num_blocks=12, num_kept=9), "r3 preempted: 12 blocks freed, 9 still cached"),
        (event("finished", num_blocks=2), "r3 finished: 2 blocks freed"),
        (event("evicted", num_blocks=2, blocks=((1, 2),)), "2 cached blocks evicted for reuse: blocks 1–2"),
    ],
)
def test_an_event_is_one_sentence(told, text):
    assert told.text == text
