"""KV events recorded beside an engine's metrics: how many blocks are cached where, and a summary of what the events add up to."""

from __future__ import annotations

import time
from collections.abc import Callable

from live.cache_summary import SUMMARY_KIND, encode_summary, summarize
from live.cached_blocks import CachedBlocks
from live.kv_events import KvEventEndpoints, KvEventReader
from live.recorder import Extras

_SUMMARY_SECONDS = 2.0  # a summary walks the prefix tree, so not every tick


class KvEventsBeside:
    """One publisher's cache, kept up to date tick by tick; used by the recorder's thread."""

    def __init__(
        self, endpoints: KvEventEndpoints | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reader = KvEventReader(endpoints or KvEventEndpoints())
        self._reader.open()
        self._cached = CachedBlocks()
        self._clock = clock
        self._due = 0.0
        self._num_summed = 0
        self._text = ""

    def sample(self) -> Extras:
        """What there is now; nothing before the first event."""
        self._cached.take(self._reader.poll())
        self._text = self._said()
        if not self._cached.num_batches:
            return Extras()
        counts = self._cached.counts()
        numbers = {f"{SUMMARY_KIND}/num_copies/{each.group}/{each.medium}": each.num_copies for each in counts}
        return Extras(
            numbers={**numbers, f"{SUMMARY_KIND}/num_batches": self._cached.num_batches}, frames=self._summary()
        )

    def _summary(self) -> tuple[tuple[str, bytes], ...]:
        now = self._clock()
        if now < self._due or self._cached.num_batches == self._num_summed:
            return ()
        self._num_summed = self._cached.num_batches
        payload = encode_summary(summarize(self._cached))
        self._due = now + _SUMMARY_SECONDS
        return ((SUMMARY_KIND, payload),)

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
        """What is wrong with the events in one sentence, as of the last tick; empty while all is well."""
        return self._text

    def close(self) -> None:
        """Ends the subscription."""
        self._reader.close()
