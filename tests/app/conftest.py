"""The pages through Streamlit's own test driver, always from the frame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

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
