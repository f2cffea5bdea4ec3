"""The environment with vLLM, or a skip; a failure where CI says that it must be there."""

from __future__ import annotations

import os

import pytest

from live.engine.environment import EngineEnvironment, find_engine


def ready_engine() -> EngineEnvironment:
    found = find_engine()
    if found.state != "ready":
        if os.environ.get("CI") == "true":
            pytest.fail(found.text)
        pytest.skip(found.text)
    return found
