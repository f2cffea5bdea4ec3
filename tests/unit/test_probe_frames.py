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
)


def test_a_frame_comes_back_from_the_wire_unchanged():
    assert decode_frame(encode_frame(PROBE_FRAME)) == PROBE_FRAME


def test_usage_leaves_the_null_block_out():
    assert (PROBE_FRAME.num_used_blocks, PROBE_FRAME.usage_fraction) == (5, 0.5)


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
