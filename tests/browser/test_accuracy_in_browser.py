"""The Accuracy page in a browser: readable in both schemes and on a phone, its figure and filters work."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

_SHOWN = "real starts of"


def _is_clean(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_the_page_is_clean(open_page, width: int, scheme: str) -> None:
    page = open_page("/accuracy", width=width, scheme=scheme)

    expect(page.get_by_text(_SHOWN)).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    expect(page.get_by_role("heading", name="The ten furthest off")).to_be_visible()
    _is_clean(page)


def test_what_is_folded_is_clean_too(open_page, unfold) -> None:
    page = open_page("/accuracy")

    for title in ("By architecture, release", "Constants that one start", "Starts that were not predicted"):
        unfold(page, title)
    expect(page.get_by_text("no config of").first).to_be_visible()
    _is_clean(page)


def test_a_point_names_its_start_and_its_source(open_page) -> None:
    page = open_page("/accuracy")
    figure = page.locator(".js-plotly-plot").first
    figure.scroll_into_view_if_needed()
    point = figure.locator(".scatterlayer .trace").last.locator("path.point").last

    box = point.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    expect(figure.locator(".hovertext")).to_contain_text("logged")


def test_a_filter_and_the_rules_change_the_sentence(open_page) -> None:
    page = open_page("/accuracy")
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    first = page.get_by_text(_SHOWN).text_content()

    page.get_by_role("combobox", name="Tensor parallelism").click()
    page.get_by_role("option", name="TP 2").click()
    expect(page.get_by_text(_SHOWN)).not_to_have_text(str(first))
    page.keyboard.press("Escape")
    second = page.get_by_text(_SHOWN).text_content()
    page.get_by_text("Own model left out").first.click()
    expect(page.get_by_text(_SHOWN)).not_to_have_text(str(second))

    page.get_by_role("button", name="Show all").click()
    page.get_by_text("As the rules stand").click()
    expect(page.get_by_text(_SHOWN)).to_have_text(str(first))
