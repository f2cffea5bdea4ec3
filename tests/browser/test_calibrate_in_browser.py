"""The Calibrate page in a real browser: a log is dropped, calibrated, and the Plan page is narrower; a link elsewhere says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.factories import shared_file
from tests.start_logs import StartNumbers, start_log

OFF = StartNumbers(activation=2.31, non_torch=0.41, pool=57.24, tokens=416_800, concurrency=50.88)
PLAN = "/?model=Qwen%2FQwen3-8B&gpu=H100+80GB+SXM&vllm_version=0.19.0&max_model_len=8192&gpu_memory_utilization=0.95"


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    path = tmp_path / "qwen3.log"
    path.write_text(start_log(OFF), encoding="utf-8")
    return path


def drop(page: Page, path: Path) -> None:
    page.locator("input[type=file]").first.set_input_files(path)


def pool_band(page: Page) -> float:
    """The width of the KV cache pool's band on the Plan page, in GiB."""
    metric = page.get_by_test_id("stMetric").filter(has_text="KV cache pool")
    low, high = re.findall(r"(\d+\.\d+)", metric.get_by_test_id("stMetricDelta").inner_text())[:2]
    return float(high) - float(low)


def remove_all(page: Page, unfold: Callable[[Page, str], None]) -> None:
    unfold(page, "H100 80GB SXM · vLLM")
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("None yet.")).to_be_visible()


def test_a_dropped_log_calibrates_and_the_plan_narrows(open_page, unfold, log_file: Path) -> None:
    plain = open_page(PLAN)
    expect(plain.get_by_test_id("stMetric").filter(has_text="KV cache pool")).to_be_visible()
    general = pool_band(plain)

    page = open_page("/calibrate")
    expect(page.get_by_role("heading", name="Set a start beside its plan")).to_be_visible()
    drop(page, log_file)
    expect(page.get_by_text("Read: Qwen3-8B, vLLM 0.19.0, TP 1.")).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    page.get_by_role("button", name="Calibrate this host").click()
    expect(page.get_by_text("Kept as")).to_be_visible()
    page.get_by_role("button", name="Open on the Plan page").click()
    expect(page.get_by_role("heading", name="vLLM will start")).to_be_visible()
    expect(page.get_by_text("In use:")).to_be_visible()
    expect(page).to_have_url(re.compile("calibration="))

    assert pool_band(page) < 0.8 * general
    link = page.url
    other = open_page(link)
    expect(other.get_by_text("In use:")).to_be_visible()

    page.get_by_role("link", name="Calibrate").click()
    remove_all(page, unfold)
    elsewhere = open_page(link)
    expect(elsewhere.get_by_text("Named by the link and not held")).to_be_visible()


def test_a_real_log_in_its_decorations_is_read(open_page) -> None:
    page = open_page("/calibrate")

    drop(page, shared_file("groundtruth", "logs", "docker-compose-prefix-rocm-gemma3.txt"))
    expect(page.get_by_text("Choose the card that this log is of.")).to_be_visible()
    page.get_by_role("combobox", name="Card").fill("MI300X")
    page.get_by_role("option", name="Instinct MI300X", exact=True).click()

    expect(page.get_by_text("measured 109.86 GiB")).to_be_visible()


def test_nothing_is_wider_than_the_window_and_axe_finds_nothing(open_page, log_file: Path) -> None:
    page = open_page("/calibrate", scheme="dark")
    drop(page, log_file)
    expect(page.get_by_role("button", name="Calibrate this host")).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    _is_clean(page)

    page.set_viewport_size({"width": 390, "height": 900})
    page.emulate_media(color_scheme="light")
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    _is_clean(page)


def _is_clean(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    found = [
        (each["id"], node["html"][:200]) for each in Axe().run(page).response["violations"] for node in each["nodes"]
    ]
    # Streamlit names its own drop zone, which it also calls presentation.
    assert [pair for pair in found if "stFileUploaderDropzone" not in pair[1]] == []
