"""What the block map is sent of a live pool, read back as the browser reads it."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from fakes.block_map_browser import receive
from fakes.probe_publisher import PROBE_FRAME, cached, frame, probed_request

from live.block_view import BlockHistory, BlockMoment
from pages.parts.block_moment import MomentView, encode_moment
from planner.block_codes import to_bytes
from planner.block_events import BlockEvent


def view(moment: BlockMoment, **fields: object) -> MomentView:
    return MomentView(source="tiny, engine 0", title="tiny", moment=moment, **fields)  # type: ignore[arg-type]


def test_the_map_is_the_moments_codes() -> None:
    moment = BlockHistory().take(PROBE_FRAME)

    received = receive(encode_moment(view(moment, colour_by="group")))

    assert received.bytes_at(moment.step) == to_bytes(moment.codes, "group")
    assert received.header["still"] is True
    assert received.header["has_body"] is True
    assert received.header["counters"] == {"used": [5], "cached": [1], "running": [2], "waiting": [1]}
    assert received.header["groups"] == ["KV group 0", "KV group 1"]


def test_the_chosen_requests_blocks_stand_out_with_what_it_shares() -> None:
    moment = BlockHistory().take(PROBE_FRAME)

    received = receive(encode_moment(view(moment, selected=1)))

    assert received.lit_at(moment.step) == {1, 4, 5}
    assert received.light["shared"].tolist() == [1, 0, 1, 1]
    assert [row[5] for row in received.header["rows"]] == ["a", "b"]


def test_the_gravest_event_is_told_first_and_many_are_counted() -> None:
    moment = BlockHistory().take(frame(1))
    finished = [BlockEvent(step=1, kind="finished", request_id=f"r{number}") for number in range(9)]
    events = (*finished, BlockEvent(step=1, kind="preempted", request_id="p", num_blocks=2))

    ((_, texts),) = receive(encode_moment(view(moment, events=events))).header["says"]

    assert texts[0] == "p preempted: 2 blocks freed"
    assert texts[-1] == "and 2 more events"


def test_blocks_that_no_table_names_are_said() -> None:
    moment = BlockHistory().take(frame(1, probed_request("a", [1]), num_free_blocks=6))

    ((_, texts),) = receive(encode_moment(view(moment))).header["says"]

    assert texts == ["3 blocks in use stand in no table that was sent; they are drawn as free"]


def test_a_quiet_and_an_idle_moment_say_so() -> None:
    for moment, said in (("scheduled", "No request came or went since the last look"), ("idle", "The engine is idle")):
        sent = encode_moment(view(BlockHistory().take(frame(1, moment=moment))))
        assert receive(sent).header["says"] == [[1, [said]]]


def test_a_large_scattered_pool_is_sent_within_a_tick() -> None:
    source = np.random.default_rng(7)
    blocks = source.permutation(np.arange(1, 131_072))[:120_000]
    requests = tuple(probed_request(f"r{place}", part.tolist()) for place, part in enumerate(np.split(blocks, 240)))
    large = frame(5, *requests, num_gpu_blocks=131_072, listed=cached(*range(1, 60_000)))
    moment = replace(BlockHistory().take(large))
    start = time.process_time()

    sent = encode_moment(view(moment))

    assert time.process_time() - start < 0.4  # 0.05 s where nothing else runs
    assert len(sent) < 2_000_000
