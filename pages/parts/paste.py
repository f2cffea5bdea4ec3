"""A pasted vllm serve, docker or YAML text fills the form; a pasted error line is explained against the plan."""

from __future__ import annotations

from planner.answer import Plan


def paste_input(plan: Plan | None) -> None:
    """Draw it."""
