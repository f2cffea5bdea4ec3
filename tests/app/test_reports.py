"""The report of each page: what it says is what the page shows, to the last digit."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from live import monitor
from live.calibration_store import FILE_SETTING
from pages.parts import report_button as button
from pages.parts import state
from pages.parts.report_data import to_json
from pages.parts.report_html import to_html
from pages.parts.report_sections import Number, Report, Table, from_markdown
from tests.start_logs import start_log

ROOT = Path(__file__).parents[2]


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Report]]:
    """Each report that the page could hand out, made as soon as its button is drawn."""
    made: list[Report] = []
    draw = button.report_button

    def note(name: str, about: button.About, make: button.MakeSections) -> None:
        made.append(button._report(about, make, None))
        draw(name, about, make)

    monitor.stop_process_monitor()
    monkeypatch.setenv(monitor.FOLDER_SETTING, str(tmp_path))
    monkeypatch.setenv(FILE_SETTING, str(tmp_path / "calibrations.json"))
    for module in ("report_pages", "report_compare", "report_accuracy", "report_calibrate", "learn_view"):
        monkeypatch.setattr(f"pages.parts.{module}.report_button", note)
    yield made
    monitor.stop_process_monitor()


def opened(page: str | None = None, **query: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=90)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    if page is not None:
        app.switch_page(page)
        app.run()
    assert not app.exception
    return app


def text_of(report: Report) -> str:
    class Text(HTMLParser):
        found = ""

        def handle_data(self, data: str) -> None:
            self.found += data + " "

    parser = Text()
    parser.feed(to_html(report))
    return parser.found


def metrics(app: AppTest) -> list[tuple[str, str, str]]:
    return [(each.label, each.value, each.delta) for each in app.metric]


def table_cells(app: AppTest) -> list[str]:
    """The texts of all of the page's tables, as they were before Streamlit drew them."""
    return [str(cell) for each in app.table for cell in each.value.to_numpy().ravel() if isinstance(cell, str)]


def plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text).replace("**", "")


def test_the_plan_s_report_holds_every_figure_and_cell_of_the_page(reports: list[Report]) -> None:
    app = opened()
    text = text_of(reports[-1])

    assert len(metrics(app)) == 4
    assert [part for figure in metrics(app) for part in figure if part and part not in text] == []
    assert [cell for cell in table_cells(app) if plain(cell) not in text] == []


def test_the_simulation_s_report_holds_every_figure_of_the_page(reports: list[Report]) -> None:
    app = opened("simulate.py")
    text = text_of(reports[-1])

    assert len(metrics(app)) == 5
    assert [part for figure in metrics(app) for part in figure if part and part not in text] == []
    assert app.header[0].value in text


def test_the_report_follows_what_is_asked(reports: list[Report]) -> None:
    app = opened()
    before = text_of(reports[-1])
    app.number_input(key="plan_gpu_memory_utilization").set_value(0.5).run()

    assert "--gpu-memory-utilization 0.5" in text_of(reports[-1])
    assert text_of(reports[-1]) != before


def test_a_page_without_an_answer_has_no_report(reports: list[Report]) -> None:
    app = opened()
    reports.clear()
    app.segmented_control(key="plan_source").set_value("File").run()

    assert reports == []


def test_every_report_is_json(reports: list[Report]) -> None:
    opened()

    document = json.loads(to_json(reports[-1]))
    assert document["title"] == "Memory plan"
    assert {section["kind"] for section in document["sections"]} >= {"verdict", "figures", "table", "chart", "code"}


def test_the_watch_report_holds_every_figure_of_the_page(reports: list[Report]) -> None:
    app = opened("watch.py")
    app.slider(key="watch_place").set_value(50).run()
    app.button(key="watch_hold").click().run()
    text = text_of(reports[-1])

    assert not app.exception
    assert len(metrics(app)) == 9
    assert [part for figure in metrics(app) for part in figure if part and plain(part) not in text] == []
    assert plain(app.header[0].value).split(":]")[-1].strip() in text
    assert text.count("over time") >= 4


def test_the_trade_offs_report_holds_every_cell_of_the_page(reports: list[Report]) -> None:
    app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=120).run()
    reports.clear()
    app.switch_page("weigh.py")
    for _ in range(60):
        app.run()
        if reports:
            break
    text = text_of(reports[-1])

    assert table_cells(app)
    assert [cell for cell in table_cells(app) if plain(cell) not in text] == []


def frame_cells(app: AppTest) -> list[str]:
    """The texts and whole numbers of the page's data frames."""
    return [str(cell) for each in app.dataframe for cell in each.value.to_numpy().ravel() if isinstance(cell, str)]


def test_the_accuracy_report_holds_every_cell_of_the_page_s_tables(reports: list[Report]) -> None:
    app = opened("verify.py")
    text = text_of(reports[-1])

    assert len(table_cells(app)) > 20
    told = [cell for each in app.table[:-1] for cell in each.value.to_numpy().ravel() if isinstance(cell, str)]
    assert [cell for cell in told if plain(cell) not in text and "](" not in cell] == []
    assert plain(app.markdown[0].value) in text


def test_what_fits_has_its_report(reports: list[Report]) -> None:
    app = opened("compare.py")
    text = text_of(reports[-1])

    assert app.header[0].value in text
    names = [cell for cell in frame_cells(app) if cell.startswith(("Qwen", "Llama"))]
    assert names
    assert [name for name in names if name not in text] == []


def test_scenarios_side_by_side_have_their_report(reports: list[Report]) -> None:
    app = opened("compare.py")
    app.segmented_control(key="compare_view").set_value("scenarios").run()
    app.button(key="compare_add_plan").click().run()
    text = text_of(reports[-1])

    assert reports[-1].title == "Side by side"
    assert table_cells(app)
    assert [cell for cell in table_cells(app) if plain(cell) not in text] == []


def test_what_fits_has_the_exact_number_of_every_cell(reports: list[Report]) -> None:
    app = opened("compare.py", fit="has_all_models!off~models!Qwen/Qwen3-8B|Qwen/Qwen3-32B~cards!L40S|H100 80GB SXM")
    frame = app.dataframe[0].value
    shown = {int(cell) for cell in frame.select_dtypes("number").to_numpy().ravel() if cell > 0}
    (table,) = [each for each in tables(reports[-1]) if each.title == "What fits"]
    numbers = {cell for row in table.rows for cell in row if isinstance(cell, Number)}

    assert len(shown) >= 2
    assert shown <= {cell.exact for cell in numbers}
    assert all(cell.shown == f"{cell.exact:,.0f}" for cell in numbers)
    assert "combinations start" in text_of(reports[-1])


def tables(report: Report) -> list[Table]:
    return [section for section in report.sections if isinstance(section, Table)]


def test_the_fewest_cards_report_names_the_answer_what_was_asked_and_every_split(reports: list[Report]) -> None:
    app = until_reported(opened("compare.py", fit="view!cards~users!16~search_cards!L40S~most_cards!2"), reports)
    text = text_of(reports[-1])

    assert not app.exception
    assert "1 × L40S" in text
    assert "p50 600 · p95 2,000 · p99 4,000" in text
    (judged,) = [each.value for each in app.dataframe if "Split" in each.value]
    assert [cell for cell in judged.to_numpy().ravel() if plain(str(cell)) not in text] == []


def test_the_dry_run_s_report_holds_every_level(reports: list[Report]) -> None:
    app = until_reported(opened("compare.py", fit="view!dry_run~most_users!4"), reports)
    text = text_of(reports[-1])

    assert not app.exception
    assert "users at most" in text.lower()
    assert frame_cells(app)
    assert [cell for cell in frame_cells(app) if plain(cell) not in text] == []


def until_reported(app: AppTest, reports: list[Report]) -> AppTest:
    """The page once the work that runs beside it is done."""
    for _ in range(120):
        if reports and reports[-1].title != "Memory plan":
            break
        time.sleep(0.25)
        app.run()
    return app


def test_the_calibration_s_report_holds_every_cell_of_the_page(reports: list[Report]) -> None:
    app = opened("calibrate.py")
    app.text_area(key="calib_lines").input(start_log()).run()
    text = text_of(reports[-1])
    cells = [str(cell) for cell in app.dataframe[0].value.to_numpy().ravel()]

    assert reports[-1].title == "A start beside its plan"
    assert len(cells) > 30
    assert [cell for cell in cells if plain(cell) not in text] == []


def test_a_lesson_s_report_holds_its_claims_and_no_answer(reports: list[Report]) -> None:
    app = opened("learn.py", lesson="token")
    page = " ".join(from_markdown(each.value) for each in (*app.markdown, *app.caption))
    (claims,) = [each for each in tables(reports[-1]) if each.title == "What is often said"]
    cells = [str(cell) for row in claims.rows for cell in row]

    assert reports[-1].title.startswith("Learn")
    assert cells
    assert [cell for cell in cells if cell not in page + " ".join(table_cells(app) + frame_cells(app))] == []
    assert "Who answers" not in text_of(reports[-1])


def test_a_report_names_the_link_of_its_own_run(reports: list[Report], monkeypatch: pytest.MonkeyPatch) -> None:
    links: list[str | None] = []
    made = button._report

    def note(about: button.About, make: button.MakeSections, _link: str | None) -> Report:
        links.append(state.link_extra("fit"))
        return made(about, make, None)

    monkeypatch.setattr(button, "_report", note)
    app = opened("compare.py", fit="has_all_models!off~models!Qwen/Qwen3-8B~cards!L40S")
    app.multiselect(key="compare_cards").set_value(["T4"]).run()

    assert "cards!L40S" in (links[-2] or "")
    assert "cards!T4" in (links[-1] or "")
    assert reports
