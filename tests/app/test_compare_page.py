"""The Compare page: what a reader does, and what the page then says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from live import monitor, nvml
from pages.parts import card_input, compare_progress
from planner import dry_run, fewest_cards
from planner.budget import plan
from planner.model_catalog import catalogue_documents
from planner.planning import facts_for
from planner.request import EngineFlags, PlanRequest
from planner.served_load import ServedLoad, serve
from tests.fakes.hub_server import FakeRepo, HubServer, running_hub, safetensors_bytes
from tests.fakes.metrics_server import metrics_server, metrics_text

ROOT = Path(__file__).parents[2]
FEW = "has_all_models!off~models!Qwen/Qwen3-8B|deepseek-ai/DeepSeek-V3~cards!L40S|H100 80GB SXM"
LOG = """\
INFO 11-02 10:00:01 [utils.py:328] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 16384}
(APIServer pid=10) INFO 11-02 10:00:01 [utils.py:233] vLLM API server version 0.31.0
(EngineCore_DP0 pid=20) INFO 11-02 10:00:15 [gpu_model_runner.py:3000] Model loading took 15.27 GiB and 8.1 seconds
"""
OpenPage = Callable[..., AppTest]


@pytest.fixture
def open_page() -> OpenPage:
    """Opens the Compare page from the frame, with the link's parameters as keywords."""

    def open_at(**query: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=120)
        for name, text in query.items():
            app.query_params[name] = text
        app.run()
        app.switch_page("compare.py")
        return app.run()

    return open_at


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A watched engine that serves the catalogue's Qwen3-8B, read at least once."""
    monitor.stop_process_monitor()
    monkeypatch.setenv(monitor.FOLDER_SETTING, str(tmp_path))
    with metrics_server() as server:
        server.text, server.model = metrics_text(model="Qwen/Qwen3-8B"), "Qwen/Qwen3-8B"
        recorder = monitor.process_monitor().watch(server.url)
        deadline = time.monotonic() + 20
        while recorder.status().snapshot is None and time.monotonic() < deadline:
            time.sleep(0.05)
        yield server.url
    monitor.stop_process_monitor()


def finished(app: AppTest) -> AppTest:
    """The page when its run under way is done."""
    deadline = time.monotonic() + 90
    while any(str(button.key).startswith("compare_stop") for button in app.button) and time.monotonic() < deadline:
        app.run()
    return app


def said(app: AppTest) -> str:
    kinds = (app.header, app.subheader, app.markdown, app.caption, app.error, app.warning, app.info)
    return "\n".join(element.value.replace("\\", "") for kind in kinds for element in kind)


def errors(app: AppTest) -> list[str]:
    return [error.value.replace("\\", "") for error in app.error]


def link(app: AppTest) -> str:
    text = app.query_params["fit"]
    return text if isinstance(text, str) else text[0]


def planned(model_id: str, gpu: str, **flags: object) -> object:
    request = PlanRequest(model_id=model_id, gpu=gpu, flags=EngineFlags(**flags))  # type: ignore[arg-type]  # by name
    return plan(request, facts_for(request, catalogue_documents(model_id)))


def test_the_first_visit_shows_the_whole_catalogue_on_well_known_cards(open_page) -> None:
    app = open_page()

    assert not app.exception
    assert "The longest request that fits" in said(app)
    data = app.dataframe[0].value
    assert len(data) > 100
    assert "H100 80GB SXM ×8" in data.columns


def test_a_cell_is_the_plan_of_its_request(open_page) -> None:
    app = open_page(fit=FEW)

    data = app.dataframe[0].value.set_index("Model")
    made = planned("Qwen/Qwen3-8B", "L40S", max_model_len="auto")

    assert data.loc["Qwen3-8B", "L40S ×1"] == made.pool.estimated_max_model_len
    assert data.loc["DeepSeek-V3", "L40S ×1"] < 0


def test_requests_at_a_length_take_the_place_of_the_longest_length(open_page) -> None:
    app = open_page(fit=f"measure!requests~length_tokens!16384~{FEW}")

    data = app.dataframe[0].value.set_index("Model")
    made = planned("Qwen/Qwen3-8B", "L40S", max_model_len=16384)
    assert "Requests of 16,384 tokens at once" in said(app)
    assert data.loc["Qwen3-8B", "L40S ×1"] == made.pool.max_concurrency


def test_a_picked_cell_tells_its_plan_and_leads_to_it(open_page) -> None:
    app = open_page(fit=FEW)

    app.session_state["compare_fit_grid"] = {"selection": {"rows": [], "columns": [], "cells": [[0, "L40S ×1"]]}}
    app.run()

    assert "deepseek-ai/DeepSeek-V3 · L40S ×1" in said(app)
    assert "The weights take" in said(app)
    app.button(key="compare_open_cell").click().run()
    assert not app.exception
    assert app.session_state["plan_gpu"] == "L40S"


def test_cards_are_chosen_in_sets(open_page) -> None:
    app = open_page(fit=FEW)

    app.button(key="compare_cards_small").click().run()

    columns = list(app.dataframe[0].value.columns)
    assert "RTX 4090 ×1" in columns
    assert "L40S ×1" not in columns


def test_the_filter_keeps_rows_by_name(open_page) -> None:
    app = open_page(fit=FEW)

    app.text_input(key="compare_search").set_value("deepseek").run()
    assert list(app.dataframe[0].value["Model"]) == ["DeepSeek-V3"]

    app.text_input(key="compare_search").set_value("no such thing").run()
    assert "No model's name has all these words." in said(app)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub on this machine that holds one model: the catalogue's Qwen3-8B under another name."""
    monkeypatch.setenv("KVSCOPE_CACHE", str(tmp_path))
    with running_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        weights = safetensors_bytes({"a.weight": ("BF16", [4, 8], 64)}, data=b"\0" * 64)
        config = catalogue_documents("Qwen/Qwen3-8B").config_json.encode()
        server.repos["acme/mine"] = FakeRepo(files={"config.json": config, "model.safetensors": weights})
        yield server


@pytest.mark.usefixtures("hub")
def test_models_from_the_hub_become_rows_and_what_cannot_be_read_is_said(open_page) -> None:
    app = open_page(fit=FEW)

    app.text_area(key="compare_hub_ids").set_value("acme/mine\nacme/none").run()
    app.button(key="compare_read_hub").click().run()
    told = errors(app)
    app.run()

    assert not app.exception
    assert [error.split(":")[0] for error in told] == ["acme/none"]
    data = app.dataframe[0].value.set_index("Model")
    assert data.loc["mine", "L40S ×1"] == data.loc["Qwen3-8B", "L40S ×1"]


def test_the_practitioners_table_stands_below_with_exact_values(open_page) -> None:
    app = open_page(fit=FEW)

    table = app.table[0].value
    assert [each.replace("\xa0", " ") for each in table["They say"]] == [
        "2,048 × 4",
        "4,096 × 8",
        "4,096 × 6",
        "8,192 × 12",
    ]
    assert table["Requests of that length"].iloc[3] == "4.58×"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("has_all_models!off", "Choose at least one model"),
        (f"{FEW}~cards!", "Choose at least one card"),
        (f"{FEW}~counts!", "Choose at least one number of cards"),
        (f"{FEW}~kv_dtypes!", "Choose at least one format of keys and values"),
        (f"{FEW}~weights!", "Choose at least one format of the weights"),
        (f"{FEW}~num_requests!0", "write a whole number from 1"),
        (f"{FEW}~measure!requests~length_tokens!0", "write a whole number from 1"),
        (f"{FEW}~measure!requests~length_tokens!999999999999", "write a whole number from 1"),
    ],
)
def test_a_choice_that_makes_no_table_is_said_at_its_field(open_page, text: str, sentence: str) -> None:
    app = open_page(fit=text)

    assert not app.exception
    assert all(sentence in error for error in errors(app))
    assert len(errors(app)) == 2  # at the field, and in the table's place
    assert not app.dataframe


def test_the_link_holds_the_choices_and_a_broken_one_is_told(open_page) -> None:
    app = open_page(fit=FEW)
    assert "DeepSeek-V3" in link(app)

    broken = open_page(fit="view!nonsense")
    assert "cannot be read" in said(broken)
    assert "The longest request that fits" in said(broken)


def test_scenarios_from_plan_link_and_log_stand_side_by_side(open_page) -> None:
    app = open_page(fit="view!scenarios")
    assert "Add two to four scenarios" in said(app)

    app.button(key="compare_add_plan").click().run()
    address = "http://127.0.0.1:1/?model=Qwen%2FQwen3-8B&gpu=L40S&kv_cache_dtype=fp8"
    app.text_input(key="compare_link").set_value(address).run()
    app.button(key="compare_add_link").click().run()
    app.text_area(key="compare_log").set_value(LOG).run()
    app.button(key="compare_add_log").click().run()

    assert not app.exception
    assert errors(app) == []
    text = said(app)
    assert "Qwen3-8B · 1 × H100 80GB SXM" in text
    assert "Qwen3-8B · 1 × L40S" in text
    assert "The log names no card" in text
    (table,) = app.table
    assert "≠" in set(table.value["≠"])
    assert len(table.value.columns) == 5


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(
    ("plan_model", "note"),
    [
        ("Qwen/Qwen3-8B", "the Plan page's flags are taken"),
        ("meta-llama/Llama-3.1-8B", "tensor_parallel_size is not exported"),
    ],
)
def test_the_watched_engine_stands_beside_the_plan_with_what_it_does_not_tell(open_page, plan_model, note) -> None:
    app = open_page(model=plan_model, gpu="L40S", fit="view!scenarios")
    app.button(key="compare_add_plan").click().run()

    app.button(key="compare_add_live").click().run()

    assert not app.exception
    assert errors(app) == []
    assert "from the watched engine" in said(app)
    assert note in said(app)


def test_only_differences_are_left_when_asked_for(open_page) -> None:
    app = open_page(fit="view!scenarios")
    app.button(key="compare_add_plan").click().run()
    app.button(key="compare_add_plan").click().run()
    assert not any("≠" in set(table.value["≠"]) for table in app.table)

    app.toggle(key="compare_only_differences").set_value(True).run()

    assert not app.table
    assert "Nothing differs." in said(app)


@pytest.mark.parametrize(
    ("field", "text", "button", "sentence"),
    [
        ("compare_link", "", "compare_add_link", "holds no plan"),
        ("compare_link", "http://x/?model=no%2Fsuch&gpu=L40S", "compare_add_link", "not in the catalogue"),
        (
            "compare_link",
            "http://x/?model=Qwen%2FQwen3-8B&gpu=nonsense-card",
            "compare_add_link",
            "not in the catalogue",
        ),
        ("compare_link", "http://x/?model=Qwen%2FQwen3-8B&gpu=L40S&evil=1", "compare_add_link", "evil"),
        ("compare_log", "hello", "compare_add_log", "log"),
        ("compare_link", "x", "compare_add_live", "No engine is watched"),
    ],
)
def test_a_source_that_gives_no_scenario_says_why(open_page, field: str, text: str, button: str, sentence: str) -> None:
    app = open_page(fit="view!scenarios")
    box = app.text_area(key=field) if field == "compare_log" else app.text_input(key=field)
    box.set_value(text).run()

    app.button(key=button).click().run()

    assert not app.exception
    assert any(sentence in error for error in errors(app))


def test_the_fewest_cards_are_found_and_cost_what_the_reader_says(open_page) -> None:
    app = finished(open_page(fit="view!cards~users!24~search_cards!L40S|A10G~most_cards!2"))

    assert not app.exception
    assert "1 × L40S" in said(app)
    assert "no price given" in said(app)
    assert "at most 350 W, 0.35 kWh an hour" in said(app)
    assert "350 W a card, the maker's maximum board power" in said(app)
    assert "power not known: type it" in said(app)

    type_price(app).run()
    app.text_input(key="compare_per_kilowatt_hour").set_value("0.4").run()
    assert "0.50 USD an hour, 365.00 a month" in said(app)
    assert "at most 300 W, 0.3 kWh an hour for 0.12 USD" in said(app)
    assert "300 W a card, as you gave" in said(app)


def test_the_limit_that_this_machines_driver_enforces_goes_before_the_makers(open_page, monkeypatch) -> None:
    found = nvml.DetectedGpu(
        index=0, name="NVIDIA L40S", total_bytes=46068 * 2**20, used_bytes=0, free_bytes=46068 * 2**20, reserved_bytes=None,
        compute_capability=(8, 9), is_mig_enabled=False, processes=(), power_limit_watts=275,
    )  # fmt: skip
    monkeypatch.setattr(card_input, "detect", lambda: nvml.NvmlState(kind="ok", gpus=(found,)))
    app = open_page(fit="view!cards~users!4~search_cards!L40S|H100 80GB SXM~most_cards!1")
    app.switch_page("plan.py").run()
    app.button(key="plan_detect").click().run()

    finished(app.switch_page("compare.py").run())

    assert not app.exception
    assert "275 W a card, the limit that this machine's driver enforces" in said(app)
    assert "700 W a card, the maker's maximum board power" in said(app)


def until_stopped(*args: Any, should_stop: Callable[[], bool], **fields: Any) -> ServedLoad:
    """The served load of a simulation that is under way until somebody stops it."""
    deadline = time.monotonic() + 90
    while not should_stop() and time.monotonic() < deadline:
        time.sleep(0.01)
    return serve(*args, should_stop=should_stop, **fields)


def test_a_long_search_shows_how_far_it_is_and_can_be_stopped(open_page, monkeypatch) -> None:
    monkeypatch.setattr(compare_progress, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(fewest_cards, "serve", until_stopped)
    cards = "T4|RTX A4000|L4|A10|GeForce RTX 4090|L40S|A100 80GB SXM"
    app = open_page(fit=f"view!cards~users!400~search_cards!{cards}~most_cards!16")

    app.button(key="compare_stop_cards").click().run()
    finished(app)

    assert not app.exception
    assert "Stopped: what stands below was found until then." in said(app)
    assert "stopped before it was tried to the end" in said(app)
    assert app.button(key="compare_again_cards").label == "Start again"


def test_a_long_dry_run_can_be_stopped_and_started_again(open_page, monkeypatch) -> None:
    monkeypatch.setattr(compare_progress, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(dry_run, "serve", until_stopped)
    app = open_page(fit="view!dry_run~most_users!2048")

    app.button(key="compare_stop_dry").click().run()
    finished(app)
    assert "Stopped: what stands below was found until then." in said(app)

    app.button(key="compare_again_dry").click().run()
    assert app.button(key="compare_stop_dry").label == "Stop"
    app.button(key="compare_stop_dry").click().run()


def type_price(app: AppTest) -> AppTest:
    """The page with a price typed for the L40S before its table was drawn."""
    app.session_state["compare_price_rows"] = {"L40S": {"per_hour": 0.5, "power_limit_watts": 300}}
    del app.session_state["compare_price_start"]
    return app


def price_table(app: AppTest) -> tuple[str, pd.DataFrame]:
    """The identity and the content of the table that prices are typed into."""
    found = next(each for each in app.dataframe if "per_hour" in each.value.columns)
    return found.proto.id, found.value


def test_a_price_stays_with_its_card_when_other_cards_are_tried(open_page) -> None:
    app = finished(open_page(fit="view!cards~users!4~search_cards!L40S|H100 80GB SXM~most_cards!1"))
    first, _ = price_table(type_price(app).run())

    finished(app.multiselect(key="compare_search_cards").set_value(["H100 80GB SXM", "L40S"]).run())

    second, content = price_table(app)
    assert second != first  # what was typed by place is forgotten, what is held is shown
    assert content["per_hour"].dropna().to_dict() == {"L40S": 0.5}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("prompt_p50!5000", "percentiles rise"),
        ("prompt_p50!0", "write a whole number from 1"),
        ("output_p99!999999999999", "write a whole number from 1"),
        ("users!0", "The users at once are 0"),
        ("load!rate~rate!0", "The arrival rate is 0"),
        ("search_cards!", "Choose at least one card"),
        ("most_cards!0", "The most cards to try are 0"),
        ("most_preempted_percent!250", "from 0 to 100 %"),
        ("prefix_tokens!90000000", "takes 40,960 at most"),
    ],
)
def test_an_absurd_load_is_said_at_its_field(open_page, text: str, sentence: str) -> None:
    app = open_page(fit=f"view!cards~{text}")

    assert not app.exception
    assert any(sentence in error for error in errors(app))


@pytest.mark.parametrize("currency", ["", "12", "<script>", "a very long name"])
def test_an_unknown_currency_is_said_at_its_field(open_page, currency: str) -> None:
    app = finished(open_page(fit="view!cards~users!4~search_cards!H100 80GB SXM"))

    app.text_input(key="compare_currency").set_value(currency).run()

    assert not app.exception
    assert any("cannot be read" in error for error in errors(app))


def test_the_dry_run_marks_its_knee_and_recommends_two_flags(open_page) -> None:
    app = finished(open_page(fit="view!dry_run~most_users!16"))

    assert not app.exception
    assert "No knee yet: up to 16 users" in said(app).replace("**", "")
    assert "--max-num-seqs" in said(app)
    assert "--max-num-batched-tokens" in said(app)
    assert any("⚑" in users for users in app.dataframe[0].value["Users"])


def test_a_sweep_that_cannot_be_made_is_said_at_its_field(open_page) -> None:
    app = open_page(fit="view!dry_run~most_users!0")

    assert not app.exception
    assert any("goes up to 0 users" in error for error in errors(app))


def test_the_dry_run_shows_the_share_of_preemptions_that_ends_it(open_page) -> None:
    app = finished(open_page(fit="view!dry_run~most_users!4"))

    assert app.number_input(key="compare_most_preempted_percent").value == 1.0
    assert not app.exception


def test_the_dry_runs_advice_is_a_sentence_of_its_own(open_page) -> None:
    app = finished(open_page(fit="view!dry_run~most_users!4"))

    assert any(note.value.startswith("Up to 4 users") for note in app.caption)


def test_all_that_is_asked_of_the_cards_stands_above_the_answer(open_page) -> None:
    app = finished(open_page(fit="view!cards~users!4~search_cards!L40S~most_cards!1~prefix_tokens!256"))

    asked = app.main.caption[0].value
    assert "at most 1 % preempted" in asked
    assert "a shared prefix of 256 tokens" in asked
