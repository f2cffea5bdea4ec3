"""One writer per recording: a lock file beside it that the system lets go when its process ends, however it ends."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from live.recording_schema import RecordingError

try:
    import fcntl
except ImportError:  # Windows: SQLite's own locks alone keep two writers from damaging a file
    fcntl = None  # type: ignore[assignment]  # absent there


class WriterLock:
    """Held from construction to `release`."""

    def __init__(self, recording: Path) -> None:
        self._path = recording.with_name(recording.name + ".lock")
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._descriptor).st_ino != self._path.stat().st_ino:
                raise BlockingIOError  # its last holder has just removed it
        except OSError:
            os.close(self._descriptor)
            text = f"{recording.name} is being recorded by another process; stop that one, or choose another file."
            raise RecordingError("in_use", text) from None

    def release(self) -> None:
        """Let the next writer in."""
        with suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)
