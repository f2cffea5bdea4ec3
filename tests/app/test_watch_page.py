"""The Watch page: an engine that answers, one that does not, what it does not export, the plan beside it, and recordings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from live import local_engines, monitor
from live.nvml import DetectedGpu, NvmlState, ProcessMemory
from live.sample_codec import encode
from live.samples import EngineIdentity, EngineSample, EngineSnapshot
from live.store import About, Store
from planner.units import GIB
from tests.fakes.metrics_server import MetricsServer, metrics_server

ROOT = Path(__file__).parents[2]
START_MS = 1_760_000_000_000
OpenPage = Callable[[], AppTest]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of recordings, and a monitor of its own."""
    monitor.stop_process_monitor()
    monkeypatch.setenv(monitor.FOLDER_SETTING, str(tmp_path))
    yield tmp_path
    monitor.stop_process_monitor()


@pytest.fixture
def open_watch(folder: Path) -> OpenPage:  # noqa: ARG001 - the folder is set up first
    """Opens the Watch page from the frame."""

    def open_page() -> AppTest:
        app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60).run()
        app.switch_page("watch.py")
        return app.run()

    return open_page


@pytest.fixture
def engine() -> Iterator[MetricsServer]:
    with metrics_server() as server:
        yield server


def said(app: AppTest) -> str:
    kinds = (app.header, app.subheader, app.markdown, app.caption, app.error, app.warning, app.info, app.success)
    return "\n".join(element.value.replace("\\", "") for kind in kinds for element in kind)


def metric(app: AppTest, label: str) -> tuple[str, str]:
    found = next(each for each in app.metric if each.label == label)
    return found.value, found.delta


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
    until(app, lambda each: bool(each.dataframe))

    table = app.dataframe[0].value.set_index("Number")
    assert table.loc["KV blocks", "Engine"] == "27,000"
    assert table.loc["KV blocks", "Error"].startswith(("+", "−"))
    assert table.loc["KV cache tokens", "Verdict"] == "not exported by this version"


def test_without_a_plan_the_page_offers_one(open_watch: OpenPage, engine: MetricsServer) -> None:
    engine.text = engine.text.replace("tiny-llama", "Qwen/Qwen3-32B")
    app = watch(open_watch(), engine.url)
    until(app, lambda each: "Beside the plan" in said(each))
    assert "has no plan for Qwen/Qwen3-32B" in said(app)

    app.button(key="watch_plan_for").click().run()
    assert until(app, lambda each: bool(each.dataframe))


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
    assert f"Recording {path.name}" in said(app)


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


def test_the_recorded_session_plays_for_a_newcomer(
    open_watch: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    ticks = [snapshot(second, kv_usage_fraction=0.4, num_requests_running=1.0) for second in range(20)]
    path = write_recording(outside / "real.kvscope", ticks)
    monkeypatch.setattr("pages.parts.watch_state.packaged_recordings", lambda: (path,))
    app = open_watch()
    app.button(key="watch_packaged").click().run()

    assert not app.exception
    assert "Recording real.kvscope" in said(app).replace("`", "")


def test_an_engine_on_this_machine_is_found_when_asked(
    open_watch: OpenPage, engine: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engines, "USUAL_PORTS", (engine.port,))
    look = partial(local_engines.find_local_engines, find_ports=tuple)
    monkeypatch.setattr(local_engines, "find_local_engines", look)
    app = open_watch()
    assert engine.requests == []  # nobody asked yet

    app.button(key="watch_find").click().run()
    assert engine.requests == ["/metrics"]
    app.button(key="watch_found_0").click().run()
    until(app, lambda each: "Connected" in said(each))


def test_a_look_that_finds_nothing_says_what_to_do(open_watch: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engines, "find_local_engines", lambda **_: ())
    app = open_watch()
    app.button(key="watch_find").click().run()

    assert "No vLLM answers on this machine" in said(app)
