"""The Watch page's alerts, comparison of two recordings, and files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from live import monitor
from live.sample_codec import encode
from live.samples import CacheConfig, EngineIdentity, EngineSample, EngineSnapshot
from live.store import About, Store
from tests.fakes.metrics_server import MetricsServer, metrics_text

ROOT = Path(__file__).parents[2]
START_MS = 1_760_000_000_000
OpenPage = Callable[[], AppTest]


def said(app: AppTest) -> str:
    kinds = (app.header, app.subheader, app.markdown, app.caption, app.error, app.warning, app.info)
    return "\n".join(element.value.replace("\\", "") for kind in kinds for element in kind)


def until(app: AppTest, is_there: Callable[[AppTest], bool]) -> AppTest:
    deadline = time.monotonic() + 30
    while not is_there(app) and time.monotonic() < deadline:
        time.sleep(0.1)
        app.run()
    assert is_there(app), said(app)
    return app


def table(app: AppTest, *columns: str) -> list[dict[str, str]]:
    """The rows of the table that has these columns."""
    (found,) = [each.value for each in app.dataframe if set(columns) <= set(each.value.columns)]
    return [{str(name): str(cell) for name, cell in row.items()} for row in found.to_dict("records")]


def has_table(app: AppTest, *columns: str) -> bool:
    return any(set(columns) <= set(each.value.columns) for each in app.dataframe)


def watch(app: AppTest, engine: MetricsServer) -> AppTest:
    app.text_input(key="watch_address").input(engine.url)
    app.button(key="watch_watch").click().run()
    return until(app, lambda each: has_table(each, "Alert", "State"))


def states(app: AppTest) -> dict[str, str]:
    return {row["Alert"]: row["State"] for row in table(app, "Alert", "State")}


def test_each_limit_says_how_it_stands_and_what_cannot_alert(open_watch: OpenPage, engine: MetricsServer) -> None:
    app = watch(open_watch(), engine)

    assert states(app)["KV usage"] == "Below the limit"
    assert states(app)["Queue time"] == "Cannot alert: vllm:request_queue_time_seconds is not exported"
    assert "vllm:kv_offload_allocation_failure" in states(app)["Offload allocation failures"]
    assert "No alert was logged" in said(app)
    assert not app.exception


def test_an_alert_is_a_banner_and_a_line_of_the_log(open_watch: OpenPage, engine: MetricsServer) -> None:
    app = watch(open_watch(), engine)
    engine.text = metrics_text(preemptions=9)

    until(app, lambda each: "Preemptions of tiny-llama, engine 0: 9" in said(each) and bool(each.error))

    (row,) = table(app, "Begin (UTC)", "What")
    assert row["End (UTC)"] == "lasts"
    assert states(app)["Preemptions"].startswith("Alert since")


def test_a_limit_is_changed_on_the_page_and_kept_with_the_recording(
    open_watch: OpenPage, engine: MetricsServer
) -> None:
    app = watch(open_watch(), engine)
    app.number_input(key="watch_alert_kv_usage_hold").set_value(0.0).run()
    app.number_input(key="watch_alert_kv_usage_limit").set_value(20.0).run()

    until(app, lambda each: states(each)["KV usage"].startswith("Alert since"))

    (recorder,) = monitor.process_monitor().recorders()
    assert (recorder.alert_rules[0].limit, recorder.alert_rules[0].hold_seconds) == (20, 0)
    assert "20" in (recorder.recording.about("alert_rules") or "")


def test_a_limit_that_cannot_be_is_a_sentence_and_changes_nothing(open_watch: OpenPage, engine: MetricsServer) -> None:
    app = watch(open_watch(), engine)
    app.number_input(key="watch_alert_kv_usage_limit").set_value(300.0).run()

    assert "KV usage can have a limit of 1 to 100 %, not 300." in said(app)
    (recorder,) = monitor.process_monitor().recorders()
    assert recorder.alert_rules[0].limit == 95


def test_a_limit_that_is_switched_off_is_off(open_watch: OpenPage, engine: MetricsServer) -> None:
    app = watch(open_watch(), engine)
    app.toggle(key="watch_alert_waiting_is_on").set_value(False).run()

    until(app, lambda each: states(each)["Waiting requests"] == "Off")
    assert app.number_input(key="watch_alert_waiting_limit").disabled


# -- recordings ---------------------------------------------------------------------------------------------------------


def write(
    path: Path,
    usage: float,
    block_size: str,
    *,
    marks: tuple[tuple[int, str, str], ...] = (),
    cards: dict[str, float] | None = None,
) -> Path:
    store = Store.create(path, About(source="http://localhost:8000"))
    config = CacheConfig(labels=(("block_size", block_size),))
    for second in range(30):
        time_ns = (START_MS + 1000 * second) * 1_000_000
        engine = EngineSample(
            time_unix_ns=time_ns,
            identity=EngineIdentity(model_name="m", engine="0"),
            cache_config=config,
            kv_usage_fraction=usage,
            num_requests_running=4.0,
            num_requests_waiting=0.0,
            num_preemptions=float(second),
        )
        encoded = encode(EngineSnapshot(time_unix_ns=time_ns, source="x", engines=(engine,), vllm_version="0.32.0"))
        store.append(encoded.time_ms, {**encoded.numbers, **(cards or {})}, encoded.document)
    for second, kind, text in marks:
        store.mark(START_MS + 1000 * second, kind, text)
    store.close()
    return path


@pytest.fixture
def pair(folder: Path) -> tuple[Path, Path]:
    alert = (5, "alert", "KV usage of m, engine 0: 97 % for 30 s, at or above the limit of 95.")
    return write(folder / "a.kvscope", 0.25, "16", marks=(alert,)), write(folder / "b.kvscope", 0.5, "32")


def compare(app: AppTest, first: Path, second: Path) -> AppTest:
    app.toggle(key="watch_compare_on").set_value(True).run()
    app.selectbox(key="watch_compare_A_path").set_value(first)
    return app.selectbox(key="watch_compare_B_path").set_value(second).run()


def test_two_recordings_stand_side_by_side(open_watch: OpenPage, pair: tuple[Path, Path]) -> None:
    app = compare(open_watch(), *pair)

    rows = {row["Number"]: row for row in table(app, "B − A")}
    usage = {name: text.replace("\xa0", " ") for name, text in rows["KV usage, mean"].items()}
    assert (usage["A"], usage["B"], usage["B − A"], usage["Change"]) == ("25.0 %", "50.0 %", "+25.0 %", "+100.0%")
    assert rows["Preemptions, in all"]["A"] == "29"
    assert table(app, "Setting") == [{"Setting": "block_size", "A": "16", "B": "32"}]
    assert not app.exception


def test_recordings_without_marks_are_not_laid_over_by_one(open_watch: OpenPage, pair: tuple[Path, Path]) -> None:
    app = compare(open_watch(), *pair)
    app.segmented_control(key="watch_compare_by").set_value("mark").run()

    assert "Recording B has no mark" in said(app)
    assert not has_table(app, "B − A")


def test_by_the_clock_is_refused_where_no_moment_is_shared(
    open_watch: OpenPage, pair: tuple[Path, Path], folder: Path
) -> None:
    store = Store.create(folder / "late.kvscope", About(source="x"))
    store.append(START_MS + 10**9, {"m#0/kv_usage_fraction": 0.5}, "")
    store.close()
    app = compare(open_watch(), pair[0], folder / "late.kvscope")
    app.segmented_control(key="watch_compare_by").set_value("clock").run()

    assert "share no moment" in said(app)


def test_a_replay_shows_the_alerts_that_were_logged(open_watch: OpenPage, pair: tuple[Path, Path]) -> None:
    app = open_watch()
    app.selectbox(key="watch_recording").set_value(pair[0])
    app.button(key="watch_replay_chosen").click().run()
    app.slider(key="watch_place").set_value(29).run()

    (row,) = table(app, "Begin (UTC)", "What")
    assert row["What"].startswith("KV usage of m, engine 0: 97 %")
    assert "A recording shows the alerts that were logged." in said(app)


def test_a_replay_shows_the_cards_that_were_recorded(open_watch: OpenPage, folder: Path) -> None:
    names = ("used_bytes", "total_bytes", "largest_process_bytes")
    cards = {f"nvml/0/{name}": size * 2.0**30 for name, size in zip(names, (40, 80, 38), strict=True)}
    path = write(folder / "cards.kvscope", 0.5, "16", cards=cards)
    app = open_watch()
    app.selectbox(key="watch_recording").set_value(path)
    app.button(key="watch_replay_chosen").click().run()
    app.slider(key="watch_place").set_value(10).run()

    assert "Cards of the recorded machine" in said(app)
    told = said(app).replace("\xa0", " ")
    assert "card 0, 40.0 GiB of 80.0 GiB in use. Processes: the largest holds 38.0 GiB." in told


def test_a_replay_without_cards_says_nothing_of_them(open_watch: OpenPage, pair: tuple[Path, Path]) -> None:
    app = open_watch()
    app.selectbox(key="watch_recording").set_value(pair[0])
    app.button(key="watch_replay_chosen").click().run()

    assert "Cards of" not in said(app)


def test_the_first_two_that_can_be_compared_are_chosen(
    open_watch: OpenPage, folder: Path, pair: tuple[Path, Path]
) -> None:
    Store.create(folder / "zz-empty.kvscope", About(source="http://localhost:8000")).close()
    app = open_watch()

    app.toggle(key="watch_compare_on").set_value(True).run()

    chosen = {app.selectbox(key=f"watch_compare_{side}_path").value.name for side in "AB"}
    assert "zz-empty.kvscope" not in chosen
    assert len(chosen) == 2
    assert not app.error
    assert pair[0].exists()
