"""The Watch page: an engine that answers, one that does not, what it does not export, the plan beside it, and recordings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from live import local_engines, monitor
from live.engine import demo_session
from live.nvml import DetectedGpu, NvmlState, ProcessMemory
from live.sample_codec import encode
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.store import About, Store
from planner.units import GIB
from tests.fakes.metrics_server import MetricsServer, metrics_server, metrics_text
from tests.fakes.real_prometheus import need_prometheus, real_prometheus
from tests.fakes.vllm_stand_in import FAILS, stand_in_environment

ROOT = Path(__file__).parents[2]
PACKAGED = ROOT / "live" / "data" / "demo.kvscope"
START_MS = 1_760_000_000_000
OpenPage = Callable[[], AppTest]


def open_page() -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60).run()
    app.switch_page("watch.py")
    return app.run()


@pytest.fixture
def open_watch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> OpenPage:  # noqa: ARG001 - the folder is set up first
    """Opens the Watch page from the frame, where no recorded session comes with the project."""
    monkeypatch.setattr("pages.parts.watch_state.packaged_recordings", tuple)
    return open_page


@pytest.fixture
def open_watch_first(folder: Path) -> OpenPage:  # noqa: ARG001
    """Opens the Watch page as a newcomer does, with the recorded session of the project."""
    return open_page


def said(app: AppTest) -> str:
    kinds = (app.header, app.subheader, app.markdown, app.caption, app.error, app.warning, app.info, app.success)
    return "\n".join(element.value.replace("\\", "") for kind in kinds for element in kind)


def metric(app: AppTest, label: str) -> tuple[str, str]:
    found = next(each for each in app.metric if each.label == label)
    return found.value, found.delta


def comparison(app: AppTest) -> pd.DataFrame | None:
    """The table of the engine's numbers beside the plan's; None while there is none."""
    found = (each.value for each in app.dataframe if "Verdict" in each.value)
    return next((table.set_index("Number") for table in found), None)


def watch(app: AppTest, address: str) -> AppTest:
    app.text_input(key="watch_address").input(address)
    return app.button(key="watch_watch").click().run()


def until(app: AppTest, is_there: Callable[[AppTest], bool]) -> AppTest:
    """Run the page again until it is as expected, as its fragments do by the clock."""
    deadline = time.monotonic() + 30
    while not is_there(app) and time.monotonic() < deadline:
        time.sleep(0.1)
        app.run()
    assert is_there(app), said(app)
    return app


def snapshot(second: int, **numbers: float) -> EngineSnapshot:
    time_ns = (START_MS + 1000 * second) * 1_000_000
    sample = EngineSample(time_unix_ns=time_ns, identity=EngineIdentity(model_name="tiny-llama", engine="0"), **numbers)
    return EngineSnapshot(time_unix_ns=time_ns, source="http://localhost:8000", engines=(sample,))


def write_recording(path: Path, snapshots: list[EngineSnapshot]) -> Path:
    store = Store.create(path, About(source="http://localhost:8000"))
    for each in snapshots:
        encoded = encode(each)
        store.append(encoded.time_ms, encoded.numbers, encoded.document)
    store.close()
    return path


def test_an_empty_page_tells_how_to_begin(open_watch: OpenPage) -> None:
    app = open_watch()

    assert not app.exception
    assert "Nothing is watched yet" in said(app)
    assert "vllm serve" in said(app)
    assert app.text_input(key="watch_address").value == "http://localhost:8000"


def test_an_engine_is_seen_with_its_numbers_and_its_file(
    open_watch: OpenPage, engine: MetricsServer, folder: Path
) -> None:
    app = watch(open_watch(), engine.url)
    until(app, lambda each: "Connected" in said(each))

    assert not app.exception
    assert metric(app, "KV usage")[0].replace("\xa0", " ") == "25.0 %"
    assert metric(app, "Running")[0] == "3"
    assert metric(app, "Preemptions")[0] == "0"
    (path,) = folder.glob("*.kvscope")
    assert any(str(path) in code.value for code in app.code)


def test_the_press_alone_brings_the_numbers(
    open_watch: OpenPage, engine: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pages.parts.watch_state.FIRST_SECONDS", 30.0)  # however slow this machine is

    app = watch(open_watch(), engine.url)

    assert metric(app, "KV usage")[0].replace("\xa0", " ") == "25.0 %"


def test_what_is_absent_is_not_zero(open_watch: OpenPage, engine: MetricsServer) -> None:
    app = watch(open_watch(), engine.url)
    until(app, lambda each: "Connected" in said(each))

    for label in ("Stored to host", "Loaded from host", "Swapped requests", "External cache hits"):
        assert metric(app, label) == ("–", "not exported by this version")


@pytest.mark.parametrize(
    ("play", "title"),
    [
        ("other_service", "Not a vLLM engine"),
        ("error_500", "Answers with an error"),
        ("redirect", "Sends elsewhere"),
        ("flood", "Answer too large"),
    ],
)
def test_a_bad_answer_is_a_named_state(open_watch: OpenPage, engine: MetricsServer, play: str, title: str) -> None:
    engine.play = play  # type: ignore[assignment]
    app = watch(open_watch(), engine.url)

    until(app, lambda each: title in said(each))
    assert not app.exception


def test_an_engine_that_goes_away_comes_back(open_watch: OpenPage, engine: MetricsServer) -> None:
    app = watch(open_watch(), engine.url)
    until(app, lambda each: "Connected" in said(each))
    engine.stop()

    until(app, lambda each: "Not reachable" in said(each))
    assert "numbers are" in said(app)
    assert metric(app, "Running")[0] == "3"

    engine.start()
    until(app, lambda each: "Connected" in said(each))


def test_another_host_is_refused_in_a_sentence(open_watch: OpenPage) -> None:
    app = watch(open_watch(), "http://192.0.2.7:8000")

    assert "is not this machine" in said(app)
    assert "KVSCOPE_ALLOW_SCRAPE" in said(app)
    assert monitor.process_monitor().recorders() == ()


def test_a_plan_for_the_served_model_stands_beside_it(open_watch: OpenPage, engine: MetricsServer) -> None:
    engine.model = "Qwen/Qwen3-8B"
    labels = 'engine="0",model_name="Qwen/Qwen3-8B"'
    engine.text = engine.text.replace('engine="0",model_name="tiny-llama"', labels) + (
        "# TYPE vllm:cache_config_info gauge\n"
        'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="27000",gpu_memory_utilization="0.9"} 1.0\n'
    )
    app = watch(open_watch(), engine.url)
    until(app, lambda each: comparison(each) is not None)

    table = comparison(app)
    assert table is not None
    assert table.loc["KV blocks", "Engine"] == "27,000"
    assert table.loc["KV blocks", "Error"].startswith(("+", "−"))
    assert table.loc["KV cache tokens", "Verdict"] == "not exported by this version"


def test_a_plan_made_by_name_can_become_the_plan_pages(open_watch: OpenPage, engine: MetricsServer) -> None:
    engine.text = engine.text.replace("tiny-llama", "Qwen/Qwen3-32B")
    app = watch(open_watch(), engine.url)
    until(app, lambda each: "Beside the plan" in said(each))
    assert "made for the served one by its name" in said(app)

    app.button(key="watch_plan_for").click().run()
    until(app, lambda each: "Beside the plan" in said(each))
    assert "made for the served one by its name" not in said(app)


def test_a_recording_ends_when_told_and_stays(open_watch: OpenPage, engine: MetricsServer, folder: Path) -> None:
    app = watch(open_watch(), engine.url)
    until(app, lambda each: "Connected" in said(each))
    app.text_input(key="watch_note").input("changed max_num_seqs")
    app.button(key="watch_mark").click().run()
    assert "note: changed max_num_seqs" in said(app)

    app.button(key="watch_end").click().run()

    (path,) = folder.glob("*.kvscope")
    assert str(path) in said(app)
    assert monitor.process_monitor().recorders() == ()
    app.button(key="watch_replay_chosen").click().run()
    assert not app.exception
    assert f"Recording `{path.name}`" in said(app)


def test_a_recording_plays_and_says_what_it_sees(open_watch: OpenPage, folder: Path) -> None:
    ticks = [
        snapshot(
            second,
            kv_usage_fraction=0.98,
            num_requests_running=8.0,
            num_requests_waiting=5.0,
            num_preemptions=float(second // 25),
        )
        for second in range(300)
    ]
    write_recording(folder / "full.kvscope", ticks)
    app = open_watch()
    app.button(key="watch_replay_chosen").click().run()
    app.slider(key="watch_place").set_value(299).run()

    assert not app.exception
    assert "Memory-bound: requests are preempted" in said(app)
    assert "above 95% for 5.0 min" in said(app)
    assert "11 preemptions" in said(app)
    app.button(key="watch_close").click().run()
    assert "Nothing is watched yet" in said(app)


def test_the_place_follows_what_plays(open_watch: OpenPage, folder: Path) -> None:
    write_recording(folder / "calm.kvscope", [snapshot(second, kv_usage_fraction=0.2) for second in range(300)])
    app = open_watch()
    app.button(key="watch_replay_chosen").click().run()
    replay = app.session_state["watch_replay"]
    replay.pause()
    replay.seek(replay.start_ms + 120_000)
    app.run()

    assert not app.exception
    assert app.slider(key="watch_place").value == 120
    app.slider(key="watch_place").set_value(30).run()
    assert replay.position_ms() == replay.start_ms + 30_000


def test_a_damaged_recording_is_one_sentence(open_watch: OpenPage, folder: Path) -> None:
    (folder / "broken.kvscope").write_bytes(os.urandom(4096))
    app = open_watch()
    app.button(key="watch_replay_chosen").click().run()

    assert not app.exception
    assert len(app.error) == 1
    assert "Nothing is watched yet" in said(app)


def test_cards_stand_beside_the_engine(
    open_watch: OpenPage, engine: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = DetectedGpu(
        index=0,
        name="NVIDIA L4",
        total_bytes=24 * GIB,
        used_bytes=18 * GIB,
        free_bytes=6 * GIB,
        reserved_bytes=None,
        compute_capability=(8, 9),
        is_mig_enabled=False,
        processes=(ProcessMemory(pid=41, used_bytes=17 * GIB), ProcessMemory(pid=42, used_bytes=None)),
    )
    monkeypatch.setattr("pages.parts.watch_state.cards", lambda: NvmlState(kind="ok", gpus=(gpu,)))
    app = watch(open_watch(), engine.url)

    assert not app.exception
    assert "41 holds 17.0 GiB; 42 holds size not told" in said(app).replace("\xa0", " ")


def test_no_driver_is_said(open_watch: OpenPage, engine: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    state = NvmlState(kind="driver_absent", remedy="No NVIDIA driver answers on this machine.")
    monkeypatch.setattr("pages.parts.watch_state.cards", lambda: state)
    app = watch(open_watch(), engine.url)

    assert "No NVIDIA driver answers on this machine." in said(app)


def test_the_recorded_session_plays_until_an_engine_is_chosen(
    open_watch_first: OpenPage, engine: MetricsServer
) -> None:
    app = open_watch_first()

    assert not app.exception
    assert "A recorded session of a real engine plays until you choose one" in said(app)
    assert "Recording `demo.kvscope`" in said(app)
    assert metric(app, "KV usage")[0] != "–"
    assert "Recorded, not live" in said(app)
    assert "Connected" not in said(app)
    assert "Nothing is watched yet" not in said(app)

    watch(app, engine.url)
    until(app, lambda each: "Connected" in said(each))
    assert "recorded session" not in said(app)
    assert metric(app, "Running")[0] == "3"


def test_the_recorded_session_stands_beside_its_exact_plan(open_watch_first: OpenPage) -> None:
    app = open_watch_first()

    table = comparison(app)
    assert table is not None
    assert table.loc["KV blocks", ["Engine", "Plan", "Verdict"]].tolist() == ["256", "256", "equal"]
    assert table.loc["KV cache tokens", "Plan"] == "8,192"


def test_the_recorded_session_plays_once_and_not_again_when_closed(open_watch_first: OpenPage) -> None:
    app = open_watch_first()
    app.button(key="watch_close").click().run()

    assert "Nothing is watched yet" in said(app)
    app.button(key="watch_packaged").click().run()
    assert "Recording `demo.kvscope`" in said(app)
    assert "until you choose one" not in said(app)


def test_a_session_that_finds_an_engine_watched_sees_that_engine(
    open_watch_first: OpenPage, engine: MetricsServer
) -> None:
    monitor.process_monitor().watch(engine.url)
    app = open_watch_first()

    until(app, lambda each: "Connected" in said(each))
    app.button(key="watch_end").click().run()
    assert "Nothing is watched yet" in said(app)
    assert "The recording has ended" in said(app)


def two_engines(monkeypatch: pytest.MonkeyPatch, *engines: MetricsServer) -> None:
    monkeypatch.setattr(local_engines, "USUAL_PORTS", tuple(each.port for each in engines))
    look = partial(local_engines.find_local_engines, find_ports=tuple)
    monkeypatch.setattr(local_engines, "find_local_engines", look)


def test_the_only_engine_that_is_found_is_watched_at_once(
    open_watch: OpenPage, engine: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_engines(monkeypatch, engine)
    app = open_watch()
    assert engine.requests == []  # nobody asked yet

    app.button(key="watch_find").click().run()
    assert engine.requests[0] == "/metrics"
    until(app, lambda each: "Connected" in said(each))


def test_of_several_engines_one_is_chosen(
    open_watch: OpenPage, engine: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with metrics_server() as other:
        other.text = metrics_text(model="other", running=7)
        two_engines(monkeypatch, engine, other)
        app = open_watch()
        app.button(key="watch_find").click().run()

        assert monitor.process_monitor().recorders() == ()
        assert "other" in app.button(key="watch_found_1").label
        app.button(key="watch_found_1").click().run()
        until(app, lambda each: "Connected" in said(each))
        assert metric(app, "Running")[0] == "7"


def test_a_look_that_finds_nothing_says_what_to_do(open_watch: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engines, "find_local_engines", lambda **_: ())
    app = open_watch()
    app.button(key="watch_find").click().run()

    assert "No vLLM answers on this machine" in said(app)


def test_an_uploaded_recording_plays(open_watch: OpenPage) -> None:
    app = open_watch()
    app.file_uploader(key="watch_upload").upload("from a friend.kvscope", PACKAGED.read_bytes()).run()
    app.button(key="watch_play_upload").click().run()

    assert not app.exception
    assert "Recording `from_a_friend.kvscope`" in said(app)
    assert metric(app, "KV usage")[0] != "–"


@pytest.mark.parametrize("name", ["junk.kvscope", "junk.csv"])
def test_an_upload_that_is_no_recording_is_one_sentence(open_watch: OpenPage, name: str) -> None:
    app = open_watch()
    app.file_uploader(key="watch_upload").upload(name, os.urandom(4096)).run()
    app.button(key="watch_play_upload").click().run()

    assert not app.exception
    assert len(app.error) == 1
    assert "Nothing is watched yet" in said(app)


# -- beside the metrics, a fleet, a log --------------------------------------------------------------------------------


def test_a_probe_and_events_are_recorded_where_they_are_typed(open_watch: OpenPage, engine: MetricsServer) -> None:
    app = open_watch()
    app.text_input(key="watch_probe").input("tcp://127.0.0.1:8719")
    watch(app, engine.url)

    until(app, lambda each: "No probe has been heard" in said(each))
    (recorder,) = monitor.process_monitor().recorders()
    assert "tcp://127.0.0.1:8719" in (recorder.recording.about("beside") or "")


def test_an_endpoint_of_another_host_is_refused_like_an_address(open_watch: OpenPage, engine: MetricsServer) -> None:
    app = open_watch()
    app.text_input(key="watch_kv_events").input("tcp://192.0.2.7:5557")
    watch(app, engine.url)

    assert "KVSCOPE_ALLOW_SCRAPE" in said(app)
    assert monitor.process_monitor().recorders() == ()


def test_a_fleets_engine_is_watched_with_its_past(open_watch: OpenPage, tmp_path: Path, engine: MetricsServer) -> None:
    need_prometheus()
    engine.text = metrics_text(model="org/fleet-model", usage=0.5)
    with real_prometheus(tmp_path, f"127.0.0.1:{engine.port}") as address:
        app = open_watch()
        app.text_input(key="watch_fleet_server").input(address).run()
        deadline = time.monotonic() + 30
        while not [each for each in app.selectbox if each.key == "watch_fleet_engine"] and time.monotonic() < deadline:
            app.button(key="watch_fleet_look").click().run()
        assert "org/fleet-model" in app.selectbox(key="watch_fleet_engine").options[0]
        app.button(key="watch_fleet_watch").click().run()
        until(app, lambda each: "Connected" in said(each))

        assert not app.exception
        assert metric(app, "KV usage")[0].replace("\xa0", " ") == "50.0 %"
        assert app.selectbox(key="watch_minutes").value == 60
        assert "org/fleet-model, engine 0, instance=127.0.0.1" in said(app)
        assert "prometheus:" not in said(app)
        monitor.stop_process_monitor()


def test_a_server_that_is_none_is_one_sentence(open_watch: OpenPage, engine: MetricsServer) -> None:
    app = open_watch()
    app.text_input(key="watch_fleet_server").input(engine.url).run()
    app.button(key="watch_fleet_look").click().run()

    assert "answers with HTTP status 404" in said(app)
    assert not [each for each in app.selectbox if each.key == "watch_fleet_engine"]


LOG = """INFO 11-29 10:00:00 [gpu_model_runner.py:100] Model loading took 15.25 GiB memory and 3.2 seconds
INFO 11-29 10:00:09 [gpu_worker.py:300] Available KV cache memory: 50.50 GiB
"""


def test_a_log_stands_beside_the_plans_parts(open_watch: OpenPage, engine: MetricsServer) -> None:
    engine.text = engine.text.replace("tiny-llama", "Qwen/Qwen3-8B")
    app = watch(open_watch(), engine.url)
    until(app, lambda each: "Beside the plan" in said(each))
    app.text_area(key="watch_log_text").input(LOG).run()

    table = next(each.value for each in app.dataframe if "Term" in each.value).set_index("Term")
    assert table.loc["Weights", "Log"].replace("\xa0", " ") == "15.2 GiB"
    assert table.loc["Weights", "Plan minus log"].endswith("MiB")
    assert list(table.index) == ["Weights", "Available for KV cache"]
    assert "The plan is that of Qwen/Qwen3-8B" in said(app)


def test_a_log_can_be_a_file(open_watch: OpenPage, engine: MetricsServer) -> None:
    app = watch(open_watch(), engine.url)
    app.file_uploader(key="watch_log_file").upload("vllm.log", LOG.encode()).run()

    assert any("Term" in each.value for each in app.dataframe)


def test_a_text_that_is_no_log_says_so(open_watch: OpenPage, engine: MetricsServer) -> None:
    app = watch(open_watch(), engine.url)
    app.text_area(key="watch_log_text").input("hello").run()

    assert "No line here says what vLLM took" in said(app)


# -- the demo engine ---------------------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stand-in for the engine environment, whose engine is up in a second."""
    monkeypatch.setenv("KVSCOPE_ENGINE", str(stand_in_environment(tmp_path / "engine")))
    monkeypatch.setattr(demo_session, "QUIET_SECONDS", 0.5)
    yield
    demo_session.stop_process_demo()


@pytest.mark.usefixtures("stand_in")
def test_the_demo_engine_starts_is_shown_and_stops(open_watch_first: OpenPage) -> None:
    app = open_watch_first()
    app.selectbox(key="watch_demo_load").set_value("burst").run()
    app.button(key="watch_demo_start").click().run()
    assert "recorded session" in said(app)  # it plays on while the engine starts

    until(app, lambda each: "Connected" in said(each) and "recorded session" not in said(each))
    until(app, lambda each: "90 requests were answered" in said(each))
    table = comparison(app)
    assert table is not None
    assert table.loc["KV blocks", ["Engine", "Plan", "Verdict"]].tolist() == ["256", "256", "equal"]
    assert "Load begins: burst" in said(app)
    (recorder,) = monitor.process_monitor().recorders()
    app.button(key="watch_demo_plan").click().run()
    answered = app.switch_page("plan.py").run()
    assert not answered.exception
    assert "kvscope-demo" in said(answered)
    app.switch_page("watch.py").run()

    app.button(key="watch_demo_stop").click().run()
    until(app, lambda each: "The recording has ended" in said(each) and "being stopped" not in said(each))
    assert monitor.process_monitor().recorders() == ()
    assert [each for each in app.button if each.key == "watch_demo_start"]
    assert app.selectbox(key="watch_recording").value == recorder.path


def test_without_an_environment_the_page_says_how_to_make_one(
    open_watch: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSCOPE_ENGINE", str(tmp_path / "none"))
    app = open_watch()

    assert "make engine" in [each.value for each in app.code]
    assert not [each for each in app.button if each.key == "watch_demo_start"]


def test_an_engine_that_fails_shows_its_last_lines(
    open_watch: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSCOPE_ENGINE", str(stand_in_environment(tmp_path / "engine", FAILS)))
    app = open_watch()
    app.button(key="watch_demo_start").click().run()

    until(app, lambda each: "ended by itself" in said(each))
    assert any("this engine was told to fail" in each.value for each in app.code)
    assert [each for each in app.button if each.key == "watch_demo_start"]
    demo_session.stop_process_demo()
