"""KV events recorded beside an engine's metrics: how many blocks are cached where, and a summary of what the events add up to.

A thread of its own follows the publisher, for a replay endpoint may take its time; a tick takes what is known by then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from live.cache_summary import SUMMARY_KIND, encode_summary, summarize
from live.cached_blocks import CachedBlocks
from live.kv_events import KvEventEndpoints, KvEventReader
from live.recorder import Extras

_POLL_SECONDS = 0.1
_SUMMARY_SECONDS = 2.0  # a summary walks the prefix tree, so not every poll
_LONGEST_CLOSE_SECONDS = 2.0


class KvEventsBeside:
    """One publisher's cache, kept up to date by a thread; raises `PlanError` for an endpoint that may not be read."""

    def __init__(
        self, endpoints: KvEventEndpoints | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reader = KvEventReader(endpoints or KvEventEndpoints())
        self._reader.open()
        self._cached = CachedBlocks()  # as the reader, the thread's alone once that runs
        self._clock = clock
        self._due = 0.0
        self._num_summed = 0
        self._lock = threading.Lock()  # over what a tick takes; never held for long
        self._numbers: dict[str, float] = {}
        self._frames: tuple[tuple[str, bytes], ...] = ()
        self._text = self._said()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="kv-events", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            with suppress(Exception):  # whatever a publisher sends, the next batch is read
                self._look()
        self._reader.close()

    def _look(self) -> None:
        self._cached.take(self._reader.poll())
        text, numbers, frames = self._said(), self._counted(), self._summary()
        with self._lock:
            self._text, self._numbers = text, numbers
            self._frames = frames or self._frames

    def _counted(self) -> dict[str, float]:
        """The numbers of a tick; none before the first event."""
        if not self._cached.num_batches:
            return {}
        counts = self._cached.counts()
        numbers: dict[str, float] = {f"{SUMMARY_KIND}/num_copies/{c.group}/{c.medium}": c.num_copies for c in counts}
        return numbers | {f"{SUMMARY_KIND}/num_batches": self._cached.num_batches}

    def _summary(self) -> tuple[tuple[str, bytes], ...]:
        now = self._clock()
        if not self._cached.num_batches or now < self._due or self._cached.num_batches == self._num_summed:
            return ()
        self._num_summed = self._cached.num_batches
        payload = encode_summary(summarize(self._cached))
        self._due = now + _SUMMARY_SECONDS
        return ((SUMMARY_KIND, payload),)

    def sample(self) -> Extras:
        """What is known now, at once, and each summary once; nothing before the first event."""
        with self._lock:
            frames, self._frames = self._frames, ()
            return Extras(numbers=self._numbers, frames=frames)

    def _said(self) -> str:
        endpoint = self._reader.endpoints.endpoint
        if not self._cached.num_batches:
            return f"No KV events have come from {endpoint} yet; the engine sends none while its cache does not change."
        return (
            ""
            if self._cached.is_complete
            else f"KV events of {endpoint} were missed: cached blocks are at least so many."
        )

    @property
    def text(self) -> str:
        """What is wrong with the events in one sentence, as of the last look; empty while all is well."""
        return self._text

    def close(self) -> None:
        """Ends the subscription; a replay that is under way ends it a little later."""
        self._stop.set()
        self._thread.join(_LONGEST_CLOSE_SECONDS)
