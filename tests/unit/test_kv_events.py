"""KV events from real ZMQ sockets on loopback: both wire forms, gaps, replay, restarts, and the cache they describe."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from fakes.kv_event_publisher import Publisher, removed_map, stored_array, stored_map

from live.cached_blocks import CachedBlocks
from live.kv_event_frames import AllCleared, BlocksRemoved, BlocksStored, FrameError, KvEventBatch, decode_batch
from live.kv_events import KvEventEndpoints, KvEventPoll, KvEventReader, reachable_endpoint
from planner.facts import PlanError

SAVED = Path(__file__).parents[2].parent / "shared/groundtruth/logs/kvevents-llmd-two-blockstored.jsonl.txt"


def batch(*events: object, at: float = 1.0) -> KvEventBatch:
    return decode_batch(0, msgspec.msgpack.encode([at, list(events)]))


def cache_of(*batches: KvEventBatch) -> CachedBlocks:
    cache = CachedBlocks()
    cache.take(KvEventPoll(batches=batches))
    return cache


# -- frames ---------------------------------------------------------------------------------------------------------------


def test_both_wire_forms_give_the_same_event():
    array = stored_array([1, 2], 9, None, None, 3, "sliding_window", 1024, "LOCAL")
    as_map = stored_map([1, 2], 9, group_idx=3, kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=1024)

    assert batch(array).events == batch(as_map).events
    assert batch(as_map).events == (
        BlocksStored(
            block_hashes=(1, 2),
            parent_block_hash=9,
            num_tokens=32,
            block_size=16,
            medium="GPU",
            group=3,
            spec_kind="sliding_window",
            sliding_window=1024,
        ),
    )


def test_left_out_defaults_are_absent():
    (event,) = batch(stored_array([b"\x01" * 32])).events

    assert (event.block_hashes, event.group, event.spec_kind) == ((b"\x01" * 32,), None, None)


def test_removals_and_resets_are_read_in_both_forms():
    events = batch(
        ["BlockRemoved", [1], "CPU", 2], removed_map([1]), ["AllBlocksCleared"], {"type": "AllBlocksCleared"}
    )

    assert events.events == (
        BlocksRemoved(block_hashes=(1,), medium="CPU", group=2),
        BlocksRemoved(block_hashes=(1,), medium="GPU", group=None),
        AllCleared(),
        AllCleared(),
    )


def test_events_of_an_unknown_kind_are_counted():
    found = batch({"type": "BlockTeleported"}, ["BlockMoved", 1], {"no": "tag"}, stored_map([1]))

    assert (len(found.events), found.num_unknown) == (1, 3)


def test_hashes_keep_all_their_64_bits():
    (event,) = batch(stored_map([2**64 - 1, 2**53 + 1])).events

    assert event.block_hashes == (2**64 - 1, 2**53 + 1)


@pytest.mark.parametrize(
    "document",
    [
        3,
        [],
        [1.0],
        [1.0, 2],
        ["now", []],
        [1.0, [3]],
        [1.0, [[]]],
        [1.0, [{"type": "BlockStored"}]],
        [1.0, [{"type": "BlockStored", "block_hashes": ["a"]}]],
        [1.0, [{"type": "BlockRemoved", "block_hashes": [True]}]],
    ],
)
def test_what_is_no_batch_is_an_error(document):
    with pytest.raises(FrameError):
        decode_batch(0, msgspec.msgpack.encode(document))


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x91" * 5000, b"\x00" * (64 * 2**20 + 1)])
def test_bytes_that_are_no_msgpack_are_an_error(payload):
    with pytest.raises(FrameError):
        decode_batch(0, payload)


def test_a_saved_pair_of_real_events_keeps_its_hashes():
    if not SAVED.exists() and os.environ.get("CI") != "true":
        pytest.skip("the checkout has no shared folder beside it")
    records = [json.loads(line) for line in SAVED.read_text().splitlines() if line.startswith("{")]
    events = [
        stored_map(
            one["block_hashes"], one["parent_block_hash"], token_ids=one["token_ids"], lora_name=one["lora_name"]
        )
        for one in records
    ]

    found = batch(*events)

    (count,) = cache_of(found).counts()
    assert [(len(event.block_hashes), event.num_tokens, event.lora_name) for event in found.events] == [
        (25, 400, None),
        (25, 400, "Alice"),
    ]
    assert (count.num_blocks, count.num_tokens) == (50, 800)


# -- sockets --------------------------------------------------------------------------------------------------------------


@contextmanager
def opened(publisher: Publisher, *, replay: bool = True, topic: str = "") -> Iterator[KvEventReader]:
    replay_endpoint = publisher.replay_endpoint if replay else None
    endpoints = KvEventEndpoints(endpoint=publisher.endpoint, replay_endpoint=replay_endpoint, topic=topic)
    with KvEventReader(endpoints=endpoints) as reader:
        greet(publisher, reader, topic)
        yield reader


def greet(publisher: Publisher, reader: KvEventReader, topic: str) -> None:
    """Waits until the subscription stands: a message that is no batch arrives."""
    for _ in range(200):
        publisher.send(b"hello", b"")
        if reader.poll(0.02).num_broken:
            while reader.poll(0.02).num_broken:
                pass
            return
    raise AssertionError(f"no subscription to {topic!r}")


def drain(reader: KvEventReader, number: int) -> list[KvEventPoll]:
    """Polls until `number` batches came."""
    polls = []
    for _ in range(100):
        polls.append(reader.poll(0.1))
        if sum(len(poll.batches) for poll in polls) >= number:
            break
    return polls


def sequences(polls: list[KvEventPoll]) -> list[int]:
    return [one.sequence for poll in polls for one in poll.batches]


def test_batches_arrive_in_order_with_their_rank():
    with Publisher() as publisher, opened(publisher) as reader:
        publisher.publish([stored_map([1])], rank=3)
        publisher.publish([removed_map([1])], rank=None)
        polls = drain(reader, 2)

    assert sequences(polls) == [0, 1]
    assert [one.data_parallel_rank for poll in polls for one in poll.batches] == [3, None]
    assert publisher.num_requests == 0


@pytest.mark.parametrize("has_topic", [True, False])
def test_a_gap_is_filled_from_the_replay_endpoint(has_topic):
    with Publisher(has_topic_in_replay=has_topic, topic="kv") as publisher, opened(publisher, topic="kv") as reader:
        publisher.publish([stored_map([1])])
        drain(reader, 1)
        publisher.publish([stored_map([2])], is_lost=True)
        publisher.publish([stored_map([3])], is_lost=True)
        publisher.publish([stored_map([4])])
        polls = drain(reader, 3)

    assert sequences(polls) == [1, 2, 3]
    assert [(poll.num_replayed, poll.num_lost) for poll in polls if poll.batches] == [(2, 0)]


def test_a_gap_without_replay_is_counted_as_lost():
    with Publisher() as publisher, opened(publisher, replay=False) as reader:
        publisher.publish([stored_map([1])])
        publisher.publish([stored_map([2])], is_lost=True)
        publisher.publish([stored_map([3])])
        polls = drain(reader, 2)

    cache = CachedBlocks()
    for poll in polls:
        cache.take(poll)
    assert sequences(polls) == [0, 2]
    assert sum(poll.num_lost for poll in polls) == 1
    assert not cache.is_complete


def test_a_buffer_that_is_too_short_gives_what_it_has():
    with Publisher(buffer_steps=2) as publisher, opened(publisher) as reader:
        for number in range(4):
            publisher.publish([stored_map([number])], is_lost=True)
        publisher.publish([stored_map([9])])
        polls = drain(reader, 2)

    assert sequences(polls) == [3, 4]
    assert sum(poll.num_lost for poll in polls) == 3


def test_a_late_subscriber_asks_for_the_start():
    with Publisher() as publisher:
        publisher.publish([stored_map([1])])
        publisher.publish([stored_map([2])])
        with opened(publisher) as reader:
            publisher.publish([stored_map([3])])
            polls = drain(reader, 3)

    assert sequences(polls) == [0, 1, 2]


def test_a_replay_ahead_of_the_subscription_brings_nothing_twice():
    with Publisher() as publisher, opened(publisher) as reader:
        publisher.publish([stored_map([1])], at=1.0, is_lost=True)
        publisher.publish([stored_map([2])], at=2.0)
        polls = drain(reader, 2)
        publisher.send((1).to_bytes(8, "big"), msgspec.msgpack.encode([2.0, []]))
        publisher.publish([stored_map([3])], at=3.0)
        polls += drain(reader, 1)

    assert sequences(polls) == [0, 1, 2]


def test_a_publisher_that_starts_anew_empties_the_cache():
    cache = CachedBlocks()
    with Publisher() as publisher, opened(publisher, replay=False) as reader:
        publisher.publish([stored_map([1, 2])], at=1.0)
        publisher.publish([stored_map([3])], at=2.0)
        for poll in drain(reader, 2):
            cache.take(poll)
        publisher.sequence = 0
        publisher.publish([stored_map([7])], at=3.0)
        (poll,) = [poll for poll in drain(reader, 1) if poll.batches]
        cache.take(poll)

    assert poll.is_restart
    assert cache.hashes() == {7}
    assert cache.is_complete


def test_a_replay_endpoint_that_is_dead_costs_a_second_and_is_lost():
    endpoints = KvEventEndpoints(endpoint="tcp://*:1", replay_endpoint="tcp://127.0.0.1:1")
    reader = KvEventReader(endpoints=endpoints)
    message = [b"", (1).to_bytes(8, "big"), msgspec.msgpack.encode([1.0, []])]

    poll = reader._ordered([message])

    assert (poll.num_lost, len(poll.batches)) == (1, 1)


def test_a_closed_subscription_cannot_be_polled():
    with pytest.raises(RuntimeError, match="not open"):
        KvEventReader(endpoints=KvEventEndpoints()).poll()


@pytest.mark.parametrize(
    ("endpoint", "rank", "reachable"),
    [
        ("tcp://*:5557", 0, "tcp://127.0.0.1:5557"),
        ("tcp://*:5557", 3, "tcp://127.0.0.1:5560"),
        ("tcp://localhost:5557", 1, "tcp://127.0.0.1:5558"),
        ("tcp://[::1]:5557", 0, "tcp://[::1]:5557"),
    ],
)
def test_an_endpoint_names_its_ranks_port(endpoint, rank, reachable):
    assert reachable_endpoint(endpoint, rank, ()) == reachable


@pytest.mark.parametrize(
    "endpoint", ["", "ipc:///tmp/x", "tcp://*", "tcp://*:99999", "tcp://10.0.0.7:5557", "tcp://*:0"]
)
def test_an_endpoint_that_may_not_be_read_is_refused(endpoint):
    with pytest.raises(PlanError):
        KvEventReader(endpoints=KvEventEndpoints(endpoint=endpoint), allowed=()).open()


def test_an_allowed_host_that_is_not_known_is_said():
    with pytest.raises(PlanError, match="not known"):
        reachable_endpoint("tcp://gpu1.invalid:5557", 0, ("gpu1.invalid",))


# -- the cache ------------------------------------------------------------------------------------------------------------


def test_blocks_are_counted_by_group_and_medium():
    counts = cache_of(
        batch(
            stored_map([1, 2], group_idx=0, kv_cache_spec_kind="full_attention"),
            stored_map([1], group_idx=1),
            stored_map([1], medium="CPU"),
        )
    ).counts()

    assert [(one.group, one.medium, one.num_blocks, one.num_tokens, one.spec_kind) for one in counts] == [
        (0, "CPU", 1, 16, None),
        (0, "GPU", 2, 32, "full_attention"),
        (1, "GPU", 1, 16, None),
    ]


def test_equal_blocks_on_the_card_stay_until_the_last_one_goes():
    cache = cache_of(batch(stored_map([1])), batch(stored_map([1])), batch(removed_map([1])))

    (count,) = cache.counts()
    cache.apply(batch(removed_map([1])))

    assert (count.num_blocks, count.num_copies) == (1, 1)
    assert cache.hashes() == frozenset()


def test_a_key_on_another_medium_is_kept_once():
    stored, removed = stored_map([1], medium="CPU"), removed_map([1], medium="CPU")

    assert cache_of(batch(stored), batch(stored), batch(removed)).hashes(medium="CPU") == frozenset()


def test_an_evicted_blocks_age_is_the_time_since_it_was_stored():
    cache = cache_of(batch(stored_map([1]), at=10.0), batch(removed_map([1, 99]), at=14.5))

    assert cache.eviction_ages_seconds() == (4.5,)
    assert cache.num_unknown_removals == 1


def test_a_reset_leaves_the_tiers_below():
    cache = cache_of(batch(stored_map([1]), stored_map([1], medium="CPU")), batch(["AllBlocksCleared"]))

    assert (cache.hashes(), cache.hashes(medium="CPU")) == (frozenset(), {1})


def test_a_placeholder_without_tokens_counts_a_block_of_unknown_length():
    (count,) = cache_of(batch(stored_map([1], token_ids=[], block_size=0, medium="CPU"))).counts()

    assert (count.num_blocks, count.num_tokens) == (1, 0)


def test_shared_prefixes_are_one_run_with_branches():
    cache = cache_of(batch(stored_map([1, 2, 3]), stored_map([4], 3), stored_map([5, 6], 3), stored_map([8], 77)))

    tree = cache.prefix_tree()

    assert [(node.first_hash, node.num_blocks, node.depth_blocks, node.parent, node.is_detached) for node in tree] == [
        (1, 3, 0, None, False),
        (8, 1, 0, None, True),
        (4, 1, 3, 0, False),
        (5, 2, 3, 0, False),
    ]
    assert sum(node.num_tokens for node in tree) == 7 * 16


def test_the_tree_is_bounded():
    cache = cache_of(batch(*(stored_map([number]) for number in range(50))))

    assert len(cache.prefix_tree(most_nodes=10)) == 10
    assert CachedBlocks().prefix_tree() == ()
