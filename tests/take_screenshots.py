"""Take the pictures of docs/pages.md: every page at 1280 and 390 pixels, from a server of its own.

    make screenshots

The pictures are reduced to 128 colours, which suffices for text and bars and keeps the checkout small.
"""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "images"
PAGES = {
    "plan": "/",
    "simulate": "/simulate",
    "trade-offs": "/weigh",
    "watch": "/watch",
    "calibrate": "/calibrate",
    "compare": "/compare",
    "accuracy": "/accuracy",
    "learn": "/learn?lesson=token",
}
WIDTHS = (1280, 390)
TALLEST_PIXELS = 2_000
NUM_COLOURS = 128
DONE = '[data-testid="stApp"][data-test-script-state="notRunning"][data-test-connection-state="CONNECTED"]'
_HEIGHT = "() => document.querySelector('[data-testid=stMain]').scrollHeight"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until_healthy(origin: str) -> None:
    """Return once the server answers."""
    for _ in range(240):
        try:
            with urllib.request.urlopen(f"{origin}/healthz", timeout=2):  # noqa: S310 - our own address
                return
        except OSError:
            time.sleep(0.5)
    raise SystemExit("the server did not start")


def take(browser: Browser, origin: str, name: str, path: str, width: int) -> None:
    """Write the picture of one page at one width."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.goto(origin + path, timeout=90_000)
    page.wait_for_selector(DONE, timeout=120_000)
    page.wait_for_timeout(5_000)  # charts are drawn after the script has ended
    height = min(int(page.evaluate(_HEIGHT)) + 20, TALLEST_PIXELS)
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(2_500)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(NUM_COLOURS)
    picture.save(FOLDER / f"{name}-{width}.png", optimize=True)
    context.close()


def main() -> None:
    """Take all pictures, or those of the pages that are named."""
    wanted = sys.argv[1:] or list(PAGES)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"KVSCOPE_RECORDINGS": folder}
        command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        try:
            origin = f"http://127.0.0.1:{port}"
            wait_until_healthy(origin)
            with sync_playwright() as playwright:
                flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
                browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
                for name in wanted:
                    for width in WIDTHS:
                        take(browser, origin, name, PAGES[name], width)
                browser.close()
        finally:
            server.terminate()
            server.wait(timeout=20)


if __name__ == "__main__":
    main()
