"""The Blocks pages in a real browser: the player, the map, the keyboard, links, pictures, and what a screen reader meets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

LESSON = "/simulate?sim=workload.lesson"
KINDS = {"arrived", "admitted", "shared", "preempted", "resumed", "evicted", "finished"}
FEW = "workload.drawn~num_requests.60~num_gpu_blocks.600"


def where(page: Page) -> Locator:
    return page.locator("output.where")


def painted(page: Page, step: int) -> None:
    """Wait until the map of `step` is on the screen."""
    expect(page.locator(".kv")).to_have_attribute("data-painted", re.compile(rf":{step}$"))


def open_lesson(open_page, step: int = 0, **options: object) -> Page:
    page = open_page(f"{LESSON}~step.{step}" if step else LESSON, **options)
    painted(page, step)
    return page


def cell(page: Page, block: int) -> dict[str, float]:
    """The middle of a block's cell, in pixels of the canvas."""
    found = page.evaluate(
        """(block) => {
          const find = (node) => node.querySelector(".kv")
            ?? [...node.querySelectorAll("*")].map((each) => each.shadowRoot && find(each.shadowRoot)).find(Boolean);
          const canvas = find(document).querySelector("canvas.map");
          return [canvas.clientWidth, canvas.clientHeight];
        }""",
        block,
    )
    width, height = found
    side = next(
        size for size in range(72, 4, -1) if width // size * (height // size) >= 21 and size * (width // size) <= width
    )
    columns = -(-21 // round(height / side))
    return {"x": (block % columns + 0.5) * side, "y": (block // columns + 0.5) * side}


def test_a_cold_deep_link_shows_its_step(open_page) -> None:
    page = open_lesson(open_page, 12)

    expect(page.get_by_text("The pool ran full: 1 preemption")).to_be_visible()
    expect(page.locator(".say")).to_contain_text("r3 preempted: 8 blocks freed, 8 still cached")
    expect(page.locator(".stand")).to_contain_text("12 of 20 blocks in use (60 %)")


def test_the_buttons_step_colours_change_and_the_link_follows(open_page) -> None:
    page = open_lesson(open_page, 12)
    before = page.locator("canvas.map").screenshot()
    page.get_by_role("radio", name="State").or_(page.get_by_role("button", name="State", exact=True)).first.click()
    page.wait_for_function("new Promise((done) => setTimeout(() => done(true), 1500))")
    assert page.locator("canvas.map").screenshot() != before
    page.get_by_role("button", name="First step").click()
    painted(page, 0)

    page.get_by_role("button", name="One step forward").click()
    page.get_by_role("button", name="Next event").click()
    painted(page, 2)
    expect(page.locator(".say")).to_contain_text("r2 shares blocks 1–3 with r1")
    page.wait_for_url("**step.2")
    entries = page.evaluate("history.length")
    page.get_by_role("button", name="Last step").click()
    painted(page, 40)
    page.get_by_role("button", name="One step back").click()
    painted(page, 39)
    page.get_by_role("button", name="First step").click()

    painted(page, 0)
    expect(where(page)).to_have_text("Step 0 of 40")
    assert page.evaluate("history.length") == entries


def test_it_plays_by_itself_and_pauses(open_page) -> None:
    page = open_lesson(open_page)
    page.get_by_label("Speed").select_option("30")

    page.get_by_role("button", name="Play").click()
    painted(page, 40)

    expect(page.get_by_role("button", name="Play")).to_be_visible()
    page.wait_for_url("**step.40")


def test_playing_passes_from_stretch_to_stretch(open_page) -> None:
    page = open_page(f"/simulate?sim={FEW}~num_requests.120~step.180")
    painted(page, 180)
    page.get_by_label("Speed").select_option("30")

    page.get_by_role("button", name="Play").click()
    page.wait_for_function("Number(location.search.length) > 0")
    expect(page.locator(".kv")).to_have_attribute("data-painted", re.compile(r":(2[3-9]\d|[3-9]\d\d)$"))

    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_the_player_obeys_the_keyboard(open_page) -> None:
    page = open_lesson(open_page)
    page.locator("canvas.map").focus()

    page.keyboard.press("n")
    painted(page, 2)
    page.keyboard.press("l")
    painted(page, 3)
    page.keyboard.press("j")
    painted(page, 2)
    page.keyboard.press("End")
    painted(page, 40)
    page.keyboard.press("Home")

    expect(page.locator(".kv")).to_have_attribute("data-painted", re.compile(":0$"))


def test_the_cursor_names_a_block_and_enter_chooses_its_request(open_page) -> None:
    page = open_lesson(open_page, 3)
    page.locator("canvas.map").focus()

    page.keyboard.press("ArrowRight")

    expect(page.locator(".tip")).to_contain_text("Block 2 · shared")
    expect(page.locator(".tip")).to_contain_text("Held by r1, r2")
    expect(page.locator(".reader")).to_contain_text("tokens 4–7 (4 of 4)")
    page.keyboard.press("Enter")
    expect(page.locator(".request[aria-pressed=true]")).to_contain_text("r1")
    expect(page.get_by_text("Block 2 is shared · held by r1, r2")).to_be_visible()
    page.locator("canvas.map").focus()
    page.keyboard.press("Escape")
    expect(page.locator(".request[aria-pressed=true]")).to_have_count(0)


def test_blocks_and_the_list_choose_a_request(open_page) -> None:
    page = open_lesson(open_page, 6)
    canvas = page.locator("canvas.map")

    canvas.hover(position=cell(page, 6))
    expect(page.locator(".tip")).to_contain_text("Block 6 · in use")
    expect(page.locator(".tip")).to_contain_text("Held by r2")
    canvas.click(position=cell(page, 6))

    expect(page.locator(".request[aria-pressed=true]")).to_contain_text("r2")
    expect(page.get_by_text("r2 runs: 20 of 32 tokens computed, in 5 blocks, 3 of them shared.")).to_be_visible()
    expect(page.get_by_test_id("stDataFrame")).to_be_visible()
    page.locator(".request").filter(has_text="r3").click()
    expect(page.get_by_text("r3 runs: 27 of 46 tokens computed, in 7 blocks.")).to_be_visible()
    expect(page.locator(".kv")).to_have_attribute("data-selected", "2")


def test_a_link_opens_the_same_in_a_second_browser(open_page) -> None:
    first = open_page(f"/simulate?sim={FEW}~seed.3")
    painted(first, 0)
    first.get_by_role("button", name="Next event").click()
    first.wait_for_url("**step.*")
    stand = first.locator(".stand").inner_text()

    second = open_page(first.url)

    expect(second.locator(".stand")).to_have_text(stand)
    assert second.url == first.url


def test_the_map_survives_a_visit_to_another_page(open_page) -> None:
    page = open_lesson(open_page, 12)

    page.get_by_role("link", name="Plan").click()
    expect(page.get_by_text("Where the card's memory goes")).to_be_visible()
    assert "sim=" not in page.url
    page.get_by_role("link", name="Simulate").click()

    painted(page, 12)
    page.wait_for_url("**sim=workload.lesson~step.12")
    page.get_by_role("button", name="5 · Cache hit").click()
    painted(page, 30)
    expect(page.locator(".say")).to_contain_text("r5 takes cached blocks 1–3 back into use")


def test_the_frame_and_the_event_log_are_saved(open_page, tmp_path: Path) -> None:
    page = open_lesson(open_page, 12)

    with page.expect_download() as download:
        page.get_by_role("button", name="Save PNG").click()

    path = tmp_path / "frame.png"
    download.value.save_as(path)
    assert download.value.suggested_filename == "kvscope-blocks-step-12.png"
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert path.stat().st_size > 5_000
    page.get_by_role("radio", name="Export").or_(page.get_by_role("button", name="Export")).first.click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Events as JSONL").click()
    lines = [json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").splitlines()]
    assert {line["kind"] for line in lines} == KINDS


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_nothing_is_wider_than_the_window_and_axe_finds_nothing(open_page, width: int, scheme: str) -> None:
    page = open_lesson(open_page, 12, width=width, scheme=scheme)

    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []


def test_trade_offs_tell_what_becomes_of_the_claim(open_page) -> None:
    page = open_page("/weigh?sim=workload.drawn~num_requests.40~num_gpu_blocks.400~max_num_seqs.8~prompt_mean.100")

    expect(page.get_by_text("On and off")).to_be_visible()
    expect(page.get_by_text("Refuted.").first).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
