"""The process's recorders: shared, limited, gone on with after a kill, and no browser needed."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from live import monitor as monitor_module
from live.http_source import http_source
from live.monitor import MOST_RECORDERS, Keeping, Monitor, default_recordings_folder
from live.recorder import Clock
from live.recording import Recording
from live.recording_schema import RecordingError
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.store import About, Store
from planner.facts import PlanError

FAST = Keeping(interval_seconds=0.2)


class FakeSource:
    def __init__(self, address: str) -> None:
        if "forbidden" in address:
            raise PlanError("url", address, "Not allowed.")
        self.address = address

    def read(self) -> EngineSnapshot:
        engine = EngineSample(
            time_unix_ns=0, identity=EngineIdentity(model_name="m", engine="0"), kv_usage_fraction=0.5
        )
        return EngineSnapshot(time_unix_ns=0, source=self.address, engines=(engine,))


def until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def monitor(tmp_path):
    monitor = Monitor(tmp_path / "recordings", make_source=FakeSource, keeping=FAST)
    yield monitor
    monitor.stop()


def test_one_engine_has_one_recorder(monitor):
    first = monitor.watch("http://localhost:8000")

    assert monitor.watch("http://localhost:8000") is first
    assert monitor.recorder("http://localhost:8000") is first
    assert monitor.recorders() == (first,)
    assert monitor.recorder("http://localhost:8001") is None


def test_it_records_without_anybody_looking(monitor):
    recorder = monitor.watch("http://localhost:8000", title="calm")

    until(lambda: recorder.status().num_ticks >= 2)

    (path,) = monitor.recordings()
    assert path.name.startswith("localhost-8000-")
    assert Recording.open(path).summary().title == "calm"


def test_what_is_ended_stays_as_a_file_and_does_not_go_on(monitor):
    recorder = monitor.watch("http://localhost:8000")
    until(lambda: recorder.status().num_ticks >= 1)
    monitor.unwatch("http://localhost:8000")
    monitor.unwatch("http://localhost:8000")
    monitor.stop()

    again = Monitor(monitor.folder, make_source=FakeSource, keeping=FAST)
    again.start()

    assert again.recorders() == ()
    assert Recording.open(monitor.recordings()[0]).summary().ended_ms is not None


def test_what_nobody_ended_goes_on_in_the_same_file(monitor):
    recorder = monitor.watch("http://localhost:8000")
    until(lambda: recorder.status().num_ticks >= 1)
    monitor.stop()
    again = Monitor(monitor.folder, make_source=FakeSource, keeping=FAST)
    again.start()

    (resumed,) = again.recorders()
    until(lambda: resumed.status().num_ticks >= 1)
    again.stop()

    assert resumed.path == recorder.path
    assert len(monitor.recordings()) == 1


def test_a_recording_that_cannot_go_on_is_left_alone(monitor, caplog):
    monitor.folder.mkdir()
    (monitor.folder / "broken.kvscope").write_text("no database")
    Store.create(monitor.folder / "refused.kvscope", About(source="http://forbidden:1")).close()
    held = Store.create(monitor.folder / "held.kvscope", About(source="http://localhost:9"))

    monitor.start()
    held.close()

    assert monitor.recorders() == ()
    assert {"broken", "refused", "held"} <= set(caplog.text.replace(".", " ").split())


def test_two_recordings_of_one_engine_go_on_as_one(monitor):
    monitor.folder.mkdir()
    for name in ("a", "b"):
        Store.create(monitor.folder / f"{name}.kvscope", About(source="http://localhost:8000")).close()

    monitor.start()

    assert len(monitor.recorders()) == 1


def test_there_is_a_most(monitor, monkeypatch):
    monkeypatch.setattr(monitor_module, "MOST_RECORDERS", 1)
    monitor.watch("http://localhost:8000")

    with pytest.raises(PlanError, match="most"):
        monitor.watch("http://localhost:8001")
    monitor.folder.joinpath("c.kvscope").unlink(missing_ok=True)
    Store.create(monitor.folder / "c.kvscope", About(source="http://localhost:9000")).close()
    monitor.start()

    assert len(monitor.recorders()) == 1
    assert MOST_RECORDERS == 16


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    monitor = Monitor(tmp_path / "file" / "recordings", make_source=FakeSource)

    with pytest.raises(RecordingError) as fault:
        monitor.watch("http://localhost:8000")

    assert fault.value.kind == "disk"
    assert monitor.recordings() == ()


@pytest.mark.parametrize("seconds", [0.0, 0.1, 61, float("nan")])
def test_an_interval_out_of_range_is_refused(seconds):
    with pytest.raises(PlanError, match="every"):
        Keeping(interval_seconds=seconds)


def test_files_of_the_same_second_get_names_of_their_own(tmp_path):
    clock = Clock(wall=lambda: 1_760_000_000.0)
    monitor = Monitor(tmp_path, make_source=FakeSource, clock=clock, keeping=FAST)
    for _ in range(3):
        monitor.watch("http://[::1]:8000")
        monitor.unwatch("http://[::1]:8000")

    names = sorted(path.name for path in monitor.recordings())

    assert names == [
        "1-8000-20251009-085320-2.kvscope",
        "1-8000-20251009-085320-3.kvscope",
        "1-8000-20251009-085320.kvscope",
    ]


@pytest.mark.parametrize(
    ("environment", "platform", "end"),
    [
        ({"KVSCOPE_RECORDINGS": "/data/runs"}, "linux", "/data/runs"),
        ({"XDG_DATA_HOME": "/xdg"}, "linux", "/xdg/kvscope/recordings"),
        ({}, "linux", ".local/share/kvscope/recordings"),
        ({}, "darwin", "Application Support/kvscope/recordings"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/kvscope/recordings"),
        ({}, "win32", "AppData/Local/kvscope/recordings"),
    ],
)
def test_recordings_stand_in_the_platforms_folder(environment, platform, end):
    assert str(default_recordings_folder(environment, platform)).endswith(str(Path(end)))


def test_the_application_starts_and_stops_the_recorders(tmp_path, monkeypatch):
    import app  # noqa: PLC0415  it imports Streamlit

    monitor_module.stop_process_monitor()  # another test's, if there is one
    monkeypatch.setenv("KVSCOPE_RECORDINGS", str(tmp_path))
    Store.create(tmp_path / "run.kvscope", About(source="http://127.0.0.1:9", interval_ms=200)).close()

    async def life() -> tuple[int, str]:
        async with app._lifespan(app.app):
            (recorder,) = monitor_module.process_monitor().recorders()
            await asyncio.to_thread(until, lambda: recorder.status().state != "starting")
            return len(monitor_module.process_monitor().recorders()), recorder.status().state

    # In a thread of its own: browser tests leave a running event loop in this one.
    with ThreadPoolExecutor(max_workers=1) as pool:
        outcome = pool.submit(asyncio.run, life()).result(timeout=60)

    assert outcome == (1, "refused")
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.kvscope"]
    monitor_module.stop_process_monitor()


def test_an_address_that_may_not_be_read_is_refused(monkeypatch):
    monkeypatch.delenv("KVSCOPE_ALLOW_SCRAPE", raising=False)

    with pytest.raises(PlanError, match="KVSCOPE_ALLOW_SCRAPE"):
        http_source("http://192.0.2.1:8000")
