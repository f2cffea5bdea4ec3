"""Loads for tests: each differs from an ordinary chat in what the test names."""

from __future__ import annotations

from typing import Any

from planner.demand import Demand, Lengths


def lengths(name: str = "prompt", p50: Any = 600, p95: Any = 2000, p99: Any = 4000) -> Lengths:
    """Lengths by three percentiles."""
    return Lengths(name=name, p50_tokens=p50, p95_tokens=p95, p99_tokens=p99)


def demand(**changes: Any) -> Demand:
    """Eight users with prompts of 600 and answers of 250 tokens, and what `changes` say."""
    asked: dict[str, Any] = {"prompt": lengths(), "output": lengths("output", 250, 700, 1200), "users": 8}
    return Demand(**(asked | changes))
