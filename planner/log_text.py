"""A read start-up log as lines for a terminal."""

from __future__ import annotations

from planner.log_json import GIB_KEYS, PLAIN_KEYS, as_printed
from planner.log_request import LoggedRequest
from planner.startup_facts import StartupLog

_OUTCOMES = {"started": "started", "failed": "did not start", "unknown": "the log ends before it tells"}


def to_text(log: StartupLog, request: LoggedRequest) -> str:
    """What one start says: facts with the numbers of their lines, then findings, then lines that were not understood."""
    lines = [f"outcome: {_OUTCOMES[log.outcome]}"]
    if log.release is not None:
        lines.append(f"release: {log.release.text} ({log.release.basis})")
    derived = dict(log.derived)
    for key, name in PLAIN_KEYS.items():
        if (value := getattr(log, name)) is not None:
            lines.append(f"{key}: {value}{_where(log, name, derived)}")
    for key, name in GIB_KEYS.items():
        if (estimate := log.memory(name)) is not None:
            lines.append(f"{key}: {as_printed(estimate)}{_where(log, name, derived)}")
    if log.failed_start is not None:
        lines.append(
            f"failure: {log.failed_start.kind}, line {log.failed_start.line.number}: {log.failed_start.line.text}"
        )
    findings = (*log.findings, *request.findings)
    lines += [f"{finding.severity}: {finding.text}" for finding in findings]
    lines += [f"not understood, line {line.number}: {line.text[:160]}" for line in log.unread[:20]]
    return "\n".join(lines)


def _where(log: StartupLog, name: str, derived: dict[str, str]) -> str:
    line = log.line_of("printed_block_size" if name == "block_size" else name)
    if line is not None:
        return f"  (line {line.number})"
    return f"  (derived: {derived[name]})" if name in derived else ""
