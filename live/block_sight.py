"""What a recording shows of an engine's blocks at one moment: the probe's tables, what KV events add up to, or neither, by name.

A running engine and a replay are asked alike, for both are recordings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from live.block_view import BlockHistory, BlockMoment
from live.cache_summary import SUMMARY_KIND, CacheSummary, CacheSummaryError, decode_summary
from live.probe_feed import frame_kind
from live.probe_frames import ProbeFrame, ProbeFrameError, decode_frame
from live.recording import Recording
from live.samples import EngineSample
from planner.block_events import BlockEvent

SightKind = Literal["tables", "events", "none"]
_FRESH_MS = 6000  # the probe repeats its frame every second, KV events are summed every two
_EVENTS_TOLD_MS = 5000  # what happened is told so long, where nothing happens after it
_MOST_REPLAYED = 64  # frames gone through so that the blocks' last holders are known


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSight:
    """What can be shown at `time_ms`; `text` is one sentence on what is wrong with it, empty while all is well."""

    kind: SightKind
    moment: BlockMoment | None = None  # of the probe
    frame: ProbeFrame | None = None
    events: tuple[BlockEvent, ...] = ()  # since the look before, where that is not long ago
    summary: CacheSummary | None = None  # of the KV events, also beside tables
    text: str = ""


class BlockWatcher:
    """Follows the blocks of one engine through a recording. For one reader; not for several threads at a time."""

    def __init__(self, recording: Recording, sample: EngineSample) -> None:
        self._recording = recording
        self._kind = frame_kind(_rank(sample))
        self._history = BlockHistory()
        self._frame: ProbeFrame | None = None
        self._events: tuple[BlockEvent, ...] = ()
        self._frame_ms = self._summary_ms = -1
        self._summary: CacheSummary | None = None

    def look(self, time_ms: int, sample: EngineSample) -> BlockSight:
        """What there is at `time_ms`."""
        summary = self._summary_at(time_ms)
        if not self._is_heard(f"{self._kind}/step", time_ms):
            return BlockSight(kind="none" if summary is None else "events", summary=summary)
        try:
            self._follow(time_ms)
        except ProbeFrameError as error:
            return BlockSight(kind="none" if summary is None else "events", summary=summary, text=str(error))
        frame = self._frame
        if frame is None or self._history.moment is None:
            return BlockSight(kind="none" if summary is None else "events", summary=summary)
        if not _is_of(frame, sample):
            text = f"A probe is heard, but of a pool of {frame.num_gpu_blocks:,} blocks: it belongs to another engine than this one."
            return BlockSight(kind="none" if summary is None else "events", summary=summary, text=text)
        events = self._events if time_ms - self._frame_ms <= _EVENTS_TOLD_MS else ()
        return BlockSight(kind="tables", moment=self._history.moment, frame=frame, events=events, summary=summary)

    def _is_heard(self, name: str, time_ms: int) -> bool:
        """Whether the last tick had the series."""
        numbers = self._recording.window((name,), time_ms - _FRESH_MS, time_ms + 1).series(name)
        return bool(len(numbers)) and not bool(np.isnan(numbers[-1]))

    def _follow(self, time_ms: int) -> None:
        """Take the frames since the last look; after a jump only those before the moment, for the last holders."""
        newest = self._recording.frame_at(self._kind, time_ms)
        if newest is None or newest[0] == self._frame_ms:
            return
        is_next = 0 <= self._frame_ms < newest[0] <= self._frame_ms + 10 * _FRESH_MS
        start_ms = self._frame_ms + 1 if is_next else newest[0] - 2 * _FRESH_MS
        if not is_next:
            self._history = BlockHistory()
        events: list[BlockEvent] = []
        for payload in _last_of(self._recording, self._kind, start_ms, newest):
            self._frame = decode_frame(payload)
            found = self._history.take(self._frame).events
            events = [*events, *found] if is_next else [*found]
        self._events, self._frame_ms = tuple(events), newest[0]

    def _summary_at(self, time_ms: int) -> CacheSummary | None:
        if not self._is_heard(f"{SUMMARY_KIND}/num_batches", time_ms):
            return None
        found = self._recording.frame_at(SUMMARY_KIND, time_ms)
        if found is None:
            return None
        if found[0] != self._summary_ms:
            try:
                self._summary, self._summary_ms = decode_summary(found[1]), found[0]
            except CacheSummaryError:
                self._summary, self._summary_ms = None, found[0]
        return self._summary


def _last_of(recording: Recording, kind: str, start_ms: int, newest: tuple[int, bytes]) -> Sequence[bytes]:
    """The payloads from `start_ms` to the newest, the last of them where they are many or large."""
    if len(newest[1]) * _MOST_REPLAYED > 2**22:
        return (newest[1],)
    found = [payload for _, payload in recording.frames(kind, start_ms, newest[0] + 1)]
    return found[-_MOST_REPLAYED:]


def _rank(sample: EngineSample) -> int:
    """The engine's data-parallel rank, as its label says."""
    engine = sample.identity.engine
    return int(engine) if engine is not None and engine.isdecimal() and len(engine) < 5 else 0


def _is_of(frame: ProbeFrame, sample: EngineSample) -> bool:
    """Whether the frame can be of this engine: their pools are equally large, as far as the engine says."""
    num_blocks = None if sample.cache_config is None else sample.cache_config.num_gpu_blocks
    return num_blocks is None or num_blocks == frame.num_gpu_blocks
