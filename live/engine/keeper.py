"""Runs one command and ends it with all its children when its own parent is gone: a started engine outlives nobody.

    python keeper.py COMMAND...

The parent holds the other end of standard input; when that closes, however the parent ended, the command is stopped.
Standard library only, and no import of ours, so that it starts at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

GRACE_SECONDS = 10.0
_DIE_WITH_PARENT = 1  # Linux's PR_SET_PDEATHSIG


def _die_with_parent() -> None:
    with suppress(OSError, AttributeError):  # Linux only; elsewhere the pipe alone must do
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def keep(command: list[str]) -> int:
    """The command's exit status, once it and its process group are gone."""
    child = subprocess.Popen(  # noqa: S603 - the command is our caller's
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - no thread runs yet
    )
    is_over = threading.Event()

    def end(*_: object) -> None:
        _signal_group(child.pid, signal.SIGTERM)
        timer = threading.Timer(GRACE_SECONDS, _signal_group, (child.pid, signal.SIGKILL))
        timer.daemon = True
        timer.start()

    def watch_parent() -> None:
        with suppress(OSError):
            while sys.stdin.buffer.read(1):
                pass
        if not is_over.is_set():
            end()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    threading.Thread(target=watch_parent, daemon=True).start()
    status = child.wait()
    is_over.set()
    _signal_group(child.pid, signal.SIGKILL)  # what the command left behind
    return status


if __name__ == "__main__":
    status = keep(sys.argv[1:])
    # a thread that still reads standard input must not hold the exit up
    os._exit(status if status >= 0 else 128 - status)
