"""Laws of KV events: nothing on the wire crashes the reader, and the cache holds what was stored and not removed."""

from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from live.cached_blocks import CachedBlocks
from live.kv_event_frames import AllCleared, BlocksRemoved, BlocksStored, FrameError, KvEventBatch, decode_batch

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
)
_TAGS = st.sampled_from(
    ["BlockStored", "BlockRemoved", "AllBlocksCleared", "type", "block_hashes", "token_ids", "medium"]
)
_DOCUMENTS = st.recursive(
    _SCALARS | _TAGS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(_TAGS, inner, max_size=5),
    max_leaves=25,
)
_EVENTS = st.one_of(
    st.builds(
        lambda hashes, parent: BlocksStored(
            block_hashes=tuple(hashes),
            parent_block_hash=parent,
            num_tokens=16 * len(hashes),
            block_size=16,
            medium="GPU",
            group=0,
        ),
        st.lists(st.integers(0, 9), min_size=1, max_size=4),
        st.none() | st.integers(0, 9),
    ),
    st.builds(
        lambda hashes: BlocksRemoved(block_hashes=tuple(hashes), medium="GPU", group=0),
        st.lists(st.integers(0, 9), max_size=3),
    ),
    st.just(AllCleared()),
)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | _DOCUMENTS.map(msgspec.msgpack.encode))
def test_any_payload_is_a_batch_or_a_frame_error(payload):
    try:
        batch = decode_batch(0, payload)
    except FrameError:
        return

    assert isinstance(batch, KvEventBatch)
    CachedBlocks().apply(batch)


@settings(max_examples=200, deadline=None)
@given(st.lists(_EVENTS, max_size=30))
def test_the_cache_is_what_was_stored_and_not_removed(events):
    cache = CachedBlocks()
    copies: Counter[int] = Counter()
    for event in events:
        if isinstance(event, BlocksStored):
            copies.update(event.block_hashes)
        elif isinstance(event, BlocksRemoved):
            copies.subtract(one for one in event.block_hashes if copies[one] > 0)
        else:
            copies.clear()
        copies = +copies
        cache.apply(KvEventBatch(sequence=0, time_seconds=0.0, events=(event,)))

    assert cache.hashes() == set(copies)
    assert sum(count.num_copies for count in cache.counts()) == copies.total()
    assert sum(count.num_tokens for count in cache.counts()) == 16 * len(copies)


@settings(max_examples=200, deadline=None)
@given(st.lists(_EVENTS, max_size=30))
def test_the_tree_holds_no_block_twice(events):
    cache = CachedBlocks()
    cache.apply(KvEventBatch(sequence=0, time_seconds=0.0, events=tuple(events)))

    tree = cache.prefix_tree()

    assert sum(node.num_blocks for node in tree) <= len(cache.hashes())
    assert all(node.parent is None or node.parent < place for place, node in enumerate(tree))
