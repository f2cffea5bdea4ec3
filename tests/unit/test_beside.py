"""What is recorded beside an engine's metrics: the probe, KV events and cards, given on the way, and gone on with."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from fakes.kv_event_publisher import Publisher, stored_map
from fakes.metrics_server import metrics_server
from fakes.probe_publisher import PROBE_FRAME, publishing

from live.beside import BesideEndpoints, BesideSet, open_beside
from live.cache_summary import SUMMARY_KIND, decode_summary
from live.monitor import Keeping, Monitor
from live.nvml import DetectedGpu, NvmlState, ProcessMemory
from live.nvml_beside import NvmlBeside, cards_beside, is_this_machine
from live.probe_feed import FRAME_KIND
from live.probe_frames import encode_frame
from live.recorder import Extras
from live.recording import Recording
from planner.facts import PlanError
from planner.units import GIB

FAST = Keeping(interval_seconds=0.2)


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


class Fixed:
    """Something beside that says the same each time."""

    def __init__(self, number: float, text: str = "") -> None:
        self.number, self.text, self.is_closed = number, text, False

    def sample(self) -> Extras:
        return Extras(numbers={f"fixed/{self.number:g}": self.number})

    def close(self) -> None:
        self.is_closed = True


class Broken(Fixed):
    def sample(self) -> Extras:
        raise OSError


def test_endpoints_come_back_from_their_text():
    endpoints = BesideEndpoints(probe="tcp://127.0.0.1:5567", kv_events="tcp://127.0.0.1:5557")

    assert BesideEndpoints.from_text(endpoints.to_text()) == endpoints
    assert BesideEndpoints.from_text("no JSON") == BesideEndpoints.from_text("[1]") == BesideEndpoints()


def test_blank_fields_are_no_endpoints():
    assert not BesideEndpoints.from_fields({"probe": " ", "kv_events": None, "kv_replay": ""})
    assert BesideEndpoints.from_fields({"probe": " tcp://localhost:1 "}).probe == "tcp://localhost:1"


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"probe": "http://127.0.0.1:1"}, "tcp://"),
        ({"kv_events": "tcp://192.0.2.7:5557"}, "KVSCOPE_ALLOW_SCRAPE"),
        ({"probe": "tcp://127.0.0.1:5567", "kv_events": "tcp://192.0.2.7:5557"}, "KVSCOPE_ALLOW_SCRAPE"),
        ({"kv_replay": "tcp://127.0.0.1:5558"}, "goes with"),
    ],
)
def test_what_may_not_be_read_is_refused(fields: dict[str, str], word: str):
    with pytest.raises(PlanError, match=word):
        open_beside(BesideEndpoints(**fields))


def test_a_set_is_replaced_while_it_is_recorded():
    first, second = Fixed(1, "not heard"), Fixed(2)
    both = BesideSet((Broken(0), first))
    assert both.sample().numbers == {"fixed/1": 1}
    assert both.sayings() == ("not heard",)

    both.replace((second,))
    assert both.sample().numbers == {"fixed/2": 2}
    assert (first.is_closed, second.is_closed, both.sayings()) == (True, False, ())

    both.close()
    late = Fixed(3)
    both.replace((late,))
    assert (second.is_closed, late.is_closed, both.sample().numbers) == (True, True, {})


def gpu(**more: object) -> DetectedGpu:
    facts: dict = {
        "index": 0,
        "name": "NVIDIA L4",
        "total_bytes": 24 * GIB,
        "used_bytes": 18 * GIB,
        "free_bytes": 6 * GIB,
        "reserved_bytes": None,
        "compute_capability": (8, 9),
        "is_mig_enabled": False,
        "processes": (ProcessMemory(pid=41, used_bytes=17 * GIB), ProcessMemory(pid=42, used_bytes=None)),
    }
    return DetectedGpu(**(facts | more))


def test_cards_are_series():
    beside = NvmlBeside(lambda: NvmlState(kind="ok", gpus=(gpu(), gpu(index=1, processes=()))), 0.05)
    try:
        until(lambda: beside.sample().numbers)
        numbers = beside.sample().numbers
    finally:
        beside.close()

    assert numbers["nvml/0/used_bytes"] == 18 * GIB
    assert numbers["nvml/0/largest_process_bytes"] == 17 * GIB
    assert "nvml/1/largest_process_bytes" not in numbers


def test_a_machine_without_a_driver_adds_nothing():
    beside = NvmlBeside(lambda: NvmlState(kind="driver_absent", remedy="None here."), 0.05)
    time.sleep(0.1)
    beside.close()

    assert beside.sample() == Extras()


def test_only_an_engine_of_this_machine_has_its_cards_beside():
    assert [is_this_machine(f"http://{host}:8000") for host in ("localhost", "127.0.0.2", "[::1]")] == [True] * 3
    assert cards_beside("http://gpu1:8000") == cards_beside("http://10.0.0.7:8000") == ()


def test_a_watched_engine_takes_a_probe_and_events_and_goes_on_with_them(tmp_path):
    frame = encode_frame(PROBE_FRAME)
    with metrics_server() as server, publishing() as (socket, endpoint), Publisher() as publisher:
        monitor = Monitor(tmp_path, keeping=FAST)
        recorder = monitor.watch(server.url)
        endpoints = BesideEndpoints(probe=endpoint, kv_events=publisher.endpoint, kv_replay=publisher.replay_endpoint)
        assert monitor.watch(server.url, endpoints=endpoints) is recorder
        until(lambda: monitor.sayings_beside(recorder.address))
        time.sleep(0.3)
        socket.send(frame)
        publisher.publish([stored_map([1, 2])])
        until(
            lambda: {"probe/num_used_blocks", "kv_events/num_copies/0/GPU"} <= set(recorder.recording.summary().series)
        )
        monitor.stop()

        again = Monitor(tmp_path, keeping=FAST)
        again.start()
        try:
            time.sleep(0.3)  # a subscription takes a moment
            publisher.publish([stored_map([3], 2)])
            (resumed,) = again.recorders()
            until(lambda: len(list(resumed.recording.frames(SUMMARY_KIND))) >= 2)
        finally:
            again.stop()

    recording = Recording.open(recorder.path)
    assert [payload for _, payload in recording.frames(FRAME_KIND)] == [frame]
    last = decode_summary(list(recording.frames(SUMMARY_KIND))[-1][1])
    assert [place.num_blocks for place in last.places] == [3]  # the first two came again from the replay endpoint


def test_a_refused_endpoint_starts_no_recording(tmp_path):
    monitor = Monitor(tmp_path, keeping=FAST)
    with metrics_server() as server, pytest.raises(PlanError):
        monitor.watch(server.url, endpoints=BesideEndpoints(probe="tcp://192.0.2.7:1"))

    assert (monitor.recorders(), monitor.recordings()) == ((), ())
