"""The plan as files: JSON as the command line prints it, and the budget lines as CSV. Pure; knows no Streamlit."""

from __future__ import annotations

import csv
import io
import json

from planner.answer import Plan
from planner.inventory import ModelFacts
from planner.plan_json import to_json

_CSV_COLUMNS = ("pp_rank", "part", "bytes", "low_bytes", "high_bytes", "is_inside_budget", "basis", "note", "formula")


def plan_json(plan: Plan, model: ModelFacts) -> str:
    """The whole answer as the JSON that `python -m planner plan --json` prints."""
    return json.dumps(to_json(plan, model), indent=2, ensure_ascii=False) + "\n"


def lines_csv(plan: Plan) -> str:
    """One row a budget line and pipeline stage, exact bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for rank in plan.ranks:
        for line in rank.lines:
            part = line.estimate
            sizes = (part.best_bytes, part.low_bytes, part.high_bytes)
            row = (
                rank.pp_rank,
                line.name,
                *sizes,
                line.is_inside_budget,
                part.basis.kind,
                part.basis.note,
                part.formula,
            )
            writer.writerow([inert(cell) for cell in row])
    return text.getvalue()


def file_stem(plan: Plan) -> str:
    """A file name that tells the plan: model and card, nothing but letters, digits, dots and dashes."""
    name = f"{plan.request.model_id.rsplit('/', 1)[-1]}-{plan.gpu_name}"
    return "kvscope-" + "".join(sign if sign.isalnum() or sign in ".-" else "-" for sign in name).strip("-.")[:80]


def inert(cell: object) -> object:
    """`cell` with no power over a spreadsheet: a text that starts like a formula gets an apostrophe."""
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip()[:1] in {"=", "+", "-", "@"} else cell
