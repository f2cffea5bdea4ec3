"""Every report pressed in a real browser, opened offline from its file, examined and printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # ships no types
from playwright.sync_api import Browser, Page, expect

from pages.parts.language import CHINESE, speaking
from pages.parts.report_html import to_html
from tests import hostile_reports

PAGES = {
    "plan": "/",
    "simulation": "/simulate",
    "trade-offs": "/weigh",
    "watch": "/watch",
    "what-fits": "/compare",
    "accuracy": "/accuracy",
}
OpenPage = Callable[..., Page]


def pressed(page: Page, folder: Path, name: str, label: str = "Report") -> Path:
    """The file that the button hands out."""
    button = page.locator(f".st-key-report_{name}").get_by_role("button", name=label, exact=True)
    expect(button).to_be_visible()
    with page.expect_download() as waiting:
        button.click()
    file = folder / waiting.value.suggested_filename
    waiting.value.save_as(file)
    return file


def examined(browser: Browser, file: Path, widths: tuple[int, ...] = (1000, 390)) -> list[str]:
    """What is wrong with the file when a browser without any network opens it."""
    context = browser.new_context(offline=True, viewport={"width": widths[0], "height": 900})
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: faults.append(request.url) if request.url != file.as_uri() else None)
    page.goto(file.as_uri())
    for at in widths:
        page.set_viewport_size({"width": at, "height": 900})
        faults += [
            f"{fault['id']}: {fault['nodes'][0]['html'][:200]}"
            for fault in Axe().run(page).response["violations"]
            if fault["impact"] in {"serious", "critical"}
        ]
        if page.evaluate("document.documentElement.scrollWidth") > at:
            faults.append(f"wider than a window of {at}")
    context.close()
    return faults


def printed_pages(browser: Browser, file: Path) -> int:
    """How many sheets of A4 the browser makes of the file."""
    page = browser.new_page()
    page.goto(file.as_uri())
    content = page.pdf(prefer_css_page_size=True)
    page.close()
    return len(re.findall(rb"/Type\s*/Page\b", content))


@pytest.mark.parametrize("name", PAGES)
def test_a_report_opens_offline_and_prints(open_page: OpenPage, browser: Browser, tmp_path: Path, name: str) -> None:
    page = open_page(PAGES[name])
    file = pressed(page, tmp_path, name)

    assert examined(browser, file) == []
    assert 2 <= printed_pages(browser, file) <= 24


@pytest.mark.parametrize("name", hostile_reports.PAGES)
def test_no_name_in_a_report_runs_or_breaks_it(browser: Browser, tmp_path: Path, name: str) -> None:
    file = tmp_path / "report.html"
    with speaking(CHINESE):
        file.write_text(to_html(hostile_reports.report_of(name, hostile_reports.ALL_AT_ONCE, tmp_path)), "utf-8")

    assert examined(browser, file, (1280, 390)) == []
    assert printed_pages(browser, file) >= 1


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("simulation", "/simulate?sim=workload.lesson~seed.3~num_gpu_blocks.17"),
        ("fewest-cards", "/compare?fit=view!cards~users!9~search_cards!L40S~most_cards!1"),
        ("learn", "/learn?lesson=budget"),
    ],
)
def test_the_link_in_a_report_opens_the_same_page(open_page: OpenPage, tmp_path: Path, name: str, path: str) -> None:
    text = pressed(open_page(path), tmp_path, name).read_text(encoding="utf-8")
    link = re.findall(r'<a href="([^"]+)">', text)[-1].replace("&amp;", "&")

    again = pressed(open_page(link), tmp_path, name).read_text(encoding="utf-8")

    without_date = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
    assert without_date.sub("", again) == without_date.sub("", text)


def test_a_report_is_fetched_though_the_page_moves(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page("/watch")  # the recorded session plays, and draws its parts anew each second

    for _ in range(4):
        assert "</html>" in pressed(page, tmp_path, "watch").read_text(encoding="utf-8")


def test_a_report_speaks_the_reader_s_language(open_page: OpenPage, browser: Browser, tmp_path: Path) -> None:
    page = open_page("/?lang=zh")
    file = pressed(page, tmp_path, "plan", label="报告")

    text = file.read_text(encoding="utf-8")
    assert '<html lang="zh-CN">' in text
    assert len(re.findall(r"[\u4e00-\u9fff]", text)) > 300
    assert examined(browser, file) == []


def test_the_link_in_a_report_opens_the_same_plan(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page("/?model=Qwen/Qwen3-8B&gpu=A100+80GB+SXM&gpu_memory_utilization=0.8")
    text = pressed(page, tmp_path, "plan").read_text(encoding="utf-8")
    (link,) = re.findall(r'<a href="([^"]+)">', text)

    again = pressed(open_page(link.replace("&amp;", "&")), tmp_path, "plan").read_text(encoding="utf-8")

    without_date = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
    assert without_date.sub("", again) == without_date.sub("", text)


@pytest.mark.parametrize("label", ["Markdown", "JSON", "CSV"])
def test_the_other_kinds_are_handed_out_too(open_page: OpenPage, tmp_path: Path, label: str) -> None:
    page = open_page("/")
    page.locator(".st-key-report_plan").get_by_role("button", name="Other formats").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name=label, exact=True).last.click()
    waiting.value.save_as(tmp_path / "report")

    assert "Qwen3-8B" in (tmp_path / "report").read_text(encoding="utf-8")
