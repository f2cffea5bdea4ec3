"""The Plan page in a real browser: links, the keyboard, narrow screens, and what a screen reader meets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

FITTING = "/?model=Qwen%2FQwen3-32B&gpu=H100+80GB+SXM&tensor_parallel_size=2"
FAILING = "/?model=Qwen%2FQwen3-32B&gpu=L4&tensor_parallel_size=2&pipeline_parallel_size=2"


def heading(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", name=text)).to_be_visible()


def metric(page: Page, label: str) -> str:
    box = page.get_by_test_id("stMetric").filter(has_text=label)
    return box.get_by_test_id("stMetricValue").inner_text().strip()


def test_a_cold_deep_link_opens_inside_the_frame(open_page) -> None:
    """Runs first: on a server nobody has visited yet."""
    page = open_page(FITTING)

    heading(page, "vLLM will start")
    assert page.title() in {"KVScope", "Plan"}
    expect(page.get_by_text("Qwen3-32B on 2 × H100 80GB SXM")).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()


def test_from_a_pasted_command_to_a_link_in_a_second_browser(open_page, unfold) -> None:
    page = open_page()
    unfold(page, "Paste a command or an error")
    page.get_by_role("textbox", name="vllm serve, docker run").fill(
        "vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len 32768 --bogus 1"
    )
    page.get_by_role("button", name="Read it").click()
    heading(page, "vLLM will start")
    expect(page.get_by_text("Requests of 32,768 tokens", exact=True)).to_be_visible()
    expect(page.get_by_test_id("stMarkdown").filter(has_text="--bogus is no flag")).to_be_visible()
    before = metric(page, "KV cache tokens")

    utilization = page.get_by_role("spinbutton", name="--gpu-memory-utilization")
    utilization.fill("0.8")
    utilization.press("Enter")
    expect(page.get_by_test_id("stMetricValue").filter(has_text=before)).to_have_count(0)
    page.wait_for_url("**gpu_memory_utilization=0.8**")
    after = metric(page, "KV cache tokens")
    second = open_page(page.url)

    expect(second.get_by_text("Requests of 32,768 tokens", exact=True)).to_be_visible()
    assert int(after.replace(",", "")) < int(before.replace(",", ""))
    assert metric(second, "KV cache tokens") == after
    shown = page.get_by_test_id("stCode").filter(has_text="http").inner_text().replace("\n", "")
    assert shown.split("?", 1)[1].strip() == page.url.split("?", 1)[1]


def test_a_flag_is_changed_by_keyboard_alone(open_page) -> None:
    page = open_page(FITTING)
    before = metric(page, "KV blocks")

    field = page.get_by_role("spinbutton", name="--tensor-parallel-size")
    field.focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("4")
    page.keyboard.press("Enter")

    page.wait_for_url("**tensor_parallel_size=4**")
    expect(page.get_by_text("Qwen3-32B on 4 × H100 80GB SXM")).to_be_visible()
    assert metric(page, "KV blocks") != before


def test_an_advice_is_applied_and_the_plan_starts(open_page) -> None:
    page = open_page("/?model=Qwen%2FQwen3-32B&gpu=A100+40GB+SXM&tensor_parallel_size=2")
    heading(page, "vLLM will not start")

    page.get_by_role("button", name="Apply").first.click()

    expect(page.get_by_role("heading", name="vLLM will start")).to_be_visible()


def test_the_plan_is_downloaded_without_losing_the_page(open_page, tmp_path: Path) -> None:
    page = open_page(FITTING)

    with page.expect_download() as download:
        page.get_by_role("button", name="JSON").click()
    download.value.save_as(tmp_path / "plan.json")

    answer = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert answer["will_start"] is True
    assert f"{answer['num_gpu_blocks']:,}" == metric(page, "KV blocks")


def test_hovering_a_bar_tells_its_formula_and_bytes(open_page) -> None:
    page = open_page(FITTING)
    chart = page.locator(".js-plotly-plot").first
    chart.scroll_into_view_if_needed()

    chart.locator(".bars .point path").first.hover(force=True)

    expect(chart.locator(".hoverlayer")).to_contain_text("bytes")
    expect(chart.locator(".hoverlayer")).to_contain_text("=")


@pytest.mark.parametrize("path", [FITTING, FAILING])
def test_a_narrow_screen_needs_no_sideways_scrolling(open_page, path: str) -> None:
    page = open_page(path, width=390)
    expect(page.locator(".js-plotly-plot").first).to_be_visible()

    widths = page.evaluate(
        "() => [document.documentElement, document.querySelector('[data-testid=stMain]')]"
        ".map(part => part.scrollWidth - part.clientWidth)"
    )

    assert widths == [0, 0]
    expect(page.get_by_role("heading", name="vLLM will")).to_be_in_viewport()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(open_page, unfold, scheme: str) -> None:
    page = open_page(FAILING, scheme=scheme)
    expect(page.locator(".js-plotly-plot").last).to_be_visible()
    unfold(page, "Every part exactly")
    unfold(page, "How vLLM resolves its flags")
    expect(page.get_by_text("Where it comes from")).to_be_visible()

    found = Axe().run(page)

    grave = [fault for fault in found.response["violations"] if fault["impact"] in {"serious", "critical"}]
    assert [(fault["id"], [node["target"] for node in fault["nodes"]][:5]) for fault in grave] == []
