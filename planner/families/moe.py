"""Family builders: moe."""

from __future__ import annotations

from planner.families import Builder

BUILDERS: dict[str, Builder] = {}
