"""vLLM's flags by release."""

from __future__ import annotations

from planner.facts import Finding
from planner.request import EngineFlags
from planner.versions import Version


def absent_flags(flags: EngineFlags, version: Version) -> tuple[Finding, ...]:
    """The given flags that the release does not have."""
    return ()
