"""`python -m planner`: every command by name, computed by the same code as the pages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

# Subcommand -> module with `main(argv) -> exit status`; imported only when called.
_COMMANDS = {
    "fit": "planner.fit_cli",
    "log": "planner.log_cli",
    "plan": "planner.plan_cli",
    "reconcile": "planner.reconcile_cli",
    "score": "planner.score_cli",
    "simulate": "planner.simulate_cli",
    "workload": "planner.workload_cli",
}
USAGE = f"usage: python -m planner {{{','.join(_COMMANDS)}}} ...   (--help after a subcommand tells its options)"


def main(argv: Sequence[str]) -> int:
    """The exit status of `python -m planner`: 0, or 2 with one line on stderr for bad input."""
    if not argv:
        sys.stderr.write(f"name a command; {USAGE}\n")
        return 2
    if argv[0] in ("-h", "--help"):
        sys.stdout.write(USAGE + "\n")
        return 0
    module = _COMMANDS.get(argv[0])
    if module is None:
        sys.stderr.write(f"{argv[0]!r} is not a command; {USAGE}\n")
        return 2
    try:
        status: int = import_module(module).main(argv[1:])
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
