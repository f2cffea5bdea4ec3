"""`python -m live record`, `replay` and `convert` as a person runs them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fakes.kv_event_publisher import Publisher, stored_map
from fakes.metrics_server import metrics_server, metrics_text
from fakes.probe_publisher import PROBE_FRAME, publishing

from live.__main__ import main
from live.cache_summary import decode_summary
from live.probe_frames import encode_frame
from live.recording import Recording
from live.store import About, Store

ROOT = Path(__file__).parents[2]


def run(*words: object) -> tuple[int, str, str]:
    output, errors = io.StringIO(), io.StringIO()
    status = main([str(word) for word in words], output, errors)
    return status, output.getvalue(), errors.getvalue()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded") / "run.kvscope"
    with metrics_server() as server:
        server.text = metrics_text(usage=0.5, running=3, preemptions=2)
        status, _, errors = run("record", server.url, "--out", path, "--interval", 0.2, "--seconds", 0.9)
    assert (status, Path(f"{path}-wal").exists()) == (0, False)
    assert f"recording {server.url}" in errors
    return path


def test_a_recording_is_made_and_ended(recorded):
    summary = Recording.open(recorded).summary()

    assert 2 <= summary.num_ticks <= 6
    assert summary.interval_ms == 200
    assert summary.ended_ms is not None


def test_a_replay_writes_a_record_a_tick(recorded):
    status, output, _ = run("replay", recorded, "--json", "--no-wait")

    first = json.loads(output.splitlines()[0])
    assert status == 0
    assert (first["state"], first["vllm_version"]) == ("ok", "0.32.0")
    assert first["engines"][0]["kv_usage_fraction"] == 0.5
    assert len(output.splitlines()) == Recording.open(recorded).summary().num_ticks


def test_a_replay_for_a_reader_names_what_is_not_exported(tmp_path):
    store = Store.create(tmp_path / "run.kvscope", About(source="x"))
    words = '{"source":"x","vllm_version":null,"process_start_unix_seconds":null,"models":[],"findings":[],"server_info":null,'
    engine = (
        '{"key":"m#0","identity":{"model_name":"m","engine":"0"},"cache_config":null,"labelled":[],"histograms":[]}'
    )
    store.append(1_000_000, {"m#0/kv_usage_fraction": 0.125}, f'{words}"engines":[{engine}]}}')
    store.append_gap(1_001_000, "refused", "Nothing answers.")
    store.mark(1_001_500, "note", "hello")
    store.append(1_003_000, {"m#0/num_requests_running": 1234.0}, f'{words}"engines":[{engine}]}}')
    store.mark(1_004_000, "note", "after")
    store.close()

    _, output, _ = run("replay", tmp_path / "run.kvscope", "--no-wait")
    _, records, _ = run("replay", tmp_path / "run.kvscope", "--no-wait", "--json")

    assert output.splitlines() == [
        "1970-01-01 00:16:40 m 0  KV 12.5 %  running not exported  waiting not exported  preemptions not exported",
        "1970-01-01 00:16:41 no samples for 2.0 s (refused): Nothing answers.",
        "1970-01-01 00:16:41 note: hello",
        "1970-01-01 00:16:43 m 0  KV not exported  running 1,234  waiting not exported  preemptions not exported",
        "1970-01-01 00:16:44 note: after",
    ]
    assert [sorted(json.loads(line)) for line in records.splitlines()[1:3]] == [
        ["end_ms", "state", "text", "time_ms"],
        ["event", "text", "time_ms"],
    ]


def test_a_replay_takes_its_time(tmp_path, recorded):
    Recording.open(recorded).save_copy(tmp_path / "copy.kvscope")
    start = time.monotonic()
    run("replay", recorded, "--speed", 2)
    seconds = time.monotonic() - start

    summary = Recording.open(recorded).summary()
    assert seconds >= (summary.end_ms - summary.start_ms) / 2000 * 0.9


@pytest.mark.parametrize("out", ["run.csv", "run.parquet", "copy.kvscope"])
def test_a_recording_becomes_a_table_or_a_copy(recorded, tmp_path, out):
    status, output, errors = run("convert", recorded, "--out", tmp_path / out)

    assert (status, errors) == (0, "")
    assert f"{tmp_path / out}: {Recording.open(recorded).summary().num_ticks}" in output
    assert (tmp_path / out).stat().st_size > 0


def test_a_csv_becomes_a_recording_that_replays_the_same(recorded, tmp_path):
    run("convert", recorded, "--out", tmp_path / "run.csv")
    run("convert", tmp_path / "run.csv", "--out", tmp_path / "back.kvscope")

    assert run("replay", tmp_path / "back.kvscope", "--no-wait")[1] == run("replay", recorded, "--no-wait")[1]


def test_a_recording_is_gone_on_with_only_when_asked(tmp_path):
    path = tmp_path / "run.kvscope"
    with metrics_server() as server:
        words = ("record", server.url, "--out", path, "--interval", 0.2, "--seconds", 0.3)
        run(*words)
        before = Recording.open(path).summary().num_ticks
        refused, _, errors = run(*words)
        went_on, _, _ = run(*words, "--append")

    assert (refused, went_on) == (2, 0)
    assert "--append" in errors
    assert Recording.open(path).summary().num_ticks > before


def test_an_engine_that_is_not_there_yet_is_said_and_recorded(tmp_path):
    path = tmp_path / "run.kvscope"

    status, _, errors = run("record", "127.0.0.1:9", "--out", path, "--interval", 0.2, "--seconds", 0.6)

    assert status == 0
    assert "refused: Nothing answers at http://127.0.0.1:9" in errors
    assert [gap.state for gap in Recording.open(path).gaps()] == ["refused"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("record", "ftp://x", "--out", "F"), "ftp"),
        (("record", "http://192.0.2.1", "--out", "F"), "KVSCOPE_ALLOW_SCRAPE"),
        (("record", "http://127.0.0.1:9", "--out", "F", "--interval", "0"), "every"),
        (("record", "http://127.0.0.1:9", "--out", "F", "--seconds", "0"), "--seconds"),
        (("record", "http://127.0.0.1:9", "--out", "F", "--keep-days", "0"), "--keep-days"),
        (("replay", "absent.kvscope"), "does not exist"),
        (("replay", "absent.kvscope", "--speed", "100"), "1 to 60"),
        (("convert", "absent.kvscope", "--out", "x.csv"), "does not exist"),
        (("convert", "absent.csv", "--out", "x.kvscope"), "No such file"),
        (("convert", "absent.kvscope", "--out", "x.xlsx"), "cannot become"),
        (("convert", "absent.kvscope", "--out", "."), "exists"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KVSCOPE_ALLOW_SCRAPE", raising=False)

    status, output, errors = run(*words)

    assert (status, output) == (2, "")
    assert said in errors
    assert len(errors.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_recording_cleanly(tmp_path, name):
    path = tmp_path / "run.kvscope"
    with metrics_server() as server:
        child = subprocess.Popen(
            [sys.executable, "-m", "live", "record", server.url, "--out", path, "--interval", "0.2"],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        while "recording" not in child.stderr.readline():
            assert child.poll() is None
        child.send_signal(name)
        errors = child.stderr.read()
        status = child.wait(20)

    assert (status, "ticks of" in errors) == (0, True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.kvscope"]


def test_a_reader_that_goes_away_is_no_error(recorded):
    command = f"{sys.executable} -m live replay {recorded} --no-wait | head -c 1"

    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.stderr == ""


def test_a_probe_and_kv_events_are_recorded_beside(tmp_path):
    path = tmp_path / "run.kvscope"
    frame = encode_frame(PROBE_FRAME)
    with metrics_server() as server, publishing() as (socket, endpoint), Publisher() as publisher:
        repeated = threading.Event()

        def publish() -> None:
            while not repeated.wait(0.2):
                socket.send(frame)
                publisher.publish([stored_map([publisher.sequence])])

        thread = threading.Thread(target=publish)
        thread.start()
        words = ("--probe", endpoint, "--kv-events", publisher.endpoint, "--replay", publisher.replay_endpoint)
        status, _, errors = run("record", server.url, "--out", path, "--interval", 0.2, "--seconds", 2.5, *words)
        repeated.set()
        thread.join()

    recording = Recording.open(path)
    assert (status, errors.count("No probe has been heard") <= 1) == (0, True)
    assert [payload for _, payload in recording.frames("probe")] == [frame]
    last = decode_summary(list(recording.frames("kv_events"))[-1][1])
    assert last.is_complete
    assert last.places[0].num_blocks >= 2
    assert endpoint in (recording.about("beside") or "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--probe", "tcp://192.0.2.7:5567"), "KVSCOPE_ALLOW_SCRAPE"),
        (("--kv-events", "http://localhost"), "tcp://"),
        (("--replay", "tcp://127.0.0.1:5558"), "goes with"),
    ],
)
def test_an_endpoint_that_may_not_be_read_starts_no_recording(tmp_path, words, said):
    path = tmp_path / "run.kvscope"

    status, _, errors = run("record", "http://127.0.0.1:9", "--out", path, *words)

    assert (status, said in errors, errors.count("\n"), path.exists()) == (2, True, 1, False)
