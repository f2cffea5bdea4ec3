"""`python -m live`: `fetch` brings a Hub model's facts into a folder for --model-dir; `snapshot` reads a running vLLM.

`record` keeps what it says over time, `replay` plays that, `convert` makes tables of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from live.hub import FetchOptions, fetch_model
from live.hub_client import chosen_token
from live.hub_errors import HubError
from live.live_cli import add_snapshot_command, snapshot_text
from live.model_folder import write_folder
from live.record_cli import RECORD_COMMANDS, add_record_commands, run_record_command
from live.recording_schema import RecordingError
from planner.facts import PlanError

_BAD_INPUT = 2


class _OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, as everything else here does."""

    def error(self, message: str) -> NoReturn:
        self.exit(_BAD_INPUT, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(prog="python -m live", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser("fetch", help="bring a Hub model's facts into a folder; never its weights")
    fetch.add_argument("model_id", metavar="ID", help="the Hub's id, such as Qwen/Qwen3-8B")
    fetch.add_argument("--revision", help="a branch, tag or commit (default: the main branch)")
    fetch.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write")
    fetch.add_argument(
        "--token-env", default="HF_TOKEN", metavar="NAME", help="the variable that holds the token (default: HF_TOKEN)"
    )
    fetch.add_argument("--config-only", action="store_true", help="take a repository without safetensors by its config")
    fetch.add_argument(
        "--cache", type=Path, metavar="DIR", help="where kept copies live (default: KVSCOPE_CACHE or the user's cache)"
    )
    fetch.add_argument(
        "--timeout", type=float, default=120.0, metavar="SECONDS", help="longest time for all of it (default: 120)"
    )
    add_snapshot_command(commands)
    add_record_commands(commands)
    return parser


def _fetch(arguments: argparse.Namespace, errors: TextIO) -> str:
    def progress(done: int, total: int, what: str) -> None:
        if errors.isatty():
            errors.write(f"\r\033[K{done}/{total} {what}")
            errors.flush()

    options = FetchOptions(
        token=chosen_token(environment_name=arguments.token_env),
        cache_folder=arguments.cache,
        total_seconds=arguments.timeout,
        read_seconds=min(10.0, arguments.timeout),
        needs_headers=not arguments.config_only,
        progress=progress,
    )
    model = fetch_model(arguments.model_id, arguments.revision, options)
    folder = write_folder(model, arguments.out)
    if errors.isatty():
        errors.write("\r\033[K")
    tensors = "no tensor headers" if model.tensors is None else f"{len(model.tensors)} tensor headers"
    return f"{folder}: {model.source}, {tensors}. Plan it with: python -m planner plan --model-dir {arguments.out}"


def main(words: Sequence[str] | None = None, output: TextIO | None = None, errors: TextIO | None = None) -> int:
    """The exit status: 0, or 2 with one line on `errors`."""
    output, errors = output or sys.stdout, errors or sys.stderr
    arguments = _parser().parse_args(words)
    if arguments.command == "fetch" and not arguments.timeout > 0:
        errors.write("python -m live: --timeout must be more than 0 seconds\n")
        return _BAD_INPUT
    try:
        if arguments.command in RECORD_COMMANDS:
            return run_record_command(arguments, output, errors)
        text = _fetch(arguments, errors) if arguments.command == "fetch" else snapshot_text(arguments)
        output.write(text + "\n")
    except (HubError, PlanError, RecordingError) as error:
        errors.write(" ".join(f"python -m live: {error.text}".split()) + "\n")
        return _BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
