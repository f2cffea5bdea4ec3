"""The Plan page's question to vLLM in a browser: asked without holding the page up, its end shown by itself, clean."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_question_ends_by_itself(open_page, width: int, scheme: str) -> None:
    page = open_page("/", width=width, scheme=scheme)
    button = page.get_by_role("button", name=re.compile("Check with vLLM|Ask again"))
    button.scroll_into_view_if_needed()

    button.click()

    # the stand-in's Python has no vLLM: the end is a refusal, shown without another click
    expect(page.get_by_role("button", name="Ask again")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []
