"""A recorder against a real server on loopback that behaves badly, and against SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.metrics_server import MetricsServer, metrics_server, metrics_text

from live.http_reader import LONGEST_SECONDS, HttpReader
from live.http_source import HttpSource
from live.recorder import Recorder
from live.recording import Recording
from live.scrape_address import parse_address
from live.store import About, Store

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server():
    with metrics_server() as server:
        yield server


@pytest.fixture
def recorder(server, tmp_path):
    recorder = record(server, tmp_path / "run.kvscope")
    yield recorder
    recorder.stop()


def record(server: MetricsServer, path: Path) -> Recorder:
    source = HttpSource(parse_address(server.url), HttpReader())
    return Recorder(source, Store.create(path, About(source=source.address)))


def test_a_good_answer_is_a_snapshot_with_what_names_the_server(recorder):
    status = recorder.tick()

    assert status.state == "ok"
    assert status.snapshot.vllm_version == "0.32.0"
    assert status.snapshot.models[0].max_model_len == 4096
    assert status.snapshot.engines[0].kv_usage_fraction == 0.25


@pytest.mark.parametrize(
    ("play", "states"),
    [
        ("stall", {"timed_out"}),
        ("drip", {"timed_out"}),
        ("flood", {"too_large", "timed_out"}),
        ("garbage", {"not_vllm"}),
        ("error_500", {"http_error"}),
        ("empty", {"not_vllm"}),
        ("other_service", {"not_vllm"}),
        ("cut", {"broken"}),
        ("redirect", {"redirected"}),
    ],
)
def test_each_fault_is_a_named_state_and_over_within_two_ticks(server, recorder, play, states):
    recorder.tick()
    server.play = play
    start = time.monotonic()
    failed = recorder.tick()
    seconds = time.monotonic() - start
    server.play = "well"
    back = [recorder.tick().state for _ in range(2)]

    assert failed.state in states
    assert failed.text.endswith(".")
    assert seconds < 2 * LONGEST_SECONDS  # the machine may be busy
    assert back[-1] == "ok"
    assert recorder.recording.gaps()[0].state == failed.state


def test_an_engine_that_ends_and_starts_again_is_a_gap_and_a_restart(server, recorder):
    server.text = metrics_text(tokens=5000)
    recorder.tick()
    server.stop()
    down = recorder.tick()
    server.text = metrics_text(tokens=3, started=1_760_000_900.0)
    server.version = "0.33.0"
    server.start()
    up = recorder.tick()

    assert (down.state, up.state) == ("refused", "ok")
    assert up.snapshot.vllm_version == "0.33.0"
    assert "restarted" in {mark.kind for mark in recorder.marks()}


def test_a_restart_between_two_ticks_is_noticed_and_the_server_asked_anew(server, recorder):
    recorder.tick()
    server.text = metrics_text(tokens=3, started=1_760_000_900.0)
    server.version = "0.33.0"

    status = recorder.tick()

    assert status.snapshot.vllm_version == "0.33.0"
    assert {mark.kind for mark in recorder.marks()} == {"restarted", "version_changed"}


def test_another_model_on_the_same_port_is_marked(server, recorder):
    recorder.tick()
    server.text = metrics_text(model="other", tokens=3)
    server.model = "other"

    status = recorder.tick()

    assert status.snapshot.models[0].model_id == "other"
    assert "model_changed" in {mark.kind for mark in recorder.marks()}


def test_another_service_on_the_same_port_is_no_engine(server, recorder):
    recorder.tick()
    server.play = "other_service"

    assert recorder.tick().state == "not_vllm"


def test_version_and_models_are_not_asked_for_at_each_tick(server, recorder):
    for _ in range(5):
        recorder.tick()

    assert server.requests.count("/metrics") == 5
    assert server.requests.count("/version") == 1


def test_no_request_changes_anything(server, recorder):
    recorder.tick()

    assert {path.partition("?")[0] for path in server.requests} <= {
        "/metrics",
        "/version",
        "/v1/models",
        "/server_info",
    }


def test_an_address_that_is_no_longer_allowed_is_a_state(tmp_path, monkeypatch):
    monkeypatch.setenv("KVSCOPE_ALLOW_SCRAPE", "")
    source = HttpSource(parse_address("http://192.0.2.1:8000"))
    recorder = Recorder(source, Store.create(tmp_path / "run.kvscope", About(source=source.address)))
    status = recorder.tick()
    recorder.stop()

    assert status.state == "not_allowed"


def test_a_running_recorder_is_back_within_two_ticks(server, tmp_path):
    path = tmp_path / "run.kvscope"
    source = HttpSource(parse_address(server.url), HttpReader())
    recorder = Recorder(source, Store.create(path, About(source="x", interval_ms=200)), interval_seconds=0.2)
    recorder.start()
    wait(lambda: recorder.status().state == "ok")
    server.stop()
    wait(lambda: recorder.status().state == "refused")
    server.start()
    start = time.monotonic()
    wait(lambda: recorder.status().state == "ok")
    seconds = time.monotonic() - start
    recorder.stop()

    assert seconds < 3.0  # two ticks are 0.4 s; the machine may be busy
    assert [gap.state for gap in Recording.open(path).gaps()] == ["refused"]


def wait(condition, seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


WRITER = """
import sys
from pathlib import Path
from live.store import About, Store

store = Store.create(Path(sys.argv[1]), About(source="x"))
store.append(999_000, {"a": 0.0}, "words")
time_ms = 1_000_000
while True:
    store.append(time_ms, {"a": float(time_ms)}, "words")
    print(time_ms, flush=True)
    time_ms += 1000
"""


@pytest.mark.parametrize("least_ticks", [3, 290, 700])
def test_no_committed_tick_is_lost_to_a_kill(tmp_path, least_ticks):
    path = tmp_path / "run.kvscope"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )
    committed = [int(child.stdout.readline()) for _ in range(least_ticks)]
    child.send_signal(signal.SIGKILL)
    committed += [int(line) for line in child.stdout if line.endswith("\n")]
    child.wait()

    read_before = Recording.open(path)
    times_before = read_before.times().tolist()
    read_before.close()
    store = Store.resume(path)
    store.append(committed[-1] + 60_000, {"a": 1.0}, "words")
    store.close()
    recording = Recording.open_untrusted(path)
    window = recording.window()

    assert times_before[: len(committed) + 1] == [999_000, *committed]
    assert window.time_ms.tolist()[: len(committed) + 1] == [999_000, *committed]
    assert window.series("a").tolist()[1 : len(committed) + 1] == [float(time_ms) for time_ms in committed]
    assert [gap.state for gap in recording.gaps()] == ["recorder_stopped"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.kvscope"]


def test_a_killed_writer_leaves_no_lock(tmp_path):
    path = tmp_path / "run.kvscope"
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    child.stdout.readline()
    with pytest.raises(Exception, match="another process"):
        Store.resume(path)
    child.kill()
    child.wait()

    Store.resume(path).close()
