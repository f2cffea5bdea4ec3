"""The Compare page in a real browser: the table as it is painted, its cells, links, what axe meets, narrow and dark."""

from __future__ import annotations

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

FEW = "has_all_models!off~models!Qwen/Qwen3-8B|deepseek-ai/DeepSeek-V3~cards!L40S|H100 80GB SXM"
VIEWS = (FEW, "view!scenarios", "view!cards~users!16~search_cards!L40S~most_cards!2", "view!dry_run~most_users!4")


def open_compare(open_page, text: str, **options: object) -> Page:
    page = open_page(f"/compare?fit={text.replace('|', '%7C').replace(' ', '%20')}", **options)
    expect(page.get_by_role("heading", level=2).first).to_be_visible()
    return page


def serious(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [json.dumps(fault)[:600] for fault in found if fault["impact"] in {"serious", "critical"}]


def test_a_cold_deep_link_shows_its_table_and_the_link_comes_back(open_page) -> None:
    page = open_compare(open_page, FEW)

    expect(page.get_by_role("heading", name="The longest request that fits")).to_be_visible()
    expect(page.get_by_text("combinations start.")).to_be_visible()
    expect(page.get_by_test_id("stDataFrame").first).to_be_visible()
    expect(page).to_have_url(re.compile("DeepSeek-V3"))


def test_a_clicked_cell_shows_its_plan_and_opens_it(open_page) -> None:
    page = open_compare(open_page, FEW)
    grid = page.get_by_test_id("stDataFrameResizable").first
    box = grid.bounding_box()
    assert box is not None

    page.mouse.click(box["x"] + 330, box["y"] + 52)  # the first number of the first row
    expect(page.get_by_text(re.compile("DeepSeek-V3 · L40S ×1"))).to_be_visible()
    page.get_by_role("button", name="Open in Plan").click()

    expect(page.get_by_role("heading", name="vLLM will not start")).to_be_visible()
    expect(page).to_have_url(re.compile("gpu=L40S"))


def test_choosing_another_view_changes_the_page_and_its_link(open_page) -> None:
    page = open_compare(open_page, FEW)

    page.get_by_role("radio", name="Side by side").click()

    expect(page.get_by_text("Add two to four scenarios from the left")).to_be_visible()
    expect(page).to_have_url(re.compile("scenarios"))


def test_two_scenarios_are_marked_where_they_differ(open_page) -> None:
    page = open_compare(open_page, "view!scenarios")

    page.get_by_role("button", name="The Plan page's plan").click()
    expect(page.get_by_text("from the Plan page")).to_be_visible()
    page.get_by_label("A link").fill("http://x/?model=Qwen%2FQwen3-8B&gpu=L40S")
    page.get_by_label("A link").press("Enter")
    page.get_by_role("button", name="Add the link").click()

    expect(page.get_by_role("cell", name="≠").first).to_be_visible()
    expect(page.get_by_text("Qwen3-8B · 1 × L40S").first).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("text", VIEWS, ids=("fits", "scenarios", "cards", "dry run"))
def test_axe_finds_nothing_serious_and_nothing_is_too_wide(open_page, text: str, width: int, scheme: str) -> None:
    page = open_compare(open_page, text, width=width, scheme=scheme)
    expect(page.get_by_text("English").first).to_be_visible()  # the page's last line
    page.wait_for_timeout(1500)

    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
