"""The pages through Streamlit's own test driver, always from the frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from live import monitor
from tests.fakes.metrics_server import MetricsServer, metrics_server

ROOT = Path(__file__).parents[2]

OpenPage = Callable[..., AppTest]


@pytest.fixture
def open_plan() -> OpenPage:
    """Opens the Plan page, with the link's parameters as keywords, and runs it once."""

    def open_page(**query: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=30)
        for name, text in query.items():
            app.query_params[name] = text
        return app.run()

    return open_page


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of recordings, and a monitor of its own."""
    monitor.stop_process_monitor()
    monkeypatch.setenv(monitor.FOLDER_SETTING, str(tmp_path))
    yield tmp_path
    monitor.stop_process_monitor()


@pytest.fixture
def open_watch(folder: Path) -> Callable[[], AppTest]:  # noqa: ARG001 - the folder is set up first
    """Opens the Watch page from the frame."""

    def open_page() -> AppTest:
        app = AppTest.from_file(str(ROOT / "pages" / "_frame.py"), default_timeout=60).run()
        app.switch_page("watch.py")
        return app.run()

    return open_page


@pytest.fixture
def engine() -> Iterator[MetricsServer]:
    """An engine that answers with the metrics it is given."""
    with metrics_server() as server:
        yield server
