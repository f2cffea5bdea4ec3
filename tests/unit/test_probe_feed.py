from __future__ import annotations

import time
from dataclasses import replace

import pytest
from fakes.probe_publisher import PROBE_FRAME, publishing

from live.engine.probe_publisher import ProbePublisher
from live.probe_feed import ProbeBeside, ProbeReader
from live.probe_frames import ProbeFrame, decode_frame, encode_frame, pack_blocks, unpack_blocks
from planner.facts import PlanError


def heard(socket, reader, payload, seconds=3.0):
    """What the reader makes of `payload`, sent until it arrives: a subscription takes a moment."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        socket.send(payload)
        time.sleep(0.01)
        reader.poll()
        status = reader.status()
        if status.state != "waiting":
            return status
    raise AssertionError("nothing was heard")


def test_the_newest_frame_is_read_without_waiting():
    with publishing() as (socket, endpoint), ProbeReader(endpoint=endpoint) as reader:
        heard(socket, reader, encode_frame(PROBE_FRAME))
        newer = replace(PROBE_FRAME, sequence=9)

        socket.send(encode_frame(newer))
        frames = reader.poll(2.0)

        assert frames == (newer,)
        assert reader.status().frame == newer


def test_a_repeated_frame_is_no_new_one_but_a_sign_of_life():
    now = [100.0]
    with publishing() as (socket, endpoint), ProbeReader(endpoint=endpoint, clock=lambda: now[0]) as reader:
        heard(socket, reader, encode_frame(PROBE_FRAME))
        now[0] = 104.0
        socket.send(encode_frame(PROBE_FRAME))

        assert reader.poll(2.0) == ()
        assert reader.status().age_seconds == 0.0


def test_a_silent_probe_keeps_its_last_frame():
    now = [100.0]
    with publishing() as (socket, endpoint), ProbeReader(endpoint=endpoint, clock=lambda: now[0]) as reader:
        heard(socket, reader, encode_frame(PROBE_FRAME))
        now[0] = 110.0
        status = reader.status()

    assert (status.state, status.frame) == ("silent", PROBE_FRAME)


def test_what_is_no_frame_is_a_named_state():
    with publishing() as (socket, endpoint), ProbeReader(endpoint=endpoint) as reader:
        status = heard(socket, reader, b"no frame")

    assert (status.state, "no frame of KVScope's probe" in status.text) == ("broken", True)


def test_an_absent_probe_says_how_to_load_it():
    with publishing() as (_, endpoint), ProbeReader(endpoint=endpoint) as reader:
        status = reader.status()

    assert (status.state, "--scheduler-cls" in status.text) == ("waiting", True)


def test_a_host_outside_the_allow_list_is_not_read():
    with pytest.raises(PlanError, match="KVSCOPE_ALLOW_SCRAPE"):
        ProbeReader(endpoint="tcp://203.0.113.7:5567", allowed=()).open()


def test_a_recording_gets_each_frame_once_with_its_counts():
    with publishing() as (socket, endpoint):
        beside = ProbeBeside(endpoint)
        heard(socket, beside._reader, encode_frame(PROBE_FRAME))

        first, second = beside.sample(), beside.sample()
        beside.close()

    assert first.numbers["probe/num_used_blocks"] == 5
    assert [decode_frame(payload) for kind, payload in first.frames if kind == "probe"] == [PROBE_FRAME]
    assert (second.frames, second.numbers) == ((), first.numbers)


def test_a_recorded_frame_tells_of_all_that_passed_since_the_one_before():
    busy = replace(PROBE_FRAME, sequence=8, preempted_ids=("a",), least_free_blocks=0)
    later = replace(PROBE_FRAME, sequence=9, preempted_ids=("b",), least_free_blocks=3)
    after = replace(PROBE_FRAME, sequence=10, preempted_ids=(), least_free_blocks=4)
    with publishing() as (socket, endpoint):
        beside = ProbeBeside(endpoint)
        heard(socket, beside._reader, encode_frame(PROBE_FRAME))
        beside.sample()
        ticks = []
        for frames in ((busy, later), (after,)):
            for frame in frames:
                socket.send(encode_frame(frame))
            time.sleep(0.3)
            ticks.append(beside.sample())
        beside.close()

    usable = PROBE_FRAME.num_gpu_blocks - 1
    (first,), (second,) = ([decode_frame(payload) for _, payload in tick.frames] for tick in ticks)
    assert (first.preempted_ids, first.peak_used_blocks) == (("a", "b"), usable)
    assert (second.preempted_ids, second.peak_used_blocks) == ((), usable - 4)
    assert [tick.numbers["probe/peak_used_blocks"] for tick in ticks] == [usable, usable - 4]


def published(endpoint, idle_frame):
    """A probe's publishing thread and a reader that has heard it."""
    publisher = ProbePublisher(endpoint, idle_frame)
    reader = ProbeReader(endpoint=endpoint)
    reader.open()
    return publisher, reader


def free_endpoint() -> str:
    with publishing() as (_, endpoint):
        return endpoint


def test_the_publisher_sends_what_an_idle_engine_yields_and_repeats_it():
    frames: list[ProbeFrame] = [PROBE_FRAME]
    publisher, reader = published(free_endpoint(), lambda _: frames.pop() if frames else None)
    try:
        end = time.monotonic() + 5.0
        while reader.status().state == "waiting" and time.monotonic() < end:
            time.sleep(0.02)

        assert reader.status().frame == PROBE_FRAME
    finally:
        publisher.close()
        reader.close()


def test_a_frame_that_waits_is_replaced_by_a_newer_one_and_counted():
    publisher, reader = published(free_endpoint(), lambda _: None)
    try:
        end = time.monotonic() + 5.0
        number = 0
        while reader.status().state == "waiting" and time.monotonic() < end:
            for _ in range(200):
                number += 1
                publisher.offer(replace(PROBE_FRAME, sequence=number, settled_history=pack_blocks([number])))
            time.sleep(0.02)
        last = reader.status().frame

        assert last is not None
        assert (last.sequence == number, last.num_dropped > 0) == (True, True)
        history = unpack_blocks(last.settled_history)  # of the frames that it stands for, too
        assert history == tuple(range(number + 1 - len(history), number + 1))
        assert len(history) > 1
    finally:
        publisher.close()
        reader.close()


def test_a_port_in_use_stops_the_probe_and_nothing_else(caplog):
    with publishing() as (_, endpoint):
        publisher = ProbePublisher(endpoint, lambda _: None)
        publisher._thread.join(3.0)
        publisher.offer(PROBE_FRAME)
        publisher.close()

    assert "choose another port" in caplog.text
