"""Work in a thread of its own, so that the page stays alive: waited for, stopped, or given up once nobody asks for it."""

from __future__ import annotations

import threading
import time

_FORSAKEN_AFTER_SECONDS = 60.0  # nobody asked for so long: the reader has gone


class SideJob:
    """Work under way or done. A kind of job sets its fields, calls `_begin` last, and does the work in `_work`.

    The work must not draw or translate: its thread knows no session. It ends early when `should_stop` says so.
    """

    def _begin(self, name: str) -> None:
        self._is_stopping = False
        self._asked_at = time.monotonic()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to wait for."""
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Whether the job is done after at most `seconds`."""
        self._asked_at = time.monotonic()
        self._thread.join(seconds)
        return self.is_done

    def stop(self) -> None:
        """End the job early; what there is until then stays."""
        self._is_stopping = True

    def should_stop(self) -> bool:
        """Whether somebody stopped the job, or nobody waits for it any more."""
        if time.monotonic() - self._asked_at > _FORSAKEN_AFTER_SECONDS:
            self._is_stopping = True
        return self._is_stopping

    def _work(self) -> None:
        raise NotImplementedError
