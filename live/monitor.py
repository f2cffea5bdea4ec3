"""The process's recorders: started and stopped with the application, shared by all its pages, gone on with after a kill.

What is recorded stands in one folder. A recording that nobody ended goes on when the application starts again.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from live.beside import ENDPOINTS_KEY, BesideEndpoints, BesideSet, open_beside
from live.fleet import FleetSource, any_source, fleet_source, write_past
from live.nvml_beside import cards_beside
from live.recorder import Beside, Clock, Recorder
from live.recording import Recording
from live.recording_schema import RecordingError
from live.store import About, Retention, Store
from live.watched import Source, SourceError
from planner.facts import PlanError

SUFFIX = ".kvscope"
FOLDER_SETTING = "KVSCOPE_RECORDINGS"
MOST_RECORDERS = 16
FASTEST_SECONDS, SLOWEST_SECONDS = 0.2, 60.0
_log = logging.getLogger(__name__)


def default_recordings_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """KVSCOPE_RECORDINGS, else the platform's folder for a program's own data."""
    chosen = environment.get(FOLDER_SETTING)
    if chosen:
        return Path(chosen)
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "kvscope" / "recordings"
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "kvscope" / "recordings"
    return Path(environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "kvscope" / "recordings"


def _nothing_beside(_address: str) -> tuple[Beside, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How often engines are asked, how much is kept, and what is recorded beside their metrics."""

    interval_seconds: float = 1.0
    retention: Retention = field(default_factory=Retention)
    beside: Callable[[str], tuple[Beside, ...]] = _nothing_beside  # by the engine's address

    def __post_init__(self) -> None:
        seconds = self.interval_seconds
        if not FASTEST_SECONDS <= seconds <= SLOWEST_SECONDS:
            text = f"An engine is asked every {FASTEST_SECONDS:g} to {SLOWEST_SECONDS:g} s, not every {seconds:g} s."
            raise PlanError("interval_seconds", seconds, text)


class Monitor:
    """All recorders of this process, by the address of their engine."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        make_source: Callable[[str], Source] = any_source,
        clock: Clock | None = None,
        keeping: Keeping | None = None,
    ) -> None:
        self.folder = folder or default_recordings_folder()
        self._make_source = make_source
        self._clock = clock or Clock()
        self._keeping = keeping or Keeping()
        self._lock = threading.RLock()
        self._recorders: dict[str, Recorder] = {}
        self._published: dict[str, BesideSet] = {}  # beside each recorder: the probe and KV events, where it has them

    def start(self) -> None:
        """Go on with the recordings that nobody ended, the latest first."""
        for path in self.recordings():
            if len(self._recorders) < MOST_RECORDERS:
                self._resume(path)

    def _resume(self, path: Path) -> None:
        try:
            with closing(Recording.open(path)) as recording:
                summary = recording.summary()
                endpoints = BesideEndpoints.from_text(recording.about(ENDPOINTS_KEY) or "")
            if summary.ended_ms is not None or summary.source in self._recorders:
                return
            source = self._make_source(summary.source)
            store = Store.resume(path, self._keeping.retention)
        except (RecordingError, PlanError) as error:
            _log.warning("recording %s does not go on: %s", path.name, error.text)
            return
        self._begin(source, store, summary.interval_ms / 1000, BesideSet(_opened(endpoints, path.name)))

    def _begin(self, source: Source, store: Store, interval_seconds: float, published: BesideSet) -> Recorder:
        with self._lock:
            recorder = Recorder(
                source,
                store,
                interval_seconds=interval_seconds,
                clock=self._clock,
                beside=(*self._keeping.beside(source.address), published),
            )
            self._recorders[source.address], self._published[source.address] = recorder, published
            recorder.start()
            return recorder

    def watch(self, address: str, title: str = "", *, endpoints: BesideEndpoints | None = None) -> Recorder:
        """The recorder of the engine at `address`, started if there is none; `endpoints` are read beside it from now on.

        Raises `PlanError` for an address or endpoint that may not be read, `RecordingError` where nothing can be kept.
        """
        source = self._make_source(address)
        beside = () if endpoints is None else open_beside(endpoints)
        try:
            recorder = self._recorder_of(source, title)
            if endpoints is not None:
                recorder.keep_about(ENDPOINTS_KEY, endpoints.to_text())
        except (PlanError, RecordingError):
            BesideSet(beside).close()
            raise
        if endpoints is not None:
            self._published[recorder.address].replace(beside)
        return recorder

    def _recorder_of(self, source: Source, title: str) -> Recorder:
        with self._lock:
            known = self._known(source)
            if known is not None:
                return known
            seconds = self._keeping.interval_seconds
            return self._begin(source, self._new_store(source, seconds, title), seconds, BesideSet())

    def _known(self, source: Source) -> Recorder | None:
        """The recorder of the source, or None where one may be made; raises `PlanError` where there are too many."""
        known = self._recorders.get(source.address)
        if known is None and len(self._recorders) >= MOST_RECORDERS:
            text = f"{MOST_RECORDERS} engines are being recorded, which is the most; end one of them first."
            raise PlanError("address", source.address, text)
        return known

    def _new_store(self, source: Source, interval_seconds: float, title: str = "") -> Store:
        about = About(source=source.address, interval_ms=round(interval_seconds * 1000), title=title)
        return Store.create(self._free_path(source.address), about, self._keeping.retention)

    def watch_fleet(self, address: str, past_seconds: float, step_seconds: float) -> Recorder:
        """The recorder of an engine of a Prometheus server, begun with its past and going on every `step_seconds`.

        Raises `PlanError` and `RecordingError` as `watch` does, and `PlanError` where the past cannot be read.
        """
        source = fleet_source(address)
        with self._lock:
            known = self._known(source)
            if known is not None:
                return known
            store = self._new_store(source, Keeping(interval_seconds=step_seconds).interval_seconds)
        try:
            _write_past(source, store, past_seconds, step_seconds)
        except (PlanError, RecordingError):
            _drop(store)
            raise
        with self._lock:  # not held while the past was read; another reader may have been faster
            known = self._recorders.get(source.address)
            if known is None:
                return self._begin(source, store, step_seconds, BesideSet())
        _drop(store)
        return known

    def sayings_beside(self, address: str) -> tuple[str, ...]:
        """What the probe and the KV events of an engine have to say, a sentence each; none where all is well."""
        published = self._published.get(address)
        return () if published is None else published.sayings()

    def _free_path(self, address: str) -> Path:
        stem = re.sub(r"[^A-Za-z0-9.]+", "-", address.partition("://")[2]).strip("-.")[:80] or "engine"
        moment = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y%m%d-%H%M%S")
        path, number = self.folder / f"{stem}-{moment}{SUFFIX}", 2
        while path.exists():
            path, number = self.folder / f"{stem}-{moment}-{number}{SUFFIX}", number + 1
        return path

    def unwatch(self, address: str) -> None:
        """End the recording of the engine at `address`; its file stays."""
        with self._lock:
            recorder = self._recorders.pop(address, None)
            self._published.pop(address, None)
        if recorder is not None:
            recorder.stop(ended=True)

    def recorders(self) -> tuple[Recorder, ...]:
        """All recorders, in the order in which they were started."""
        with self._lock:
            return tuple(self._recorders.values())

    def recorder(self, address: str) -> Recorder | None:
        """The recorder of the engine at `address` (as `Recorder.address` writes it); None where there is none."""
        with self._lock:
            return self._recorders.get(address)

    def recordings(self) -> tuple[Path, ...]:
        """The files in the folder, the latest first."""
        try:
            files = [(entry.stat().st_mtime, entry) for entry in self.folder.glob(f"*{SUFFIX}") if entry.is_file()]
        except OSError:
            return ()
        return tuple(path for _, path in sorted(files, reverse=True))

    def stop(self) -> None:
        """Stop all recorders; their recordings go on at the next start."""
        with self._lock:
            recorders = tuple(self._recorders.values())
            self._recorders.clear()
            self._published.clear()
        for recorder in recorders:
            recorder.stop(wait_seconds=0)
        for recorder in recorders:
            recorder.stop()


def _write_past(source: FleetSource, store: Store, past_seconds: float, step_seconds: float) -> None:
    try:
        write_past(source.past(past_seconds, step_seconds), store, step_seconds)
    except SourceError as error:
        raise PlanError("server", source.address, error.text) from None


def _drop(store: Store) -> None:
    """Take a recording away that nobody has seen."""
    store.close()
    store.path.unlink(missing_ok=True)


def _opened(endpoints: BesideEndpoints, name: str) -> tuple[Beside, ...]:
    """What a recording that goes on had beside it, as far as that may still be read."""
    try:
        return open_beside(endpoints)
    except PlanError as error:
        _log.warning("recording %s goes on without its probe and KV events: %s", name, error.text)
        return ()


class _Process:
    """This process's monitor: made by the first who asks, so that a page works without the application around it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._monitor: Monitor | None = None

    def get(self) -> Monitor:
        with self._lock:
            if self._monitor is None:
                self._monitor = Monitor(keeping=Keeping(beside=cards_beside))
            return self._monitor

    def stop(self) -> None:
        with self._lock:
            monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.stop()


_process = _Process()


def process_monitor() -> Monitor:
    """The monitor of this process."""
    return _process.get()


def start_process_monitor() -> None:
    """Go on with what was recorded before; the application's lifespan calls it."""
    _process.get().start()


def stop_process_monitor() -> None:
    """Stop all recorders and close their files; the application's lifespan calls it."""
    _process.stop()
