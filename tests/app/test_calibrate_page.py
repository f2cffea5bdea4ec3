"""The Calibrate page: a log beside its plan, what is kept when pressed and only then, and the Plan page that follows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from live import monitor
from live.calibration_store import FILE_SETTING, CalibrationStore
from pages.parts import calibrate_sources
from pages.parts.calibrate_state import Dropped
from planner.startup_log import read_startup_log
from tests.fakes.metrics_server import metrics_server, metrics_text
from tests.start_logs import StartNumbers, start_log

ROOT = Path(__file__).parents[2]
OFF = StartNumbers(activation=2.31, non_torch=0.41, pool=57.24, tokens=416_800, concurrency=50.88)
OpenPage = Callable[..., AppTest]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of calibrations, and a monitor of its own."""
    monitor.stop_process_monitor()
    monkeypatch.setenv(monitor.FOLDER_SETTING, str(tmp_path / "recordings"))
    monkeypatch.setenv(FILE_SETTING, str(tmp_path / "calibrations.json"))
    return tmp_path / "calibrations.json"


@pytest.fixture
def open_calibrate(kept: Path) -> OpenPage:  # noqa: ARG001 - the file is named first
    """Opens the Calibrate page from the frame, with a log in it where one is given."""

    def open_page(text: str = "", **query: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60)
        for name, value in query.items():
            app.query_params[name] = value
        app.run()
        app.switch_page("calibrate.py").run()
        return app.text_area(key="calib_lines").input(text).run() if text else app

    return open_page


def said(app: AppTest) -> str:
    kinds = (app.header, app.subheader, app.markdown, app.caption, app.error, app.warning, app.info, app.success)
    return "\n".join(element.value.replace("\\", "") for kind in kinds for element in kind)


def press(app: AppTest, name: str) -> AppTest:
    return app.button(key=f"calib_{name}").click().run()


def rows(app: AppTest, place: int = 0) -> list[dict[str, str]]:
    found: list[dict[str, str]] = app.dataframe[place].value.to_dict("records")
    return found


def link_of(app: AppTest, name: str) -> str | None:
    found = app.query_params.get(name)
    return found[0] if isinstance(found, list) else found


def test_a_newcomer_is_told_what_to_give(open_calibrate: OpenPage) -> None:
    app = open_calibrate()

    assert not app.exception
    assert "Set a start beside its plan" in said(app)
    assert "None yet" in said(app)


def test_a_log_is_set_beside_its_plan(open_calibrate: OpenPage) -> None:
    app = open_calibrate(start_log())

    assert not app.exception
    assert "Read: Qwen3-8B, vLLM 0.19.0, TP 1." in said(app)
    assert "measured 57.50 GiB" in said(app)
    assert "inside the band" in said(app)
    assert "adds up" in said(app)
    assert {row["Term"] for row in rows(app)} >= {"Weights", "Activation peak", "KV cache pool", "KV tokens"}


def test_nothing_is_kept_until_pressed(open_calibrate: OpenPage, kept: Path) -> None:
    open_calibrate(start_log(OFF))

    assert not kept.exists()


def test_pressing_keeps_the_figures_and_no_line_of_the_log(open_calibrate: OpenPage, kept: Path) -> None:
    secret = "hf_secretTokenOfTheUser"  # noqa: S105 - what a log may hold
    app = open_calibrate(
        start_log(OFF).replace("'enable_prefix_caching'", f"'api_key': '{secret}', 'enable_prefix_caching'")
    )

    app = press(app, "calibrate")

    assert not app.exception
    (held,) = CalibrationStore(kept).all()
    assert held.card == "H100 80GB SXM"
    assert f"Kept as `{held.identity}`" in said(app)
    content = kept.read_text(encoding="utf-8")
    assert secret not in content
    assert "GiB for peak activation" not in content


def test_after_it_the_plan_is_nearer_narrower_and_names_it(open_calibrate: OpenPage) -> None:
    app = open_calibrate(start_log(OFF))
    before = next(row for row in rows(app) if row["Term"] == "KV cache pool")

    app = press(app, "calibrate")

    after = next(row for row in rows(app) if row["Term"] == "KV cache pool")
    assert before["Predicted"] == "57.50 GiB"
    assert after["Predicted"] == "57.25 GiB"
    assert "Predicted with calibration" in said(app)
    assert width(after["90 % band"]) < 0.7 * width(before["90 % band"])


def width(band: str) -> float:
    low, _, high = band.removesuffix(" GiB").partition(" to ")
    return float(high) - float(low)


def test_the_plan_page_follows_by_its_switch_and_its_link(open_calibrate: OpenPage, kept: Path) -> None:
    app = press(press(open_calibrate(start_log(OFF)), "calibrate"), "to_plan")
    app = app.switch_page("plan.py").run()
    (held,) = CalibrationStore(kept).all()
    measured = said(app)

    app = app.toggle(key="plan_use_calibration").set_value(False).run()

    assert "416,8" in measured
    assert "418,688 KV tokens" not in measured
    assert "418,688 KV tokens" in said(app)
    assert link_of(app, "calibration") is None
    app = app.toggle(key="plan_use_calibration").set_value(True).run()
    assert link_of(app, "calibration") == held.identity
    assert f"In use: `{held.identity}`" in said(app)


def test_a_link_without_a_name_means_the_general_constants(open_calibrate: OpenPage) -> None:
    press(open_calibrate(start_log(OFF)), "calibrate")

    app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60)
    app.query_params["model"], app.query_params["gpu"] = "Qwen/Qwen3-8B", "H100 80GB SXM"
    app.query_params["vllm_version"] = "0.19.0"
    app = app.run()

    assert app.toggle(key="plan_use_calibration").value is False
    assert "not used" in said(app)
    assert link_of(app, "calibration") is None


def test_a_link_with_a_name_that_is_not_held_says_so_and_keeps_it(open_calibrate: OpenPage) -> None:
    open_calibrate()

    app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60)
    app.query_params["model"], app.query_params["gpu"] = "Qwen/Qwen3-8B", "H100 80GB SXM"
    app.query_params["calibration"] = "node9~00000000"
    app = app.run()

    assert not app.exception
    assert "Named by the link and not held" in said(app)
    assert "node9~00000000" in said(app)
    assert link_of(app, "calibration") == "node9~00000000"


def test_a_card_of_another_era_is_not_touched(open_calibrate: OpenPage) -> None:
    app = press(open_calibrate(start_log(OFF)), "calibrate")

    app = app.switch_page("plan.py").run()

    assert "0.33.0" in said(app)
    assert not [toggle for toggle in app.toggle if toggle.key == "plan_use_calibration"]
    assert link_of(app, "calibration") is None


def test_a_calibration_is_shown_and_removed(open_calibrate: OpenPage, kept: Path) -> None:
    app = press(open_calibrate(start_log(OFF)), "calibrate")
    (held,) = CalibrationStore(kept).all()
    assert any("H100 80GB SXM" in expander.label for expander in app.expander)

    app = press(app, f"remove_{held.identity}")

    assert not app.exception
    assert CalibrationStore(kept).all() == ()
    assert "None yet" in said(app)


def test_a_log_that_says_neither_card_nor_model_asks_for_them(open_calibrate: OpenPage) -> None:
    app = open_calibrate(
        "INFO Model loading took 15.27 GiB memory and 5.1 seconds\nINFO Available KV cache memory: 57.5 GiB"
    )
    assert "Choose the model" in said(app)

    app = app.selectbox(key="calib_model_pasted lines").select("Qwen/Qwen3-8B").run()
    assert "Choose the card" in said(app)
    app = app.selectbox(key="calib_card_pasted lines").select("H100 80GB SXM").run()

    assert not app.exception
    assert "KV cache pool predicted" in said(app)


def test_text_that_is_no_log_is_said_to_be_none(open_calibrate: OpenPage) -> None:
    app = open_calibrate("<b>hello</b> [x](y)\nno engine here")

    assert not app.exception
    assert "holds no line" in said(app)


def test_a_file_that_is_no_log_is_no_start_to_choose(open_calibrate: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [("notes.md", "# How to run it"), ("start.log", start_log())]
    dropped = tuple(Dropped(name=name, log=read_startup_log(text)) for name, text in given)
    monkeypatch.setattr(calibrate_sources, "logs", lambda: dropped)

    app = open_calibrate()

    assert not app.exception
    assert "notes.md holds no line" in said(app)
    assert "Read: Qwen3-8B, vLLM 0.19.0, TP 1." in said(app)
    assert [box.label for box in app.selectbox if box.label.startswith("Start, one of")] == []


def test_a_start_outside_physics_is_refused_and_never_used(open_calibrate: OpenPage) -> None:
    app = open_calibrate(start_log(StartNumbers(activation=20.0)))

    assert "not learned from" in said(app)
    app = press(app, "calibrate")
    peak = next(row for row in rows(app) if row["Term"] == "Activation peak")
    assert peak["Predicted"] == "2.21 GiB"


def test_several_starts_of_one_file_calibrate_together(open_calibrate: OpenPage, kept: Path) -> None:
    other = StartNumbers(
        model="meta-llama/Llama-3.1-8B-Instruct", weights=14.99, activation=1.99, non_torch=0.42, pool=57.83
    )
    app = open_calibrate(start_log(OFF) + start_log(other))

    app = press(app, "calibrate_all")

    assert not app.exception
    (held,) = CalibrationStore(kept).all()
    assert [start.model_id for start in held.starts] == ["Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B-Instruct"]


def test_a_failed_start_is_read_and_advised(open_calibrate: OpenPage) -> None:
    failed = start_log(StartNumbers(utilization=0.25, max_model_len=40_960)).split(
        "(EngineCore_DP0 pid=71) INFO 04-22 09:14:58", maxsplit=1
    )[0]
    failed += (
        "(EngineCore_DP0 pid=71) INFO 04-22 09:14:58 [gpu_worker.py:436] Available KV cache memory: 2.07 GiB\n"
        "(EngineCore_DP0 pid=71) ERROR ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (2.07 GiB). Based on the available memory, the estimated maximum model "
        "length is 15072. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n"
    )

    app = open_calibrate(failed)
    app = app.selectbox(key="calib_card_pasted lines").select("H100 80GB SXM").run()

    assert not app.exception
    assert "This start failed" in said(app)
    found = {row["Term"]: row for row in rows(app)}
    assert found["One request needs"]["Measured"] == "5.62 GiB"
    assert found["Longest length that fits"]["Measured"] == "15,072"
    assert "--gpu-memory-utilization" in said(app)


ENGINE_CONFIG = (
    "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n# TYPE vllm:cache_config_info gauge\n"
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="26050",gpu_memory_utilization="0.95",cache_dtype="auto",engine="0",'
    'enable_prefix_caching="True"} 1.0\n'
)


def test_a_watched_engine_is_compared_and_teaches_too(open_calibrate: OpenPage, kept: Path) -> None:
    with metrics_server() as engine:
        engine.text = metrics_text(model="Qwen/Qwen3-8B") + ENGINE_CONFIG
        app = open_calibrate()
        recorder = monitor.process_monitor().watch(engine.url)
        deadline = time.monotonic() + 30
        while recorder.status().snapshot is None and time.monotonic() < deadline:
            time.sleep(0.1)
        app = app.run()
        app = app.button_group(key="calib_source").set_value("engine").run()

        assert not app.exception
        assert "measured 57.24 GiB" in said(app).replace("\xa0", " ")  # 26,050 blocks of 16 tokens of 144 KiB
        app = press(app, "calibrate")
    monitor.stop_process_monitor()

    assert not app.exception
    (held,) = CalibrationStore(kept).all()
    assert held.starts[0].source == "engine Qwen/Qwen3-8B"


def test_a_broken_file_of_calibrations_breaks_no_page(open_calibrate: OpenPage, kept: Path) -> None:
    kept.write_text("{not json", encoding="utf-8")

    app = open_calibrate(start_log())

    assert not app.exception
    assert "calibrations.json" in said(app)
    assert "KV cache pool predicted" in said(app)


def test_the_export_is_the_file_that_is_held(open_calibrate: OpenPage, kept: Path) -> None:
    press(open_calibrate(start_log(OFF)), "calibrate")

    record = json.loads(kept.read_text(encoding="utf-8"))

    assert record["calibrations"][0]["starts"][0]["model_id"] == "Qwen/Qwen3-8B"
