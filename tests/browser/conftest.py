"""A real server and a real Chromium. Every page asserts at its end that no request left the machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.vllm_stand_in import stand_in_environment
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
START_SECONDS = 60.0
WAIT_MILLISECONDS = 45_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
DONE = '[data-testid="stApp"][data-test-script-state="notRunning"][data-test-connection-state="CONNECTED"]'

# A browser that came too late is asked once more, and the summary says so (docs/decisions/0005); all else fails at once.
LATE = [r"^TimeoutError", r"Locator expected"]

expect.set_options(timeout=WAIT_MILLISECONDS)

OpenPage = Callable[..., Page]
Unfold = Callable[[Page, str], None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(str(item.path)).is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=LATE))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; where it is missing the tests are skipped, in CI they fail."""
    if not CHROMIUM.exists():
        reason = f"{CHROMIUM} is missing: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_healthy(origin: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{origin}/healthz", timeout=2) as answer:  # noqa: S310 - our own address
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            if server.poll() is not None:
                break
        time.sleep(0.2)
    pytest.fail(f"the server did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server started for these tests, as `make run` starts it."""
    port = _free_port()
    folder = tmp_path_factory.mktemp("server")
    log = folder / "log"
    environment = os.environ | {
        "KVSCOPE_RECORDINGS": str(folder / "recordings"),
        "KVSCOPE_ENGINE": str(stand_in_environment(folder / "engine")),
    }
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_healthy(address, server, log)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=20)


def settle(page: Page) -> None:
    """Wait until the page's script has run and its charts are drawn."""
    page.wait_for_selector(DONE, timeout=WAIT_MILLISECONDS)


@pytest.fixture
def unfold() -> Unfold:
    """Opens a folded place and waits until it stands: while it still grows, its scrolling closes a list opened in it."""

    def unfold_place(page: Page, title: str) -> None:
        place = page.locator("details").filter(has=page.locator("summary", has_text=title)).first
        place.locator("summary").first.click()
        expect(place).to_have_attribute("open", "")
        place.evaluate("place => Promise.allSettled(place.getAnimations().map(each => each.finished))")

    return unfold_place


@pytest.fixture
def open_page(browser: Browser, origin: str) -> Iterator[OpenPage]:
    """Opens the app in a fresh browser context: `open_page("/?model=...", width=390, scheme="dark")`."""
    contexts: list[BrowserContext] = []
    foreign: list[str] = []
    complaints: list[str] = []

    def open_at(path: str = "/", *, width: int = 1280, scheme: str = "light") -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: _note_foreign(request.url, origin, foreign))
        page.on("console", lambda message: _note_complaint(message, origin, complaints))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path if path.startswith("http") else origin + path)
        settle(page)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert foreign == []
    assert complaints == []


def _note_complaint(message: ConsoleMessage, origin: str, complaints: list[str]) -> None:
    """Note an error; on a deep link Streamlit's page looks for its server under the page's own path first."""
    is_looking = message.location["url"].startswith(origin) and "/_stcore/" in message.location["url"]
    if message.type == "error" and not ("404" in message.text and is_looking):
        complaints.append(message.text)


def _note_foreign(url: str, origin: str, foreign: list[str]) -> None:
    if not url.startswith((origin, "data:", "blob:")):
        foreign.append(url)
