"""How fast a real browser sees it: the block map from click to paint, an engine from the press to its numbers. Asserts nothing."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakes.metrics_server import metrics_server, metrics_text
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
CHROMIUM = Path("/usr/bin/chromium")
SIZES = {
    131_073: "num_requests.500~prompt_kind.fixed~prompt_mean.4000~prompt_high.8000~max_model_len.8192",
    1_000_001: "num_requests.500~prompt_kind.fixed~prompt_mean.31000~prompt_high.40000~max_model_len.40000",
}
_REST = "arrivals.at_once~max_num_seqs.512~max_num_batched_tokens.1000000~output_kind.fixed~output_mean.300"
_ROUNDS = 7
_PLAY_SECONDS = 3.0


@contextmanager
def server(**environment: str) -> Iterator[str]:
    """The address of an application started for this measurement."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    env = os.environ | environment
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_up(f"http://127.0.0.1:{port}/healthz")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until_up(address: str) -> None:
    """Return once the address answers, 40 s at most."""
    for _ in range(200):
        try:
            with urllib.request.urlopen(address, timeout=2):  # noqa: S310 - our own address
                return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(address)


def open_pool(page: Page, origin: str, num_blocks: int) -> None:
    """Show a full pool of `num_blocks` blocks, half a minute at most."""
    asked = f"workload.drawn~num_gpu_blocks.{num_blocks}~{SIZES[num_blocks]}~{_REST}~step.60"
    page.goto(f"{origin}/simulate?sim={asked}")
    page.wait_for_selector(".kv[data-painted]", timeout=120_000)
    page.wait_for_function("document.querySelector('[data-test-script-state=notRunning]')", timeout=60_000)
    page.wait_for_timeout(1500)


def click_seconds(page: Page) -> tuple[float, float]:
    """Medians from clicking a block to its request standing out, and to the server's answer being painted too."""
    box = page.locator("canvas.map").bounding_box()
    if box is None:
        raise RuntimeError("the map is not drawn")
    pairs = []
    for number in range(_ROUNDS):
        x, y = box["width"] * (0.1 + 0.11 * number), box["height"] * (0.15 + 0.06 * number)
        pairs.append(page.evaluate(_CLICK, [x, y]))
        page.wait_for_timeout(500)
    painted, answered = zip(*pairs, strict=True)
    return statistics.median(painted), statistics.median(answered)


# Timed in the page itself, from the pointer to the frame after the drawing.
_CLICK = """async ([x, y]) => {
  const find = (node) => node.querySelector(".kv")
    ?? [...node.querySelectorAll("*")].map((each) => each.shadowRoot && find(each.shadowRoot)).find(Boolean);
  const root = find(document), canvas = root.querySelector("canvas.map"), box = canvas.getBoundingClientRect();
  const at = { clientX: box.left + x, clientY: box.top + y, bubbles: true, pointerId: 1 };
  const { frames, answers } = root.dataset;
  const start = performance.now();
  const frame = () => new Promise(requestAnimationFrame);
  const until = async (isDone) => {
    while (!isDone()) {
      await frame();
      if (performance.now() - start > 20000) throw new Error("nothing was painted");
    }
    await frame();
    return (performance.now() - start) / 1000;
  };
  canvas.dispatchEvent(new PointerEvent("pointerdown", at));
  canvas.dispatchEvent(new PointerEvent("pointerup", at));
  return [await until(() => root.dataset.frames !== frames), await until(() => root.dataset.answers !== answers)];
}"""


def frames_per_second(page: Page) -> float:
    """How many different steps are painted a second while the player runs at its fastest."""
    page.locator("select.speed").select_option("30")
    frames = page.locator(".kv")
    page.locator("button.play").click()
    page.wait_for_timeout(500)
    first, start = int(frames.get_attribute("data-frames") or 0), time.perf_counter()
    page.wait_for_timeout(_PLAY_SECONDS * 1000)
    last, seconds = int(frames.get_attribute("data-frames") or 0), time.perf_counter() - start
    page.locator("button.play").click()
    return (last - first) / seconds


def first_number_seconds(page: Page, origin: str) -> float:
    """From pressing Watch, with the address typed, to the engine's real usage on the page."""
    with metrics_server() as engine:
        engine.text = metrics_text(usage=0.625)
        page.goto(f"{origin}/watch")
        page.wait_for_function("document.querySelector('[data-test-script-state=notRunning]')", timeout=60_000)
        page.wait_for_timeout(3000)
        field = page.get_by_role("textbox", name="Engine's address")
        field.fill(engine.url)
        start = time.perf_counter()
        field.press("Enter")
        page.get_by_role("button", name="Watch", exact=True).click()
        page.get_by_test_id("stMetric").filter(has_text="62.5").wait_for(timeout=60_000)
        seconds = time.perf_counter() - start
        page.locator(".js-plotly-plot").nth(3).wait_for(timeout=60_000)
        page.wait_for_timeout(3000)  # until nothing moves under the pointer any more
        page.get_by_role("button", name="End recording").click()
        page.get_by_text("The recording has ended").wait_for(timeout=60_000)
    return seconds


def bench_first_number() -> None:
    """Print how long a reader waits for the first real number of an engine."""
    with (
        tempfile.TemporaryDirectory() as folder,
        server(KVSCOPE_RECORDINGS=folder) as origin,
        sync_playwright() as play,
    ):
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        seconds = [first_number_seconds(page, origin) for _ in range(_ROUNDS)]
        browser.close()
    print(
        f"an engine's first number in Chromium: {statistics.median(seconds):.2f} s after the press "
        f"({min(seconds):.2f} to {max(seconds):.2f} of {_ROUNDS}), load {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    """Print every figure."""
    bench_first_number()
    print("block map in Chromium (median of a shared machine)")
    with server() as origin, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for num_blocks in SIZES:
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            open_pool(page, origin, num_blocks)
            painted, answered = click_seconds(page)
            rate = frames_per_second(page)
            print(
                f"  {num_blocks:>9,} blocks   click to paint {painted * 1e3:5.0f} ms, with the server's answer "
                f"{answered * 1e3:5.0f} ms   playing {rate:4.1f} frames/s"
            )
            page.context.close()
        browser.close()


if __name__ == "__main__":
    main()
