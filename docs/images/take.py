# ruff: noqa: INP001 - a script beside the pictures it takes
"""Takes the README's pictures from a running KVScope: `make run`, then `.venv/bin/python docs/images/take.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

PLAN = "/?model=Qwen%2FQwen3-32B&gpu=H100+80GB+SXM&tensor_parallel_size=2&max_model_len=32768"
SCHEMES = {"plan.png": "light", "plan-dark.png": "dark"}


def main(origin: str) -> None:
    """Write each picture beside this file."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        for name, scheme in SCHEMES.items():
            page = browser.new_page(
                viewport={"width": 1360, "height": 1000},
                color_scheme=scheme,  # type: ignore[arg-type]
                device_scale_factor=1.5,
            )
            page.goto(origin + PLAN)
            expect(page.locator(".js-plotly-plot").last).to_be_visible(timeout=60_000)
            page.wait_for_timeout(2000)  # fonts and the charts' last frame
            page.screenshot(path=Path(__file__).parent / name)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8501")
