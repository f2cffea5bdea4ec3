"""A simulation's own requests: the table as the reader left it, or an uploaded trace, taken into the session."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pages.parts import simulate_state
from pages.parts.language import mark, t
from pages.parts.said import said
from pages.parts.simulate_request import FILE, MOST_ROWS, TABLE, TableRow
from pages.parts.simulate_state import Trace, value
from planner.facts import PlanError
from planner.sequence import MAX_TOKENS
from planner.workload_files import read_requests

COLUMNS = {
    "arrival_step": mark("Arrives at step"),
    "num_prompt_tokens": mark("Prompt tokens"),
    "num_output_tokens": mark("Output tokens"),
    "prefix": mark("Prefix no."),
    "prefix_tokens": mark("Prefix tokens"),
    "priority": mark("Priority"),
}


def read_sources() -> PlanError | None:
    """Take in the table or the file as they stand now; the mistake in them, if there is one."""
    if value("workload") == FILE:
        uploaded = value("upload")
        if uploaded is None:
            simulate_state.hold_trace(None)
            return None
        return _read_trace(uploaded.name, uploaded.getvalue())
    if value("workload") == TABLE:
        try:
            simulate_state.keep("rows", rows_from(_edited_records()))
        except PlanError as problem:
            return problem
    return None


def _edited_records() -> list[dict[str, Any]]:
    """The table's rows with the reader's edits: changed cells, deleted and added rows."""
    records: list[dict[str, Any]] = [asdict(row) for row in simulate_state.table_start()]
    edits = value(f"editor_{value('table_turn')}") or {}
    for place, cells in edits.get("edited_rows", {}).items():
        records[int(place)] |= cells
    gone = set(edits.get("deleted_rows", ()))
    return [record for place, record in enumerate(records) if place not in gone] + list(edits.get("added_rows", ()))


def _read_trace(name: str, content: bytes) -> PlanError | None:
    """Hold the file's requests, or none of them and the mistake."""
    digest = hashlib.sha256(content).hexdigest()
    held = simulate_state.held_trace()
    if held is not None and held.digest == digest:
        return None
    simulate_state.hold_trace(None)
    try:
        text = content.decode("utf-8-sig")
        requests = read_requests(io.StringIO(text, newline=""), name=name)
    except UnicodeDecodeError:
        return PlanError("requests", name, t("{name} is not a text file in UTF-8.", name=name))
    except PlanError as problem:
        return problem
    simulate_state.hold_trace(Trace(name=name, digest=digest, requests=requests))
    return None


def rows_from(records: Sequence[dict[str, Any]]) -> tuple[TableRow, ...]:
    """The table's rows; raises `PlanError` naming the first row that lacks a number."""
    if len(records) > MOST_ROWS:
        raise PlanError(
            "rows",
            len(records),
            t(
                "The table has {records} rows; {most} are allowed: take a trace file.",
                records=len(records),
                most=MOST_ROWS,
            ),
        )
    rows = []
    for number, record in enumerate(records, 1):
        cells = {name: record.get(name) for name in COLUMNS}
        for name in ("num_prompt_tokens", "num_output_tokens"):
            if cells[name] is None:
                raise PlanError(
                    "rows",
                    number,
                    t(
                        "Row {number}: {column} is empty; write how many.",
                        number=number,
                        column=said(COLUMNS[name]).lower(),
                    ),
                )
        for name, cell in cells.items():
            if cell is not None and (cell != int(cell) or not 0 <= cell <= MAX_TOKENS):
                text = t(
                    "Row {number}: {column} must be a whole number from 0 to {most}.",
                    number=number,
                    column=said(COLUMNS[name]).lower(),
                    most=f"{MAX_TOKENS:,}",
                )
                raise PlanError("rows", cell, text)
        rows.append(TableRow(**{name: int(cell or 0) for name, cell in cells.items()}))
    return tuple(rows)
