"""The application's demo engine: watched and recorded by itself, its load marked, its pool predicted, ended with the application."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fakes.vllm_stand_in import FAILS, stand_in_environment

from live.beside import ENDPOINTS_KEY, BesideEndpoints
from live.engine import demo_session
from live.engine.demo import DEMO_TITLE, LOAD_MARK
from live.engine.demo_plan import demo_request
from live.engine.demo_process import DemoSettings
from live.engine.demo_session import DemoSession, SessionStatus, end_forgotten_demos, known_load
from live.engine.environment import FOLDER_VARIABLE
from live.engine.load import DEMO_CONFIG, named_load
from live.engine.tiny_model import CONFIG
from live.monitor import Keeping, Monitor
from live.recording import Recording
from live.store import About, Store
from planner.facts import PlanError
from planner.inventory import ModelDocuments
from planner.planning import answer

DEMO_RECORDING = Path(demo_session.__file__).parents[1] / "data" / "demo.kvscope"


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    monitor = Monitor(tmp_path / "recordings", keeping=Keeping(interval_seconds=0.2))
    yield monitor
    monitor.stop()


@pytest.fixture
def demo(tmp_path: Path, monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> Iterator[DemoSession]:
    monkeypatch.setenv(FOLDER_VARIABLE, str(stand_in_environment(tmp_path / "engine")))
    monkeypatch.setattr(demo_session, "QUIET_SECONDS", 0.5)
    session = DemoSession(lambda: monitor)
    yield session
    session.close()


def until(demo: DemoSession, is_there: Callable[[SessionStatus], object], seconds: float = 30.0) -> SessionStatus:
    end = time.monotonic() + seconds
    while not is_there(status := demo.status()):
        assert time.monotonic() < end, status
        time.sleep(0.05)
    return status


def test_it_is_watched_and_driven_by_itself_and_ends_without_a_gap(demo: DemoSession, monitor: Monitor):
    assert demo.start("burst").engine.state == "starting"
    status = until(demo, lambda status: status.engine.load_state == "running")
    assert status.is_moving
    (recorder,) = monitor.recorders()
    assert recorder.address == status.address == status.engine.address
    until(demo, lambda status: status.engine.load_state == "done")
    until(demo, lambda _: known_load(recorder.recording))

    demo.stop()
    until(demo, lambda status: status.engine.state == "stopped" and not status.is_stopping)

    assert (monitor.recorders(), demo.status().address) == ((), None)
    with closing(Recording.open(recorder.path)) as recording:
        summary, gaps = recording.summary(), recording.gaps()
        known = known_load(recording)
        endpoints = BesideEndpoints.from_text(recording.about(ENDPOINTS_KEY) or "")
    assert (summary.title, summary.ended_ms is not None, gaps) == (DEMO_TITLE, True, ())
    assert known is not None
    assert (known.name, known.load) == ("burst", named_load("burst"))
    assert endpoints.probe == status.engine.ports.probe_endpoint
    assert endpoints.kv_replay == status.engine.ports.replay_endpoint


def test_another_load_can_follow_and_is_the_one_that_is_known(demo: DemoSession, monitor: Monitor):
    demo.start("burst")
    until(demo, lambda status: status.engine.load_state == "done")
    demo.run_load("calm")

    (recorder,) = monitor.recorders()
    known = known_load(recorder.recording)
    assert known is not None
    assert known.name == "calm"
    with pytest.raises(PlanError, match="running"):
        demo.run_load("burst")


def test_a_second_start_changes_nothing(demo: DemoSession):
    first = demo.start("calm").engine
    second = demo.start("burst").engine

    assert first.ports == second.ports


def test_it_is_stopped_while_it_starts(demo: DemoSession, monitor: Monitor):
    demo.start("calm")
    demo.stop()

    until(demo, lambda status: status.engine.state == "stopped" and not status.is_stopping)
    assert monitor.recorders() == ()
    with pytest.raises(PlanError, match="not ready"):
        demo.run_load("calm")


def test_a_load_that_there_is_not_starts_nothing(demo: DemoSession):
    with pytest.raises(PlanError, match="calm, shared-prefix"):
        demo.start("storm")

    assert demo.status().engine.state == "stopped"


def test_a_failed_start_tells_its_last_lines_and_can_be_tried_again(
    demo: DemoSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(FOLDER_VARIABLE, str(stand_in_environment(tmp_path / "broken", FAILS)))
    demo.start("calm")
    status = until(demo, lambda status: status.engine.state == "failed")
    assert status.engine.log_tail[-1] == "ValueError: this engine was told to fail"

    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "engine"))
    until(demo, lambda _: demo.start("calm").engine.state == "starting")


def test_an_absent_environment_says_how_to_make_it(demo: DemoSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "nowhere"))

    status = demo.start("calm")

    assert (status.engine.state, "make engine" in status.engine.text) == ("absent", True)


def test_what_cannot_be_recorded_is_said_and_the_engine_still_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(stand_in_environment(tmp_path / "engine")))
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    demo = DemoSession(lambda: Monitor(tmp_path / "file"))
    try:
        demo.start("calm")
        status = until(demo, lambda status: status.problem)
        assert (status.engine.state, "cannot be written" in status.problem) == ("ready", True)
    finally:
        demo.close()

    assert demo.status().engine.state == "stopped"


def test_a_killed_applications_demo_is_not_gone_on_with(tmp_path: Path):
    for name, title in (("demo", DEMO_TITLE), ("own", "mine")):
        Store.create(tmp_path / f"{name}.kvscope", About(source=f"http://localhost:{len(name)}", title=title)).close()
    monitor = Monitor(tmp_path)
    monitor.start()
    try:
        assert len(monitor.recorders()) == 2
        end_forgotten_demos(monitor)
        (left,) = monitor.recorders()
    finally:
        monitor.stop()

    assert left.path.name == "own.kvscope"
    assert Recording.open(tmp_path / "demo.kvscope").summary().ended_ms is not None


def test_the_packaged_session_knows_its_load():
    with closing(Recording.open(DEMO_RECORDING)) as recording:
        known = known_load(recording)
        first_ms = recording.summary().start_ms

    assert known is not None
    assert (known.name, known.load) == ("tour", named_load("tour"))
    assert 2000 < known.start_ms - (first_ms or 0) < 10_000


@pytest.mark.parametrize(
    ("title", "text"),
    [("my engine", f"{LOAD_MARK} calm: x"), (DEMO_TITLE, f"{LOAD_MARK} storm: x"), (DEMO_TITLE, "changed something")],
)
def test_no_load_is_guessed(tmp_path: Path, title: str, text: str):
    store = Store.create(tmp_path / "run.kvscope", About(source="http://localhost:8000", title=title))
    store.append(1_760_000_000_000, {"a": 1.0}, "{}")
    store.mark(1_760_000_000_000, "note", text)
    store.close()

    assert known_load(Recording.open(tmp_path / "run.kvscope")) is None


@pytest.mark.parametrize(("override", "num_blocks"), [(256, 256), (None, 2**30 // (3 * 2 * 2 * 64 * 2 * 32))])
def test_the_predicted_pool_is_the_settings_own(override: int | None, num_blocks: int):
    request = demo_request(DemoSettings(num_gpu_blocks_override=override))
    documents = ModelDocuments(model_id=request.model_id, config_json=json.dumps(CONFIG))

    pool = answer(request, documents)[0].pool

    # a block: 3 layers x keys and values x 2 heads x 64 x 2 bytes x 32 tokens
    assert (pool.num_blocks, pool.block_size, pool.tokens) == (num_blocks, DEMO_CONFIG.block_size, num_blocks * 32)
