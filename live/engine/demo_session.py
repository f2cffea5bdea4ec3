"""The application's demo engine: started, watched, recorded with its block tables, driven by a marked load, and ended with it.

A thread of its own follows each start to its end; whoever asks gets the state at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from live.engine.demo import (
    DEMO_TITLE,
    LOAD_MARK,
    QUIET_SECONDS,
    DemoEngine,
    DemoStatus,
    begin_load,
    demo_endpoints,
)
from live.engine.demo_process import DemoPorts
from live.engine.load import TITLES, Load, named_load
from live.monitor import Monitor, process_monitor
from live.recorder import Recorder
from live.recording import Mark, Recording
from live.recording_schema import RecordingError
from planner.facts import PlanError

_LOOK_SECONDS = 0.3
_STOP_SECONDS = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    """How the demo stands. `address` is that of its recorder while it is watched; `problem` says what did not work beside it."""

    engine: DemoStatus
    address: str | None = None
    is_stopping: bool = False
    problem: str = ""

    @property
    def is_moving(self) -> bool:
        """Whether the state changes soon by itself."""
        is_before_load = self.engine.state == "ready" and self.engine.load is None and not self.problem
        return (
            self.is_stopping or self.engine.state == "starting" or is_before_load or self.engine.load_state == "running"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLoad:
    """The load that an engine was given, and from when its arrivals count."""

    name: str
    load: Load
    start_ms: int


class DemoSession:
    """One demo engine of one monitor; safe to ask from any thread."""

    def __init__(self, monitor: Callable[[], Monitor] = process_monitor, engine: DemoEngine | None = None) -> None:
        self._monitor = monitor
        self._engine = engine or DemoEngine()
        self._lock = threading.RLock()
        self._address: str | None = None
        self._problem = ""
        self._stop = threading.Event()
        self._follower: threading.Thread | None = None

    def status(self) -> SessionStatus:
        """How it stands now."""
        with self._lock:
            is_stopping = self._stop.is_set() and self._is_followed()
            return SessionStatus(
                engine=self._engine.status(), address=self._address, is_stopping=is_stopping, problem=self._problem
            )

    def _is_followed(self) -> bool:
        return self._follower is not None and self._follower.is_alive()

    def start(self, load: str) -> SessionStatus:
        """Start the engine, unless there is one; when it answers it is watched and the named load begins.

        Raises `PlanError` for a load that there is not.
        """
        named_load(load)
        with self._lock:
            if not self._is_followed():
                self._problem = ""
                if self._engine.start().state == "starting":
                    self._stop = threading.Event()
                    arguments = (load, self._stop)
                    self._follower = threading.Thread(target=self._follow, args=arguments, name="demo", daemon=True)
                    self._follower.start()
            return self.status()

    def run_load(self, load: str) -> SessionStatus:
        """Begin the named load; raises `PlanError` where the engine is not ready or a load is running."""
        with self._lock:
            ports = self._engine.status().ports
            if ports is None or self._stop.is_set():
                raise PlanError("load", load, "The demo engine is not ready; start it and wait until it is.")
            begin_load(self._engine, load, self._watched(ports))
            return self.status()

    def stop(self) -> None:
        """End the engine, its load and its recording, without waiting."""
        self._stop.set()

    def close(self) -> None:
        """End all of it, and wait until it is gone."""
        self.stop()
        if self._follower is not None:
            self._follower.join(_STOP_SECONDS)
        self._engine.stop()

    def _follow(self, load: str, stop: threading.Event) -> None:
        """From the start to the end of one engine."""
        try:
            ports = self._until_ready(stop)
            if ports is not None:
                self._begin(load, ports, stop)
                while not stop.wait(_LOOK_SECONDS) and self._engine.status().state == "ready":
                    pass
        finally:
            self._unwatch()  # first, so that the engine's end is no gap
            if stop.is_set():
                self._engine.stop()

    def _begin(self, load: str, ports: DemoPorts, stop: threading.Event) -> None:
        try:
            self._watched(ports)
            if not stop.wait(QUIET_SECONDS):
                self.run_load(load)
        except (PlanError, RecordingError) as error:
            self._problem = error.text

    def _until_ready(self, stop: threading.Event) -> DemoPorts | None:
        while not stop.wait(_LOOK_SECONDS):
            status = self._engine.status()
            if status.state != "starting":
                return status.ports if status.state == "ready" else None
        return None

    def _watched(self, ports: DemoPorts) -> Recorder:
        """The demo's recorder, with its block tables and KV events beside the metrics."""
        known = None if self._address is None else self._monitor().recorder(self._address)
        if known is None:
            known = self._monitor().watch(ports.address, DEMO_TITLE, endpoints=demo_endpoints(ports))
            self._address = known.address
        return known

    def _unwatch(self) -> None:
        address, self._address = self._address, None
        if address is not None:
            self._monitor().unwatch(address)


def is_of_demo(recording: Recording) -> bool:
    """Whether a recording is one of a demo engine, of whatever release."""
    return recording.summary().title.startswith(DEMO_TITLE.partition(",")[0])


def known_load(recording: Recording) -> KnownLoad | None:
    """The last load that the recording of a demo engine marks; None in any other recording."""
    if not is_of_demo(recording):
        return None
    found = (_marked(mark) for mark in reversed(recording.marks()))
    return next((each for each in found if each is not None), None)


def _marked(mark: Mark) -> KnownLoad | None:
    name = mark.text.removeprefix(LOAD_MARK).partition(":")[0].strip()
    if not mark.text.startswith(LOAD_MARK) or name not in TITLES:
        return None
    return KnownLoad(name=name, load=named_load(name), start_ms=mark.time_ms)


class _Process:
    """This process's demo: made by the first who asks, so that a page works without the application around it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: DemoSession | None = None

    def get(self) -> DemoSession:
        with self._lock:
            if self._session is None:
                self._session = DemoSession()
            return self._session

    def stop(self) -> None:
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()


_process = _Process()


def process_demo() -> DemoSession:
    """The demo engine of this process, started or not."""
    return _process.get()


def end_forgotten_demos(monitor: Monitor) -> None:
    """End the recordings of demo engines that an earlier, killed application held; the application's lifespan calls it."""
    for recorder in monitor.recorders():
        with suppress(RecordingError):
            if recorder.recording.summary().title == DEMO_TITLE:
                monitor.unwatch(recorder.address)


def stop_process_demo() -> None:
    """End the demo engine with all that belongs to it; the application's lifespan calls it."""
    _process.stop()
