"""Both languages in a real browser: link, chooser, the page's `lang`, the map's own words, fonts, what axe meets."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

DONE = '[data-testid="stApp"][data-test-script-state="notRunning"][data-test-connection-state="CONNECTED"]'
PAGES = ("/", "/simulate", "/weigh", "/watch", "/calibrate", "/compare", "/accuracy", "/learn")


def lang(page: Page) -> str:
    return str(page.evaluate("document.documentElement.lang"))


def test_the_link_brings_the_language_and_the_page_says_which(open_page) -> None:
    page = open_page("/?model=Qwen/Qwen3-8B&gpu=L40S&lang=zh")

    expect(page.get_by_role("heading", name="vLLM 可以启动")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    assert "lang=zh" in page.url
    assert "gpu=L40S" in page.url


def test_english_is_the_language_of_a_browser_that_asks_for_it(open_page) -> None:
    page = open_page("/")

    expect(page.get_by_role("heading", name="vLLM will start")).to_be_visible()
    assert lang(page) == "en"
    assert "lang=" not in page.url


def test_the_chooser_is_reached_by_keyboard_and_keeps_the_page(open_page) -> None:
    page = open_page("/simulate")
    english = page.get_by_role("radio", name="English")
    expect(english).to_have_attribute("aria-checked", "true")
    english.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name=re.compile("池用满了"))).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    expect(page).to_have_url(re.compile(r"/simulate\?.*lang=zh"))


def test_the_map_speaks_the_readers_language(open_page) -> None:
    page = open_page("/simulate?lang=zh")

    expect(page.get_by_role("button", name="前进一步")).to_be_visible()
    page.get_by_role("button", name="下一个事件").click()
    expect(page.locator(".where")).to_contain_text("共 40")
    expect(page.locator(".say")).to_contain_text("到达")
    expect(page.locator(".say")).not_to_contain_text("prompt")
    page.get_by_text("English", exact=True).click()
    expect(page.get_by_role("button", name="One step forward")).to_be_visible()
    expect(page.locator(".where")).to_contain_text("of 40")


def test_chinese_has_its_glyphs(open_page) -> None:
    page = open_page("/?lang=zh")

    # two different characters are drawn differently; without a font both are the same box
    assert page.evaluate(
        """() => {
            const draw = (text) => {
                const canvas = document.createElement("canvas");
                canvas.width = canvas.height = 40;
                const paint = canvas.getContext("2d");
                paint.font = `30px ${getComputedStyle(document.body).fontFamily}`;
                paint.fillText(text, 2, 32);
                return canvas.toDataURL();
            };
            return draw("缓") !== draw("权");
        }"""
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_no_serious_fault_in_chinese(open_page, path: str, scheme: str) -> None:
    page = open_page(f"{path}?lang=zh", scheme=scheme)
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    found = Axe().run(page).response["violations"]

    assert [fault["id"] for fault in found if fault["impact"] in {"serious", "critical"}] == []


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_wider_than_a_phone_in_chinese(open_page, path: str) -> None:
    page = open_page(f"{path}?lang=zh", width=390)

    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_axe_finds_no_serious_fault_in_any_comparison(open_page) -> None:
    page = open_page("/compare?fit=view!dry_run~most_users!4~users!8~search_cards!L40S~most_cards!1&lang=zh")
    found = {}
    for place, shown in enumerate(("what-fits", "", "fewest-cards", "dry-run")):
        page.locator(".st-key-compare_view button").nth(place).click()
        settled(page)
        if shown:
            expect(page.locator(f".st-key-report_{shown} button").first).to_be_visible()
        found[place] = faults_in_both_themes(page)

    assert not any(found.values()), found


def settled(page: Page) -> None:
    """Wait until the script ran and nothing fades in any more: axe takes a fading text for a pale one."""
    page.wait_for_selector(DONE)
    page.wait_for_timeout(400)


def faults_in_both_themes(page: Page) -> list[str]:
    """What axe finds serious, as the page is drawn light and dark."""
    found = []
    grounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        settled(page)
        grounds.add(page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"))
        found += [
            f"{scheme}: {fault['id']}: {fault['nodes'][0]['html'][:200]}"
            for fault in Axe().run(page).response["violations"]
            if fault["impact"] in {"serious", "critical"}
        ]
    assert len(grounds) == 2, grounds
    return found
