from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from live.engine.probe_publisher import endpoint_of_rank
from live.probe_frames import (
    LARGEST_FRAME_BYTES,
    CachedBlocks,
    ProbeFrame,
    ProbeFrameError,
    RequestBlocks,
    decode_frame,
    encode_frame,
    pack_blocks,
    pack_hashes,
)


def request(name: str, *tables: list[int]) -> RequestBlocks:
    return RequestBlocks(
        request_id=name,
        is_running=True,
        num_prompt_tokens=40,
        num_tokens=44,
        num_computed_tokens=43,
        num_preemptions=0,
        tables=tuple(pack_blocks(table) for table in tables),
    )


FRAME = ProbeFrame(
    vllm_version="0.32.0",
    data_parallel_rank=0,
    sequence=3,
    step=17,
    moment="scheduled",
    time_unix_ns=1_700_000_000_000_000_000,
    num_gpu_blocks=11,
    block_size=16,
    num_groups=2,
    num_free_blocks=5,
    settled_free_blocks=6,
    num_running=2,
    num_waiting=1,
    num_preemptions=4,
    preempted_ids=("c",),
    requests=(request("a", [1, 2], [0, 3]), request("b", [1, 4], [5])),
    shared_blocks=pack_blocks([1]),
    shared_counts=pack_blocks([2]),
    num_cached_hashes=2,
    cached=CachedBlocks(hashes=pack_hashes([2**64 - 1, 7]), blocks=pack_blocks([1, 9]), groups=pack_blocks([0, 1])),
    sample_seconds=0.001,
)


def test_a_frame_comes_back_from_the_wire_unchanged():
    assert decode_frame(encode_frame(FRAME)) == FRAME


def test_usage_leaves_the_null_block_out():
    assert (FRAME.num_used_blocks, FRAME.usage_fraction) == (5, 0.5)


def test_reference_counts_leave_the_null_block_out():
    assert FRAME.reference_counts() == {1: 2, 2: 1, 3: 1, 4: 1, 5: 1}


def test_cached_blocks_are_named_as_events_name_them():
    assert FRAME.cached is not None
    assert FRAME.cached.entries() == {(0, 2**64 - 1), (1, 7)}
    assert FRAME.cached.block_ids() == {1, 9}


@pytest.mark.parametrize(
    "payload", [b"", b"\x00", b"HTTP/1.1 400", b"\x91" * 5000, msgspec.msgpack.encode({"format": 1})]
)
def test_bytes_that_are_no_frame_are_refused(payload):
    with pytest.raises(ProbeFrameError, match="no frame"):
        decode_frame(payload)


def test_another_format_is_named():
    with pytest.raises(ProbeFrameError, match="format 2"):
        decode_frame(encode_frame(replace(FRAME, format=2)))


def test_columns_of_unlike_length_are_refused():
    with pytest.raises(ProbeFrameError, match="cut"):
        decode_frame(encode_frame(replace(FRAME, shared_counts=b"")))


def test_a_table_for_a_group_that_is_not_there_is_refused():
    with pytest.raises(ProbeFrameError, match="cut"):
        decode_frame(encode_frame(replace(FRAME, num_groups=1)))


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
