"""What KV events add up to, as a recording keeps it: counts, eviction ages, the shape of the prefix tree."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec
import pytest
from fakes.kv_event_publisher import Publisher, removed_map, stored_map

from live.cache_summary import (
    SUMMARY_KIND,
    CacheSummaryError,
    EvictionAges,
    PrefixRun,
    decode_summary,
    encode_summary,
    summarize,
)
from live.cached_blocks import CachedBlocks
from live.kv_event_frames import decode_batch
from live.kv_events import KvEventEndpoints
from live.kv_events_beside import KvEventsBeside
from live.recorder import Extras


def cache_of(*batches: tuple[float, list[object]]) -> CachedBlocks:
    cache = CachedBlocks()
    for at, events in batches:
        cache.apply(decode_batch(0, msgspec.msgpack.encode([at, events])))
    return cache


def test_a_tree_is_summed_up_by_its_runs() -> None:
    cache = cache_of(
        (1.0, [stored_map([1, 2], None), stored_map([3, 4], 2), stored_map([5], 2), stored_map([9], 77)]),
    )

    (place,) = summarize(cache).places

    assert (place.group, place.medium, place.num_blocks, place.num_tokens) == (0, "GPU", 6, 96)
    assert place.tree is not None
    assert (place.tree.num_prefixes, place.tree.num_detached, place.tree.num_runs) == (1, 1, 4)
    assert place.tree.deepest_tokens == 64
    assert place.tree.runs[0] == PrefixRun(num_blocks=2, num_tokens=32, depth_blocks=0, num_branches=2)
    assert place.ages is None


def test_eviction_ages_are_their_median_and_ends() -> None:
    cache = cache_of(
        (1.0, [stored_map([1, 2, 3], None)]),
        (3.0, [removed_map([3])]),
        (5.0, [removed_map([2])]),
        (11.0, [removed_map([1])]),
    )

    assert summarize(cache).places[0].ages == EvictionAges(
        num_evicted=3, median_seconds=4.0, shortest_seconds=2.0, longest_seconds=10.0
    )


def test_a_summary_outlives_the_way_into_a_recording() -> None:
    summary = summarize(cache_of((1.0, [stored_map([1, 2], None)]), (2.0, [removed_map([2])])))

    assert decode_summary(encode_summary(summary)) == summary


@pytest.mark.parametrize("payload", [b"", b"no summary", b"\xff" * 3_000_000])
def test_what_is_no_summary_is_refused(payload: bytes) -> None:
    with pytest.raises(CacheSummaryError):
        decode_summary(payload)


def heard(beside: KvEventsBeside, seconds: float = 5.0) -> Extras:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = beside.sample()
        if found.frames:
            return found
        time.sleep(0.02)
    raise AssertionError("no event was heard")


def counted(beside: KvEventsBeside, num_batches: int, seconds: float = 10.0) -> Mapping[str, float]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        numbers = beside.sample().numbers
        if numbers.get(f"{SUMMARY_KIND}/num_batches") == num_batches:
            return numbers
        time.sleep(0.02)
    raise AssertionError(f"{num_batches} batches were not heard")


def test_events_are_recorded_beside_the_metrics() -> None:
    with Publisher() as publisher:
        beside = KvEventsBeside(
            KvEventEndpoints(endpoint=publisher.endpoint, replay_endpoint=publisher.replay_endpoint)
        )
        assert beside.sample() == Extras()
        assert "No KV events have come" in beside.text
        for number in range(100):
            publisher.publish([stored_map([number], None)])
            time.sleep(0.01)
        numbers = counted(beside, 100)
        beside.close()

    assert numbers[f"{SUMMARY_KIND}/num_copies/0/GPU"] == 100  # the first ones were missed and asked for again
    assert beside.text == ""


def test_a_replay_endpoint_that_is_silent_holds_up_no_tick() -> None:
    with Publisher() as publisher:
        silent = KvEventEndpoints(endpoint=publisher.endpoint, replay_endpoint="tcp://127.0.0.1:1")
        publisher.publish([stored_map([0], None)])  # before anybody listens
        beside = KvEventsBeside(silent)
        time.sleep(0.2)
        publisher.publish([stored_map([1], None)])
        longest, end = 0.0, time.monotonic() + 5.0
        while time.monotonic() < end and not beside.text.startswith("KV events of"):
            begun = time.monotonic()
            beside.sample()
            longest = max(longest, time.monotonic() - begun)
            time.sleep(0.02)
        beside.close()

    assert "were missed" in beside.text
    assert longest < 0.5  # the replay was waited for a second


def test_a_summary_comes_only_where_something_changed() -> None:
    now = [100.0]
    with Publisher() as publisher:
        beside = KvEventsBeside(
            KvEventEndpoints(endpoint=publisher.endpoint, replay_endpoint=publisher.replay_endpoint),
            clock=lambda: now[0],
        )
        time.sleep(0.2)
        publisher.publish([stored_map([1], None)])
        ((kind, payload),) = heard(beside).frames
        now[0] = 200.0

        again = beside.sample()
        beside.close()

    assert kind == SUMMARY_KIND
    assert decode_summary(payload).places[0].num_blocks == 1
    assert again.frames == ()
