from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from fakes.probe_publisher import PROBE_FRAME

from live.engine.probe_publisher import endpoint_of_rank
from live.probe_frames import (
    LARGEST_FRAME_BYTES,
    ProbeFrameError,
    decode_frame,
    encode_frame,
    joined_frames,
    pack_blocks,
    unpack_blocks,
)


def test_a_frame_comes_back_from_the_wire_unchanged():
    assert decode_frame(encode_frame(PROBE_FRAME)) == PROBE_FRAME


def test_usage_leaves_the_null_block_out():
    assert (PROBE_FRAME.num_used_blocks, PROBE_FRAME.usage_fraction) == (5, 0.5)


@pytest.mark.parametrize(("least", "peak"), [(None, 5), (8, 5), (1, 9), (0, 10)])
def test_the_peak_is_what_was_in_use_at_once_and_never_below_what_is(least, peak):
    assert replace(PROBE_FRAME, least_free_blocks=least).peak_used_blocks == peak


def test_a_frame_that_was_never_sent_is_told_of_by_the_next():
    older = replace(
        PROBE_FRAME, settled_history=pack_blocks([7, 6]), preempted_ids=("a",), least_free_blocks=1, num_waiting=3
    )
    newer = replace(PROBE_FRAME, settled_history=pack_blocks([5]), preempted_ids=("b",), least_free_blocks=4)

    joined = joined_frames(older, newer)

    assert (joined.peak_used_blocks, joined.preempted_ids) == (9, ("a", "b"))
    assert unpack_blocks(joined.settled_history) == (7, 6, 5)
    assert joined.num_waiting == newer.num_waiting


def test_reference_counts_leave_the_null_block_out():
    assert PROBE_FRAME.reference_counts() == {1: 2, 2: 1, 3: 1, 4: 1, 5: 1}


def test_cached_blocks_are_named_as_events_name_them():
    assert PROBE_FRAME.cached is not None
    assert PROBE_FRAME.cached.entries() == {(0, 2**64 - 1), (1, 7)}
    assert PROBE_FRAME.cached.block_ids() == {1, 9}


@pytest.mark.parametrize(
    "payload", [b"", b"\x00", b"HTTP/1.1 400", b"\x91" * 5000, msgspec.msgpack.encode({"format": 1})]
)
def test_bytes_that_are_no_frame_are_refused(payload):
    with pytest.raises(ProbeFrameError, match="no frame"):
        decode_frame(payload)


def test_another_format_is_named():
    with pytest.raises(ProbeFrameError, match="format 2"):
        decode_frame(encode_frame(replace(PROBE_FRAME, format=2)))


def test_columns_of_unlike_length_are_refused():
    with pytest.raises(ProbeFrameError, match="cut"):
        decode_frame(encode_frame(replace(PROBE_FRAME, shared_counts=b"")))


def test_a_table_for_a_group_that_is_not_there_is_refused():
    with pytest.raises(ProbeFrameError, match="cut"):
        decode_frame(encode_frame(replace(PROBE_FRAME, num_groups=1)))


def test_a_frame_too_large_is_refused_before_it_is_read():
    with pytest.raises(ProbeFrameError, match="more than"):
        decode_frame(b"\x00" * (LARGEST_FRAME_BYTES + 1))


def test_each_rank_publishes_at_a_port_of_its_own():
    assert endpoint_of_rank("tcp://127.0.0.1:5567", 2) == "tcp://127.0.0.1:5569"
    assert endpoint_of_rank("tcp://[::1]:5567", 0) == "tcp://[::1]:5567"


@pytest.mark.parametrize(
    "endpoint", ["tcp://*:5567", "tcp://0.0.0.0:5567", "tcp://example.org:5567", "ipc:///tmp/x", "5567"]
)
def test_the_probe_publishes_nowhere_but_on_this_host(endpoint):
    with pytest.raises(ValueError, match="this host only"):
        endpoint_of_rank(endpoint, 0)


def test_a_port_past_the_last_is_refused():
    with pytest.raises(ValueError, match="Port 65536"):
        endpoint_of_rank("tcp://127.0.0.1:65535", 1)
