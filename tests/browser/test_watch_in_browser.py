"""The Watch page in a real browser: an engine comes, is seen, goes; a recording plays; what a narrow screen and axe meet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from tests.fakes.metrics_server import MetricsServer, metrics_server, metrics_text


@pytest.fixture
def engine() -> Iterator[MetricsServer]:
    with metrics_server() as server:
        server.text = metrics_text(usage=0.5, running=7)
        yield server


@pytest.fixture
def open_watch(open_page) -> Callable[..., Page]:
    """Opens the page with nothing watched: what a test that failed left running is ended first."""

    def open_at(**how: Any) -> Page:
        page = open_page("/watch", **how)
        left = page.get_by_role("button", name=re.compile("^(End recording|Stop the demo engine)$"))
        while left.count():
            left.first.click()
            expect(page.get_by_text("The recording has ended")).to_be_visible()
            page = open_page("/watch", **how)
            left = page.get_by_role("button", name=re.compile("^(End recording|Stop the demo engine)$"))
        return page

    return open_at


def watch(page: Page, engine: MetricsServer) -> None:
    page.get_by_role("textbox", name="Engine's address").fill(engine.url)
    page.get_by_role("textbox", name="Engine's address").press("Enter")
    page.get_by_role("button", name="Watch", exact=True).click()


def metric(page: Page, name: str, text: str) -> Locator:
    """The figure called `name` once it says `text`; while the page changes, what it showed before may stand beside it."""
    return page.get_by_test_id("stMetric").filter(has_text=name).filter(has_text=text)


def end(page: Page) -> None:
    page.get_by_role("button", name="End recording").click()
    expect(page.get_by_text("The recording has ended")).to_be_visible()


def test_an_engine_is_seen_live_and_recorded_until_told(open_watch, engine: MetricsServer) -> None:
    page = open_watch()
    expect(page.get_by_text("A recorded session of a real engine plays until you choose one.")).to_be_visible()
    expect(page.get_by_text("Recorded, not live")).to_be_visible()
    watch(page, engine)
    expect(page.get_by_text("Connected")).to_be_visible()
    expect(metric(page, "KV usage", "50.0")).to_be_visible()

    engine.text = metrics_text(usage=0.75, running=9, preemptions=2)
    expect(metric(page, "KV usage", "75.0")).to_be_visible()
    expect(metric(page, "Preemptions", "2 in the last")).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()

    engine.stop()
    expect(page.get_by_text("Not reachable")).to_be_visible()
    engine.start()
    expect(page.get_by_text("Connected")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert "kv_usage_fraction" in download.value.path().read_text(encoding="utf-8")
    end(page)

    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text(re.compile("^Recording 127"))).to_be_visible()
    expect(metric(page, "KV usage", "75.0")).to_be_visible()
    page.get_by_role("button", name="Close").click()


def test_nothing_is_wider_than_the_window_and_axe_finds_nothing(open_watch, engine: MetricsServer) -> None:
    page = open_watch(scheme="dark")
    watch(page, engine)
    expect(page.locator(".js-plotly-plot").nth(3)).to_be_visible()
    expect(page.get_by_role("button", name="End recording")).to_be_visible()
    page.get_by_text("Hold still").click()
    expect(page.get_by_label("Hold still", exact=True)).to_be_checked()
    _is_clean(page)

    page.set_viewport_size({"width": 390, "height": 900})
    page.emulate_media(color_scheme="light")
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    _is_clean(page)
    end(page)


def test_the_recorded_session_moves_by_itself_and_is_clean(open_watch) -> None:
    page = open_watch(width=390)
    moment = page.locator("p").filter(has_text="Recorded, not live")
    expect(moment).to_be_visible()
    first = moment.text_content()

    expect(moment).not_to_have_text(str(first))
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    page.get_by_text("Hold still").click()
    expect(page.get_by_label("Hold still", exact=True)).to_be_checked()
    _is_clean(page)


def test_a_demo_engine_starts_is_shown_by_itself_and_stops(open_watch, unfold) -> None:
    page = open_watch(scheme="dark")
    unfold(page, "Demo engine: a real vLLM")
    page.get_by_role("combobox", name="Workload").click()
    page.get_by_role("option", name=re.compile("Burst")).click()
    page.get_by_role("button", name="Start the demo engine").click()

    # nobody touches the page from here to the end of the load
    expect(page.get_by_text("The demo engine answers at")).to_be_visible()
    expect(page.get_by_text("Connected")).to_be_visible()
    expect(page.get_by_text("requests were answered")).to_be_visible()
    page.get_by_text("Hold still").click()
    expect(page.get_by_label("Hold still", exact=True)).to_be_checked()
    _is_clean(page)

    page.get_by_role("button", name="Stop the demo engine").click()
    expect(page.get_by_role("button", name="Start the demo engine")).to_be_visible()
    expect(page.get_by_text("The recording has ended")).to_be_visible()
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text("Recorded, not live")).to_be_visible()
    expect(page.get_by_text(re.compile("^Recording 127"))).to_be_visible()


def test_the_fields_beside_the_address_open_and_are_clean(open_watch) -> None:
    page = open_watch(width=390, scheme="dark")
    page.get_by_text("Hold still").click()
    expect(page.get_by_label("Hold still", exact=True)).to_be_checked()
    page.get_by_role("button", name="Probe and KV events").click()
    expect(page.get_by_role("textbox", name="Replay of KV events")).to_be_visible()
    _is_clean(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Prometheus").click()
    expect(page.get_by_role("button", name="Show its engines")).to_be_visible()
    _is_clean(page)


def _is_clean(page: Page) -> None:
    page.wait_for_function("document.querySelector('[data-stale=true]') === null")  # what waits for news is dimmed
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []
