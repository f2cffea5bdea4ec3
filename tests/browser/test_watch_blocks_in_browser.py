"""The block map of a live pool in a real browser: painted from the project's recording, in both themes and at both widths."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

PAINTED = re.compile(r"^kvscope-demo, engine 0:\d+$")


def held(open_page, **fields: object) -> Page:
    """The Watch page with the packaged recording, held still once its blocks are painted."""
    page = open_page("/watch", **fields)
    expect(page.locator(".kv")).to_have_attribute("data-painted", PAINTED)
    page.get_by_text("Hold still").click()
    expect(page.get_by_label("Hold still", exact=True)).to_be_checked()
    return page


def _is_clean(page: Page) -> None:
    page.wait_for_function("document.querySelector('[data-stale=true]') === null")  # what waits for news is dimmed
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_recordings_tables_are_painted_and_axe_finds_nothing(open_page, scheme: str, width: int) -> None:
    page = held(open_page, scheme=scheme, width=width)

    expect(page.get_by_role("img", name=re.compile("Block map at step"))).to_be_visible()
    expect(page.get_by_text("Block tables of the engine itself")).to_be_visible()
    expect(page.get_by_role("group", name="Step player")).to_be_hidden()
    colours = page.locator("canvas.map").evaluate(
        "canvas => { const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        " const seen = new Set(); for (let i = 0; i < data.length; i += 4004) seen.add(`${data[i]},${data[i+1]},${data[i+2]}`);"
        " return seen.size }"
    )
    assert colours > 3
    _is_clean(page)


def test_the_map_moves_with_the_recording_and_leaves_the_address_alone(open_page) -> None:
    page = open_page("/watch")
    expect(page.locator(".kv")).to_have_attribute("data-painted", PAINTED)
    first = page.locator(".kv").get_attribute("data-painted")

    expect(page.locator(".kv")).not_to_have_attribute("data-painted", first or "")

    assert "sim=" not in page.url


def test_a_block_tells_of_itself_by_keyboard(open_page) -> None:
    page = held(open_page)
    canvas = page.locator("canvas.map")

    canvas.focus()
    page.keyboard.press("ArrowRight")

    expect(page.locator(".kv .tip")).to_be_visible()
    expect(page.locator(".kv .tip")).to_contain_text("Block 2")
