"""`python -m live snapshot URL|--file F`: what an engine says at this moment, as JSON or as lines to read."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

from live.engine_snapshot import read_server, read_text
from live.http_reader import HttpReader
from live.local_engines import find_local_engines
from live.samples import EngineSnapshot
from live.scrape_address import parse_address
from live.snapshot_json import snapshot_to_json, snapshot_to_lines
from live.text_bytes import LARGEST_TEXT_BYTES
from planner.facts import PlanError

_Parser = TypeVar("_Parser", bound=argparse.ArgumentParser)


def add_snapshot_command(commands: argparse._SubParsersAction[_Parser]) -> None:
    """Adds `snapshot` to the parser of `python -m live`."""
    snapshot = commands.add_parser("snapshot", help="one reading of a running vLLM, or of a saved /metrics text")
    what = snapshot.add_mutually_exclusive_group(required=True)
    what.add_argument("url", nargs="?", metavar="URL", help="the server's address, such as http://localhost:8000")
    what.add_argument(
        "--file", type=Path, metavar="F", help="a saved /metrics text, cut or pasted too; - for the input"
    )
    what.add_argument("--find", action="store_true", help="look for engines on this machine and read each")
    snapshot.add_argument("--json", action="store_true", help="write JSON")
    snapshot.add_argument(
        "--token-env", metavar="NAME", help="the variable with the key for /v1/models (vLLM's --api-key); never kept"
    )


def _read_file(path: Path) -> bytes:
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            content = file.read(LARGEST_TEXT_BYTES + 1)
    except OSError as error:
        raise PlanError(
            "file", str(path), f"{path} cannot be read ({error.strerror}); give a saved /metrics text."
        ) from None
    if len(content) > LARGEST_TEXT_BYTES:
        raise PlanError(
            "file", str(path), f"{path} is larger than {LARGEST_TEXT_BYTES // 1_000_000} MB, which no /metrics text is."
        )
    return content


def _from_server(arguments: argparse.Namespace) -> EngineSnapshot:
    server = parse_address(arguments.url)
    token = os.environ.get(arguments.token_env) if arguments.token_env else None
    reading = read_server(HttpReader(token=token), server)
    if reading.snapshot is None:
        raise PlanError("url", server.shown, reading.text)
    return reading.snapshot


def _found() -> list[EngineSnapshot]:
    found = [reading.snapshot for _, reading in find_local_engines() if reading.snapshot is not None]
    if not found:
        text = (
            "No vLLM answers on this machine (ports 8000 to 8010 and all that listen); start one, or give its address."
        )
        raise PlanError("url", "", text)
    return found


def snapshot_text(arguments: argparse.Namespace) -> str:
    """What `snapshot` prints; raises `PlanError` for an address or file that cannot be read."""
    if arguments.find:
        snapshots = _found()
    elif arguments.file is not None:
        snapshots = [read_text(_read_file(arguments.file), arguments.file.name, time.time_ns())]
    else:
        snapshots = [_from_server(arguments)]
    if not arguments.json:
        return "\n".join(line for snapshot in snapshots for line in snapshot_to_lines(snapshot))
    records = [snapshot_to_json(snapshot) for snapshot in snapshots]
    named = [record | {"source": one.source} for record, one in zip(records, snapshots, strict=True)]
    return json.dumps(named if arguments.find else records[0], indent=2, ensure_ascii=False, allow_nan=False)
