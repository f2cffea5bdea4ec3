"""`python -m planner score`: real start-up rows beside their predictions, on the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from planner.facts import PlanError
from planner.log_file import decode_log
from planner.score import Scored, score_rows
from planner.score_json import document
from planner.score_record import record_text
from planner.score_report import leave_one_out_tables, markdown, text_report
from planner.truth import CARRIED_ROWS, TruthRow, distinct_rows, read_rows

NOTHING_PREDICTED, UNREADABLE = 1, 2
_HELP = """Compare predictions with what real engines logged. FILE holds one start-up a line, in JSON, with the fields of
planner/data/truth/README.md. A line that is no row, or that cannot be predicted, is listed with the reason.
The exit status is 0, 1 when no row could be predicted, and 2 when a file cannot be read."""


def main(argv: Sequence[str]) -> int:
    """The exit status of `python -m planner score`: 0, 1 when nothing was predicted, or 2 with one line on stderr."""
    options = _parser().parse_args(argv)
    try:
        rows = distinct_rows(row for path in options.files or carried_files() for row in rows_of(path))
    except PlanError as error:
        sys.stderr.write(f"{error}\n")
        return UNREADABLE
    scored = score_rows(rows, options.configs)
    counted = tuple(item for item in scored if item.grade in options.grades.upper())
    sys.stdout.write(_shown(options, scored, counted))
    return 0 if any(item.reason is None for item in scored) else NOTHING_PREDICTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m planner score", description=_HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="default: the rows of the project")
    parser.add_argument("--configs", type=Path, help="a folder of more configs, tried after the catalogue")
    parser.add_argument("--grades", default="AB", help="letters of the grades to count in tables (default AB)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document: figures, splits and every row")
    form.add_argument("--markdown", action="store_true", help="the accuracy tables of the documentation")
    form.add_argument("--leave-one-out", action="store_true", help="pools refitted without each row's own model")
    form.add_argument("--record", action="store_true", help="what the Accuracy page reads (planner/data/accuracy.json)")
    return parser


def _shown(options: argparse.Namespace, scored: Sequence[Scored], counted: Sequence[Scored]) -> str:
    if options.json:
        return json.dumps(document(counted), ensure_ascii=False) + "\n"
    if options.record:
        return record_text(counted)
    if options.leave_one_out:
        return leave_one_out_tables(counted)
    if options.markdown:
        return markdown(counted)
    left_out = len(scored) - len(counted)
    note = f"{left_out} rows of other grades than {options.grades} are not counted in the tables.\n" if left_out else ""
    return f"{text_report(counted)}\n{note}" if note else text_report(counted)


def carried_files() -> list[Path]:
    """The files of rows that the project carries."""
    return sorted(CARRIED_ROWS.glob("*.jsonl"))


def rows_of(path: Path) -> tuple[TruthRow, ...]:
    """The rows of a file in UTF-8, UTF-16 or Latin-1, one a line or one JSON array; raises `PlanError` when it cannot be read."""
    try:
        text = decode_log(path.read_bytes())
    except OSError as error:
        raise PlanError("file", str(path), f"{path} cannot be read: {error}.") from None
    except PlanError:
        text = "\ufffd"
    if "\ufffd" in text and "{" not in text:
        raise PlanError("file", str(path), f"{path} cannot be read: it is not text.")
    return read_rows(_lines(text.removeprefix("\ufeff")), path.name)


def _lines(text: str) -> list[str]:
    """One row's JSON a line, also of an array printed over many."""
    if text.lstrip().startswith("["):
        try:
            return [json.dumps(value) for value in json.loads(text)]
        except (ValueError, RecursionError, TypeError):
            pass
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
