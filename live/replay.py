"""A recording as something to watch: it plays at 1 to 60 times its speed, with its gaps, and answers as a recorder does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from live.recording import Mark, Recording, Window
from live.recording_schema import RecordingError
from live.sample_codec import decode
from live.samples import EngineSnapshot
from live.shared import Shared
from live.watched import OK, PAUSED, STARTING, SourceError, WatchStatus
from planner.facts import PlanError

SLOWEST, FASTEST = 1.0, 60.0
End = Literal["stop", "loop"]


def snapshots(recording: Recording, start_ms: int | None = None, end_ms: int | None = None) -> Iterator[EngineSnapshot]:
    """The recorded snapshots of `[start_ms, end_ms)`, one after the other, as fast as they are asked for."""
    for tick in recording.ticks(start_ms, end_ms):
        yield decode(tick.time_ms, tick.numbers, tick.document)


class Replay:
    """Plays `recording` from its start; a source like an engine's, and watched like one. Any thread may ask."""

    def __init__(
        self,
        recording: Recording,
        *,
        speed: float = 1.0,
        at_end: End = "stop",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        summary = recording.summary()
        if summary.start_ms is None or summary.end_ms is None:
            raise RecordingError("damaged", f"{recording.path.name} holds no tick, so there is nothing to play.")
        self.recording = recording
        self.shared = Shared()
        self.start_ms, self.end_ms = summary.start_ms, summary.end_ms
        self.address = summary.source
        self._interval_ms = summary.interval_ms
        self._at_end = at_end
        self._clock = clock
        self._lock = threading.Lock()
        self._speed = checked_speed(speed)
        self._from_ms = float(self.start_ms)
        self._since: float | None = clock()  # None while paused

    @property
    def speed(self) -> float:
        """How many recorded seconds pass in one."""
        return self._speed

    @property
    def is_paused(self) -> bool:
        """Whether time stands still."""
        return self._since is None

    def position_ms(self) -> int:
        """The recorded time that is shown now."""
        with self._lock:
            return self._position_ms()

    def _position_ms(self) -> int:
        passed_ms = 0.0 if self._since is None else (self._clock() - self._since) * 1000 * self._speed
        length_ms = self.end_ms - self.start_ms + self._interval_ms
        played_ms = self._from_ms - self.start_ms + passed_ms
        if self._at_end == "loop":
            return self.start_ms + int(played_ms % length_ms)
        return self.start_ms + int(min(played_ms, self.end_ms - self.start_ms))

    def _restart_from(self, position_ms: float) -> None:
        self._from_ms = min(max(position_ms, self.start_ms), self.end_ms)
        if self._since is not None:
            self._since = self._clock()

    def set_speed(self, speed: float) -> None:
        """Go on from here at `speed`, 1 to 60."""
        with self._lock:
            self._restart_from(self._position_ms())
            self._speed = checked_speed(speed)

    def seek(self, position_ms: int) -> None:
        """Go on from the recorded time `position_ms`, or the nearest one there is."""
        with self._lock:
            self._restart_from(position_ms)

    def pause(self) -> None:
        """Hold time still."""
        with self._lock:
            self._restart_from(self._position_ms())
            self._since = None

    def play(self) -> None:
        """Let time pass again."""
        with self._lock:
            if self._since is None:
                self._since = self._clock()

    def read(self) -> EngineSnapshot:
        """The snapshot at the position; raises `SourceError` with the recorded state in a gap."""
        status = self.status()
        if status.snapshot is None or status.state not in {OK, PAUSED}:
            raise SourceError(status.state, status.text)
        return status.snapshot

    def status(self) -> WatchStatus:
        """What a recorder would have said at the position."""
        position_ms = self.position_ms()
        tick = self.recording.tick_at(position_ms)
        gap = next((g for g in self.recording.gaps(position_ms, position_ms + 1) if g.end_ms > position_ms), None)
        snapshot = None if tick is None else decode(tick.time_ms, tick.numbers, tick.document)
        state, text, since_ms = OK, "", self.start_ms
        if gap is not None:
            state, text, since_ms = gap.state, gap.text, gap.start_ms
        elif snapshot is None:
            state, text = STARTING, "The recording has not begun here yet."
        elif self.is_paused:
            state, text, since_ms = PAUSED, "The replay is paused.", position_ms
        return WatchStatus(
            address=self.address,
            time_ms=position_ms,
            state=state,
            text=text,
            since_ms=since_ms,
            snapshot=snapshot,
            num_ticks=0,
        )

    def window(self, names: Sequence[str] | None = None, seconds: float = 900.0) -> Window:
        """The last `seconds` before the position of the series `names` (None: all)."""
        position_ms = self.position_ms()
        return self.recording.window(names, position_ms - int(seconds * 1000), position_ms + 1)

    def marks(self, seconds: float = 900.0) -> tuple[Mark, ...]:
        """The marks of the last `seconds` before the position."""
        position_ms = self.position_ms()
        return self.recording.marks(position_ms - int(seconds * 1000), position_ms + 1)


def checked_speed(speed: float) -> float:
    """The speed itself; raises `PlanError` outside 1 to 60."""
    if not SLOWEST <= speed <= FASTEST:
        raise PlanError("speed", speed, f"A replay runs at {SLOWEST:g} to {FASTEST:g} times its speed, not {speed:g}.")
    return speed
