"""The Simulate and Trade-offs pages: what a reader does, and what the page then says."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages.parts import simulate_job
from pages.parts.state import FIRST_REQUEST
from planner.model_catalog import catalogue_documents
from planner.planning import answer

ROOT = Path(__file__).parents[2]

PLANNED_BLOCKS = answer(FIRST_REQUEST, catalogue_documents(FIRST_REQUEST.model_id))[0].pool.num_blocks
OpenPage = Callable[..., AppTest]


@pytest.fixture
def open_page() -> OpenPage:
    """Opens a Blocks page from the frame, with the link's parameters as keywords."""

    def open_at(page: str = "simulate.py", **query: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60)
        for name, text in query.items():
            app.query_params[name] = text
        app.run()
        app.switch_page(page)
        return app.run()

    return open_at


def link(app: AppTest) -> str:
    """The simulation in the address; the driver gives a list for what it was opened with."""
    text = app.query_params["sim"]
    return text if isinstance(text, str) else text[0]


def said(app: AppTest) -> str:
    kinds = (app.header, app.subheader, app.markdown, app.caption, app.error, app.warning, app.info)
    return "\n".join(element.value.replace("\\", "") for kind in kinds for element in kind)


def sent(app: AppTest) -> dict:
    data = app.get("bidi_component")[0].proto.bytes
    (length,) = struct.unpack_from("<I", data)
    return json.loads(data[4 : 4 + length])


def test_the_first_visit_shows_the_lesson(open_page) -> None:
    app = open_page()

    assert not app.exception
    assert "The pool ran full: 1 preemption" in said(app)
    assert sent(app)["total"] == 41
    assert link(app) == "workload.lesson"


def test_a_stop_of_the_lesson_moves_the_player(open_page) -> None:
    app = open_page()

    app.button(key="sim_lesson_3").click().run()

    assert sent(app)["step"] == 12
    assert "gives all its blocks back" in said(app)
    assert link(app) == "workload.lesson~step.12"


def test_a_link_brings_workload_seed_and_step_back(open_page) -> None:
    first = open_page(sim="workload.drawn~seed.11~num_requests.30~num_gpu_blocks.300~step.25")
    second = open_page(sim=link(first))

    assert sent(first)["step"] == 25
    assert sent(first)["run"] == sent(second)["run"]
    assert first.number_input(key="sim_seed").value == 11
    assert link(first) == "workload.drawn~seed.11~num_gpu_blocks.300~num_requests.30~step.25"


def test_the_same_seed_is_the_same_run_and_another_is_not(open_page) -> None:
    app = open_page(sim="workload.drawn~num_requests.30~num_gpu_blocks.300")
    before = sent(app)["run"]

    app.number_input(key="sim_seed").set_value(12).run()
    other = sent(app)["run"]
    app.number_input(key="sim_seed").set_value(7).run()

    assert other != before
    assert sent(app)["run"] == before


def test_a_damaged_link_says_so_and_shows_the_lesson(open_page) -> None:
    app = open_page(sim="workload.drawn~colour.red")

    assert "This link's simulation cannot be read: The link's simulation has no field colour." in said(app)
    assert sent(app)["title"] == "A first lesson"


def test_choosing_a_request_lights_it_and_shows_its_table(open_page) -> None:
    app = open_page(sim="workload.lesson~step.3")

    app.selectbox(key="sim_selected").select("r2").run()

    assert sent(app)["selected"] == 1
    assert "r2 runs: 17 of 32 tokens computed, in 5 blocks, 3 of them shared." in said(app)
    table = app.dataframe[0].value
    assert table["Physical block"].tolist()[:3] == ["1", "2", "3"]
    assert table["Shared with"].tolist()[0] == "r1"


def test_a_step_beyond_the_run_shows_the_last_one(open_page) -> None:
    app = open_page(sim="workload.lesson~step.99999")

    assert not app.exception
    assert sent(app)["step"] == 40


@pytest.mark.parametrize("look", ["What happened", "Over time", "Without paging", "Export"])
def test_each_look_behind_the_step_draws(open_page, look: str) -> None:
    app = open_page(sim="workload.lesson~step.18~host_blocks.40")

    app.segmented_control(key="sim_look").set_value(look).run()

    assert not app.exception


def test_v0_swaps_or_recomputes_the_same_requests(open_page) -> None:
    app = open_page(sim="workload.lesson~step.20")

    app.segmented_control(key="sim_look").set_value("Under V0").run()
    recomputed = said(app)
    app.selectbox(key="sim_v0_mode").select("swap").run()

    assert "a request was thrown out and started over" in recomputed
    assert "requests went to host memory" in said(app)
    assert "V0 at step 20" in said(app)


def test_v0_without_room_to_swap_says_that_it_stops(open_page) -> None:
    app = open_page(sim="workload.lesson")
    app.segmented_control(key="sim_look").set_value("Under V0").run()

    app.number_input(key="sim_v0_blocks").set_value(0)
    app.selectbox(key="sim_v0_mode").select("swap").run()

    assert "A V0 engine stops here; raise --swap-space." in said(app)


def test_without_paging_fewer_run_at_the_same_step(open_page) -> None:
    app = open_page(sim="workload.lesson~step.6~max_model_len.64")

    app.segmented_control(key="sim_look").set_value("Without paging").run()

    assert "Paging: 3 requests running" in said(app)
    assert "Reserve the longest length: 1 request running" in said(app)


def test_the_log_tells_events_in_words(open_page) -> None:
    app = open_page(sim="workload.lesson~step.12")

    app.segmented_control(key="sim_look").set_value("What happened").run()

    assert app.dataframe[0].value["What happened"].tolist()[0] == "r3 preempted: 8 blocks freed, 8 still cached"


def test_a_request_longer_than_the_pool_is_said_with_its_row(open_page) -> None:
    app = open_page(sim="workload.table~rows.0-18-14-0-0-0_0-100-20-0-0-0")

    assert "Row 2: request r2 needs 30 blocks for 120 tokens, and the pool has 20." in said(app)
    assert not app.get("bidi_component")


def test_changing_the_table_changes_the_run(open_page) -> None:
    app = open_page(sim="workload.table~rows.0-8-4-0-0-0")
    before = sent(app)["total"]
    turn = app.session_state["sim_table_turn"]

    app.session_state[f"sim_editor_{turn}"] = {
        "edited_rows": {0: {"num_output_tokens": 30}},
        "added_rows": [],
        "deleted_rows": [],
    }
    app.run()

    assert sent(app)["total"] == before + 26
    assert link(app) == "workload.table~rows.0-8-30-0-0-0"


def test_an_empty_table_is_said_at_the_table(open_page) -> None:
    app = open_page(sim="workload.table~rows.")

    assert "The table is empty: add a request." in said(app)


def upload(app: AppTest, name: str, content: bytes) -> AppTest:
    app.file_uploader[0].set_value((name, content, "text/plain"))
    return app.run()


def test_a_trace_is_read_and_played(open_page) -> None:
    app = open_page(sim="workload.file")
    assert "Choose a trace file" in said(app)

    upload(app, "trace.csv", b"num_prompt_tokens,num_output_tokens,arrival_step\n64,8,0\n32,4,1\n")

    assert not app.exception
    assert "2 waiting" not in said(app)
    assert sent(app)["title"] == "A trace file"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", b"num_prompt_tokens,num_output_tokens\n64,8\n-3,4\n", "Row 2: num_prompt_tokens must be from 1"),
        ("b.csv", b"colour\nred\n", "none of the columns we know"),
        ("c.jsonl", b'{"num_prompt_tokens": 3}\n', "Row 1: there is no num_output_tokens"),
        (
            "d.jsonl",
            b'{"request_id": "x", "num_prompt_tokens": 3, "num_output_tokens": 3}\n' * 2,
            "Row 2: request id x came before.",
        ),
        ("e.csv", b"\xff\xfe\x00", "is not a text file in UTF-8"),
        ("f.csv", b"num_prompt_tokens,num_output_tokens\n500000,8\n", "Row 1: request r0 has 500,000 prompt tokens"),
    ],
)
def test_a_bad_trace_is_refused_whole(open_page, name: str, content: bytes, says: str) -> None:
    app = open_page(sim="workload.file")

    upload(app, name, content)

    assert says in said(app)
    assert not app.get("bidi_component")


def test_the_plans_pool_is_simulated(open_page) -> None:
    app = open_page(sim="workload.drawn~num_requests.20~pool.plan")

    assert not app.exception
    assert sent(app)["n"] == PLANNED_BLOCKS


def test_taking_the_plans_pool_takes_its_flags(open_page) -> None:
    app = open_page(sim="workload.drawn~num_requests.20")

    app.segmented_control(key="sim_pool").set_value("plan").run()

    assert not app.exception
    assert app.number_input(key="sim_max_num_seqs").value == 1024
    assert sent(app)["n"] == PLANNED_BLOCKS


def test_by_the_clock_the_plans_card_sets_the_time_of_a_step(open_page) -> None:
    asked = "workload.drawn~num_requests.20~arrivals_in.seconds~rate.50~pool.plan~step_time.card"

    app = open_page(sim=asked)

    assert not app.exception
    steps = next(metric for metric in app.metric if metric.label == "Steps")
    seconds_a_step = float(steps.delta.removesuffix(" s")) / int(steps.value.replace(",", ""))
    assert 16.4e9 / 3.35e12 < seconds_a_step < 0.02


def test_a_toy_pool_has_no_card_to_take_the_time_from(open_page) -> None:
    app = open_page(sim="workload.drawn~num_requests.20~arrivals_in.seconds~step_time.card")

    assert "take the pool from the plan, or give a fixed time" in said(app)


def test_a_preset_that_breaks_tells_what_saves_it_and_a_click_applies_it(open_page) -> None:
    app = open_page(sim="workload.fragmentation")
    assert "What saves it" in said(app)
    assert sent(app)["n"] == 65

    app.button(key="sim_remedy_0").click().run()

    assert app.number_input(key="sim_block_size").value == 16
    assert sent(app)["n"] == 1025


def test_a_long_run_shows_its_progress_and_can_be_stopped(open_page, monkeypatch) -> None:
    monkeypatch.setattr(simulate_job, "simulate", slow_simulate(simulate_job.simulate))
    app = open_page(sim="workload.drawn~num_requests.200")
    assert "Simulating…" in said(app)

    app.button(key="sim_stop").click().run()
    app.session_state["sim_job"].wait(20)
    app.run()

    assert "Stopped after" in said(app)
    assert sent(app)["total"] == 1


def slow_simulate(real):
    """A simulation that goes on until it is stopped."""

    def simulate(config, requests, options):
        stop = options.should_stop
        assert stop is not None
        while not stop():
            time.sleep(0.02)
        return real(config, requests, options)

    return simulate


def test_trade_offs_are_simulated_for_the_same_workload(open_page) -> None:
    app = open_page("weigh.py", sim="workload.drawn~num_requests.16~num_gpu_blocks.300~max_num_seqs.4~prompt_mean.60")
    job = app.session_state["sim_weigh_job"]
    assert job.wait(60)

    app.run()

    assert not app.exception
    text = said(app)
    assert "How full memory is kept, by requests at once" in text
    assert "Block size" in text
    assert "On and off" in text
    assert link(app).startswith("workload.drawn~")


def test_the_plan_page_keeps_its_own_link(open_page) -> None:
    app = open_page()

    app.switch_page("plan.py").run()

    assert "sim" not in app.query_params
