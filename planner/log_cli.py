"""`python -m planner log`: what a start-up log says, as a short text or one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from planner.facts import PlanError
from planner.log_file import LARGEST_TEXT_BYTES, decode_log, read_file_lines, stream_lines
from planner.log_json import to_json
from planner.log_request import request_of_log
from planner.log_text import to_text
from planner.startup_log import StartupLog, read_lines, read_starts

_BAD_INPUT = 2


def main(argv: Sequence[str]) -> int:
    """The exit status of `python -m planner log`: 0 when the log was read, 2 for a file that is none."""
    arguments = _parser().parse_args(argv)
    try:
        starts = _starts(arguments.file)
    except PlanError as error:
        sys.stderr.write(" ".join(error.text.split()) + "\n")
        return _BAD_INPUT
    for start in starts if arguments.all_starts else starts[-1:]:
        sys.stdout.write(_shown(start, is_json=arguments.json) + "\n")
    return 0


def _shown(start: StartupLog, *, is_json: bool) -> str:
    request = request_of_log(start)
    if not is_json:
        return to_text(start, request)
    record = to_json(start)
    record["request"] = dict(request.fields)
    record["findings"] += [asdict(finding) for finding in request.findings]
    return json.dumps(record, ensure_ascii=False)


def _starts(name: str) -> tuple[StartupLog, ...]:
    """The starts of the file `name`, or of standard input."""
    if name == "-":
        return read_lines(stream_lines(sys.stdin.buffer))
    path = Path(name)
    if path.is_file() and path.stat().st_size <= LARGEST_TEXT_BYTES:
        return read_starts(decode_log(path.read_bytes()))
    return read_lines(read_file_lines(path))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m planner log", description="What a vLLM start-up log says.")
    parser.add_argument("file", metavar="FILE", help="a log file, or - for standard input")
    parser.add_argument("--json", action="store_true", help="one JSON object per start")
    parser.add_argument(
        "--all-starts", action="store_true", help="every start of the log, oldest first, not only the last"
    )
    return parser
