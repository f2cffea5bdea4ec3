"""Records one engine in one background thread, whether or not a browser is open; what goes wrong is a named state and a gap."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from live.alert_log import ALERT_RULES_KEY, ALERT_RULES_MARK, changed_rules, kept_rules, lasting_alerts
from live.alert_rules import AlertRule, checked_rule, rules_to_text
from live.alerts import AlertStanding, AlertWatch
from live.recording import Mark, Recording, Window
from live.recording_schema import RecordingError
from live.sample_codec import encode, stamped
from live.samples import EngineSnapshot, fell_back
from live.shared import Shared
from live.store import Store
from live.watched import FAILED, NOT_VLLM, OK, STALLED, STARTING, STOPPED, Source, SourceError, WatchStatus

_LARGEST_DRIFT_MS = 2000  # the wall clock ahead of the counted time by more: the machine slept, or was set
_STALLED_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The time: `wall` in seconds since 1970, `monotonic` in seconds since whenever."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What is recorded beside an engine's metrics: more numbers (such as NVML's) and payloads that are no numbers."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    frames: tuple[tuple[str, bytes], ...] = ()


class Beside(Protocol):
    """Something that is recorded beside an engine's metrics: NVML, the probe's tables, KV events."""

    def sample(self) -> Extras:
        """What there is now, at once: it never waits."""
        ...

    def close(self) -> None:
        """Let go of sockets and threads."""
        ...


def changes(earlier: EngineSnapshot, later: EngineSnapshot) -> Iterator[tuple[str, str]]:
    """The events between two snapshots of one address: kind and sentence each."""
    before, after = (sorted({e.identity.model_name or "" for e in s.engines}) for s in (earlier, later))
    if before != after:
        yield "model_changed", f"The model changed from {', '.join(before)} to {', '.join(after)}."
    if earlier.vllm_version and later.vllm_version and earlier.vllm_version != later.vllm_version:
        yield "version_changed", f"vLLM changed from {earlier.vllm_version} to {later.vllm_version}."
    starts = earlier.process_start_unix_seconds, later.process_start_unix_seconds
    fallen = _fallen(earlier, later)
    if None not in starts and starts[0] != starts[1]:
        yield "restarted", "The server restarted: it states another start time."
    elif fallen:
        yield "restarted", f"The engine restarted: {', '.join(fallen[:3])} fell."
    if before == after and len(earlier.engines) != len(later.engines):
        yield "engines_changed", f"{len(later.engines)} engines answer now, {len(earlier.engines)} did before."


def _fallen(earlier: EngineSnapshot, later: EngineSnapshot) -> tuple[str, ...]:
    known = {engine.identity: engine for engine in earlier.engines}
    pairs = ((known.get(engine.identity), engine) for engine in later.engines)
    return tuple(dict.fromkeys(name for old, new in pairs if old is not None for name in fell_back(old, new)))


def sample_all(members: Sequence[Beside]) -> Extras:
    """What all of `members` have now; one that fails costs the others and the tick nothing."""
    numbers: dict[str, float] = {}
    frames: list[tuple[str, bytes]] = []
    for member in members:
        with suppress(Exception):  # whatever is beside the metrics never costs a tick
            found = member.sample()
            numbers.update(found.numbers)
            frames.extend(found.frames)
    return Extras(numbers=numbers, frames=tuple(frames))


class Recorder:
    """Polls `source` into `store`. `tick` does one poll; `start` has a thread do so until `stop`, which closes the store."""

    def __init__(
        self,
        source: Source,
        store: Store,
        *,
        interval_seconds: float = 1.0,
        clock: Clock | None = None,
        beside: Sequence[Beside] = (),
    ) -> None:
        self.shared = Shared()
        self._source = source
        self._store = store
        self._clock = clock or Clock()
        self._interval_seconds = interval_seconds
        self._beside = tuple(beside)
        self._store_lock = threading.Lock()  # over the store; a commit may wait for the disk
        self._lock = threading.Lock()  # over the status and the time; never held for long
        self._stop = threading.Event()
        self._has_looked = threading.Event()
        self._thread: threading.Thread | None = None
        self._counted_ms = max(self._wall_ms(), (store.last_ms or 0) + 1)
        self._counted_at = self._last_tick_at = self._clock.monotonic()
        self._recording = Recording.open(store.path)
        self._alerts = AlertWatch(
            kept_rules(self._recording),
            interval_seconds=interval_seconds,
            lasting=lasting_alerts(self._recording),
        )
        self._status = self._fresh_status()

    def _fresh_status(self) -> WatchStatus:
        now_ms = self._counted_ms
        return WatchStatus(
            address=self._source.address,
            time_ms=now_ms,
            state=STARTING,
            text="The engine has not been asked yet.",
            since_ms=now_ms,
            snapshot=None,
            num_ticks=0,
        )

    def _wall_ms(self) -> int:
        return int(self._clock.wall() * 1000)

    def now_ms(self) -> int:
        """Milliseconds since 1970 that never go back, also where the wall clock is set back."""
        with self._lock:
            return self._now_ms()

    def _now_ms(self) -> int:
        now = self._clock.monotonic()
        counted, wall = self._counted_ms + int((now - self._counted_at) * 1000), self._wall_ms()
        if wall - counted > _LARGEST_DRIFT_MS:
            self._counted_ms, self._counted_at = wall, now
            return wall
        return counted

    def tick(self) -> WatchStatus:
        """The state after one poll, which is committed before this returns."""
        began_ms = self.now_ms()
        try:
            snapshot = self._source.read()
            if snapshot.engines:
                return self._good(snapshot, sample_all(self._beside))
        except SourceError as error:
            return self._failed(error.kind, error.text, began_ms)
        except Exception as error:  # noqa: BLE001  whatever a source does or says, recording goes on at the next tick
            _log.exception("reading %s failed", self._source.address)
            text = f"Reading {self._source.address} failed ({type(error).__name__}); see the log."
            return self._failed(FAILED, text, began_ms)
        text = f"{self._source.address} answers, but exports no vLLM metrics; check the port and the path."
        return self._failed(NOT_VLLM, text, began_ms)

    def _good(self, snapshot: EngineSnapshot, extras: Extras) -> WatchStatus:
        with self._store_lock:
            time_ms = max(self.now_ms(), (self._store.last_ms or 0) + 1)
            now = stamped(snapshot, time_ms)
            encoded = encode(now)
            with self._keeping() as fault:
                self._store.append(time_ms, {**extras.numbers, **encoded.numbers}, encoded.document)
                for kind, text in changes(self._status.snapshot, now) if self._status.snapshot else ():
                    self._store.mark(time_ms, kind, text)
                for kind, payload in extras.frames:
                    self._store.append_frame(time_ms, kind, payload)
                for mark in self._alerts.take(now):
                    self._store.mark(mark.time_ms, mark.kind, mark.text)
            return self._become(time_ms, OK, "", snapshot=now, storage_text="".join(fault))

    def _failed(self, state: str, text: str, began_ms: int) -> WatchStatus:
        with self._store_lock:
            time_ms = max(self.now_ms(), (self._store.last_ms or 0) + 1)
            with self._keeping() as fault:
                self._store.append_gap(time_ms, state, text, since_ms=began_ms)
            return self._become(time_ms, state, text, snapshot=self._status.snapshot, storage_text="".join(fault))

    @contextmanager
    def _keeping(self) -> Iterator[list[str]]:
        fault: list[str] = []
        try:
            yield fault
        except RecordingError as error:
            fault.append(error.text)

    def _become(
        self, time_ms: int, state: str, text: str, *, snapshot: EngineSnapshot | None, storage_text: str
    ) -> WatchStatus:
        with self._lock:
            last = self._status
            self._last_tick_at = self._clock.monotonic()
            self._status = WatchStatus(
                address=last.address,
                time_ms=time_ms,
                state=state,
                text=text,
                since_ms=last.since_ms if state == last.state else time_ms,
                snapshot=snapshot,
                num_ticks=last.num_ticks + (state == OK),
                storage_text=storage_text,
            )
            self._has_looked.set()
            return self._status

    def wait_for_first(self, seconds: float) -> bool:
        """Whether the engine has been asked once; waits for that, `seconds` at most."""
        return self._has_looked.wait(seconds)

    def status(self) -> WatchStatus:
        """How it stands now; a poll that does not end is a state too."""
        with self._lock:
            status, now_ms = self._status, self._now_ms()
            waiting = self._clock.monotonic() - self._last_tick_at
        limit = max(_STALLED_SECONDS, 3 * self._interval_seconds)
        state, text, since_ms = status.state, status.text, status.since_ms
        if self._stop.is_set():
            state, text = STOPPED, "The recording was stopped."
        elif self._thread is not None and waiting > limit:
            state, since_ms = STALLED, now_ms - int(waiting * 1000)
            text = f"{status.address} has kept the recorder waiting for {waiting:.0f} s."
        return WatchStatus(
            address=status.address,
            time_ms=now_ms,
            state=state,
            text=text,
            since_ms=since_ms,
            snapshot=status.snapshot,
            num_ticks=status.num_ticks,
            storage_text=status.storage_text,
        )

    @property
    def address(self) -> str:
        """The engine's address without user, password or query."""
        return self._source.address

    @property
    def path(self) -> Path:
        """The recording's file."""
        return self._store.path

    @property
    def recording(self) -> Recording:
        """The recording so far, for reading; any thread may ask."""
        return self._recording

    def window(self, names: Sequence[str] | None = None, seconds: float = 900.0) -> Window:
        """The last `seconds` of the series `names` (None: all)."""
        return self._recording.window(names, self.now_ms() - int(seconds * 1000))

    def marks(self, seconds: float = 900.0) -> tuple[Mark, ...]:
        """The marks of the last `seconds`."""
        return self._recording.marks(self.now_ms() - int(seconds * 1000))

    def mark(self, text: str, kind: str = "note") -> None:
        """Keep a note or an alert on the time axis; `RecordingError` where it cannot be kept."""
        with self._store_lock:
            self._store.mark(self.now_ms(), kind, text)

    def keep_about(self, key: str, value: str) -> None:
        """Keep a setting with the recording; `RecordingError` where it cannot be kept."""
        with self._store_lock:
            self._store.keep_about(key, value)

    @property
    def alert_rules(self) -> tuple[AlertRule, ...]:
        """The limits that this engine is held to."""
        return self._alerts.rules

    def alert_standings(self) -> tuple[AlertStanding, ...]:
        """How each limit stands for each engine since the last good tick."""
        return self._alerts.standings

    def set_alert_rules(self, rules: Sequence[AlertRule]) -> None:
        """Hold the engine to other limits, and keep them with the recording; `PlanError` for a limit that cannot be."""
        checked = tuple(checked_rule(rule) for rule in rules)
        with self._store_lock:
            changed = changed_rules(self._alerts.rules, checked)
            self._store.keep_about(ALERT_RULES_KEY, rules_to_text(checked))
            self._alerts.rules = checked
            if changed:
                self._store.mark(self.now_ms(), ALERT_RULES_MARK, changed)

    def start(self) -> None:
        """Record in the background until `stop`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"recorder {self.address}", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        due = self._clock.monotonic()
        while not self._stop.is_set():
            self.tick()
            now = self._clock.monotonic()
            missed = max(0.0, now - due) // self._interval_seconds
            due += (missed + 1) * self._interval_seconds
            self._stop.wait(due - now)
        self._close()

    def stop(self, wait_seconds: float = 5.0, *, ended: bool = False) -> None:
        """Stop the thread and close the file; `ended` says in it that it is over for good."""
        if ended:
            with self._store_lock, suppress(RecordingError):
                self._store.end(self.now_ms())
        self._stop.set()
        if self._thread is None:
            self._close()
        else:
            self._thread.join(wait_seconds)  # a thread that still waits for its source closes the file when that ends

    def _close(self) -> None:
        with self._store_lock:
            self._recording.close()  # first, so that the last one to close takes SQLite's side files away
            self._store.close()
        for beside in self._beside:
            with suppress(Exception):  # each gets its turn
                beside.close()
