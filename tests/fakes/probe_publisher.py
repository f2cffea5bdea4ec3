"""A probe's frame, and a publisher of frames on a free loopback port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import zmq

from live.probe_frames import CachedBlocks, ProbeFrame, RequestBlocks, pack_blocks, pack_hashes


def probed_request(name: str, *tables: list[int]) -> RequestBlocks:
    return RequestBlocks(
        request_id=name,
        is_running=True,
        num_prompt_tokens=40,
        num_tokens=44,
        num_computed_tokens=43,
        num_preemptions=0,
        tables=tuple(pack_blocks(table) for table in tables),
    )


PROBE_FRAME = ProbeFrame(
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
    requests=(probed_request("a", [1, 2], [0, 3]), probed_request("b", [1, 4], [5])),
    shared_blocks=pack_blocks([1]),
    shared_counts=pack_blocks([2]),
    num_cached_hashes=2,
    cached=CachedBlocks(hashes=pack_hashes([2**64 - 1, 7]), blocks=pack_blocks([1, 9]), groups=pack_blocks([0, 1])),
    sample_seconds=0.001,
)


NOTHING = CachedBlocks(hashes=b"", blocks=b"", groups=b"")


def cached(*blocks: int) -> CachedBlocks:
    return CachedBlocks(
        hashes=pack_hashes(1000 + block for block in blocks),
        blocks=pack_blocks(blocks),
        groups=pack_blocks(0 for _ in blocks),
    )


def frame(step: int, *requests: RequestBlocks, listed: CachedBlocks | None = NOTHING, **fields: object) -> ProbeFrame:
    """A frame of one group and 11 blocks."""
    held = {block for request in requests for block in request.blocks()}
    made = replace(
        PROBE_FRAME,
        step=step,
        sequence=step,
        num_groups=1,
        requests=requests,
        num_free_blocks=10 - len(held),
        num_preemptions=0,
        preempted_ids=(),
        shared_blocks=b"",
        shared_counts=b"",
        cached=listed,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


@contextmanager
def publishing() -> Iterator[tuple[zmq.Socket, str]]:
    """A PUB socket and the endpoint to read it at."""
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        yield socket, f"tcp://127.0.0.1:{port}"
