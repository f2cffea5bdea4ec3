"""The report of each page: what it says is what the page shows, to the last digit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from live import monitor
from pages.parts import report_button as button
from pages.parts.report_data import to_json
from pages.parts.report_html import to_html
from pages.parts.report_sections import Report

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
    for module in ("pages", "compare", "accuracy", "calibrate"):
        monkeypatch.setattr(f"pages.parts.report_{module}.report_button", note)
    yield made
    monitor.stop_process_monitor()


def opened(page: str | None = None) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=90).run()
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
