"""The demo engine: a tiny random model on a real vLLM on the CPU, driven by a load that is known.

    python -m live.engine.demo --load tour [--folder DIR]

`DemoEngine` is what a page starts and stops; the process that holds it ends the engine when it ends itself.
"""

from __future__ import annotations

import argparse
import http.client
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from live.beside import BesideEndpoints, open_beside
from live.engine.demo_process import MODEL_NAME, DemoPorts, DemoProcess, DemoSettings
from live.engine.environment import VLLM_RELEASE, find_engine
from live.engine.load import TITLES, Answered, Load, drive, named_load
from live.http_source import http_source
from live.recorder import Recorder
from live.recording_schema import RecordingError
from live.store import About, Store
from planner.facts import PlanError

START_SECONDS = 300.0
_LOOK_SECONDS = 0.25
QUIET_SECONDS = 4.0  # recorded before and after the load
REQUESTS_NAME = "requests.jsonl"
LOAD_MARK = "Load begins:"  # how a recording's mark starts at the moment from which arrivals count
DEMO_TITLE = f"Demo engine, vLLM {VLLM_RELEASE}"  # of its recordings

DemoState = Literal["absent", "stopped", "starting", "ready", "failed"]
LoadState = Literal["none", "running", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStatus:
    """How the demo engine stands; `text` is one sentence, with the remedy where there is one."""

    state: DemoState
    text: str
    seconds: float = 0.0  # since this state began
    ports: DemoPorts | None = None  # where it answers and publishes, once it was started
    folder: Path | None = None
    log_tail: tuple[str, ...] = ()  # where it failed
    load: Load | None = None
    load_state: LoadState = "none"
    load_started_unix_ns: int | None = None
    requests_path: Path | None = None  # the load in the simulator's format
    answered: tuple[Answered, ...] = ()

    @property
    def address(self) -> str | None:
        """Where the server answers; None unless it is ready."""
        return self.ports.address if self.ports is not None and self.state == "ready" else None


class DemoEngine:
    """At most one demo engine at a time; safe to ask from any thread."""

    def __init__(self, settings: DemoSettings | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings or DemoSettings()
        self._clock = clock
        self._lock = threading.RLock()
        self._process: DemoProcess | None = None
        self._keeps_folder = False
        self._state: DemoState = "stopped"
        self._text = ""
        self._since = clock()
        self._log_tail: tuple[str, ...] = ()
        self._load: Load | None = None
        self._load_state: LoadState = "none"
        self._load_started_unix_ns: int | None = None
        self._answered: tuple[Answered, ...] = ()
        self._stop_load = threading.Event()
        self._load_thread: threading.Thread | None = None

    def status(self) -> DemoStatus:
        """How it stands now."""
        with self._lock:
            self._look()
            state, text = self._state, self._text
            if state == "stopped":
                found = find_engine()
                state, text = ("stopped", found.text) if found.state == "ready" else ("absent", found.text)
            process, load = self._process, self._load
            return DemoStatus(
                state=state,
                text=text,
                seconds=self._clock() - self._since,
                ports=process.ports if process else None,
                folder=process.folder if process else None,
                log_tail=self._log_tail,
                load=load,
                load_state=self._load_state,
                load_started_unix_ns=self._load_started_unix_ns,
                requests_path=process.folder / REQUESTS_NAME if process and load else None,
                answered=self._answered,
            )

    def start(self, folder: Path | None = None, ports: DemoPorts | None = None) -> DemoStatus:
        """Start the engine and return at once; `folder` is kept afterwards, without it a temporary one is not."""
        with self._lock:
            found = find_engine()
            if self._process is not None or found.state != "ready":
                return self.status()
            self._keeps_folder = folder is not None
            self._log_tail = ()
            try:
                self._process = self._started(found.python, folder, ports)
                self._become("starting", "vLLM starts on the CPU; that takes half a minute to two.")
            except PlanError as error:
                self._become("failed", error.text)
            except OSError as error:
                self._become("failed", _unwritable(error))
            return self.status()

    def _started(self, python: Path, folder: Path | None, ports: DemoPorts | None) -> DemoProcess:
        place = folder or Path(tempfile.mkdtemp(prefix="kvscope-demo-"))
        try:
            place.mkdir(parents=True, exist_ok=True)
            return DemoProcess(python, place, self._settings, ports)
        except (OSError, PlanError):
            if folder is None:
                shutil.rmtree(place, ignore_errors=True)
            raise

    def run_load(self, name: str, seed: int = 7) -> DemoStatus:
        """Begin the named load on a ready engine; raises `PlanError` where there is none, or one is running."""
        load = named_load(name, seed)
        with self._lock:
            self._look()
            if self._process is None or self._state != "ready":
                raise PlanError("load", name, "The demo engine is not ready; start it and wait until it is.")
            if self._load_state == "running":
                raise PlanError("load", name, "A load is running; wait until it is done, or stop the demo.")
            load.write(self._process.folder / REQUESTS_NAME)
            self._load, self._load_state, self._answered = load, "running", ()
            self._load_started_unix_ns = time.time_ns()
            self._stop_load = threading.Event()
            arguments = (load, self._process.ports.address, self._stop_load)
            self._load_thread = threading.Thread(target=self._drive, args=arguments, name="demo-load", daemon=True)
            self._load_thread.start()
            return self.status()

    def _drive(self, load: Load, address: str, stop: threading.Event) -> None:
        answered = drive(load, address, model=MODEL_NAME, should_stop=stop.is_set)
        with self._lock:
            if self._load is load and not stop.is_set():
                self._answered, self._load_state = answered, "done"

    def stop(self) -> None:
        """End the engine and the load, and wait until both are gone."""
        with self._lock:
            process, thread = self._process, self._load_thread
            self._stop_load.set()
            self._process = self._load_thread = self._load = None
            self._load_state, self._load_started_unix_ns = "none", None
            self._become("stopped", "")
        if process is not None:
            self._end(process)
        if thread is not None:
            thread.join(5.0)

    def _end(self, process: DemoProcess) -> None:
        process.stop()
        if not self._keeps_folder:
            shutil.rmtree(process.folder, ignore_errors=True)

    def _become(self, state: DemoState, text: str) -> None:
        self._state, self._text, self._since = state, text, self._clock()

    def _look(self) -> None:
        """Notice that the engine became ready or ended."""
        process = self._process
        if process is None:
            return
        status = process.exit_status()
        if status is not None:
            self._fail(process, _ended(status))
        elif self._state == "starting" and _is_healthy(process.ports):
            self._become("ready", f"The demo engine answers at {process.ports.address}.")
        elif self._state == "starting" and self._clock() - self._since > START_SECONDS:
            self._fail(process, f"The demo engine was not ready after {START_SECONDS:.0f} s and was stopped.")

    def _fail(self, process: DemoProcess, text: str) -> None:
        self._log_tail = process.log_tail()
        self._stop_load.set()
        self._process, self._load, self._load_state = None, None, "none"
        self._end(process)
        self._become("failed", text)


def _ended(status: int) -> str:
    """What is said of an engine that was not stopped here; the keeper gives a signal n as 128 + n, its own end as -n."""
    signal_number = -status if status < 0 else status - 128
    if signal_number > 0:
        return (
            f"The demo engine was ended from outside (signal {signal_number}); a system short of memory does that. "
            "Start it again."
        )
    return f"The demo engine ended by itself (status {status}); its last lines tell why."


def _unwritable(error: OSError) -> str:
    return f"The demo engine's folder cannot be written ({error.strerror}); free some space there, or name another."


def _is_healthy(ports: DemoPorts) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", ports.http, timeout=1.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def wait_until(engine: DemoEngine, is_wanted: Callable[[DemoStatus], bool], seconds: float) -> DemoStatus:
    """The first status that is wanted, or that is an end (failed, absent, stopped), or the one after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        status = engine.status()
        is_over = status.state in {"failed", "absent", "stopped"}
        if is_wanted(status) or is_over or time.monotonic() >= end:
            return status
        time.sleep(_LOOK_SECONDS)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def demo_endpoints(ports: DemoPorts) -> BesideEndpoints:
    """Where a demo engine publishes its block tables and KV events."""
    return BesideEndpoints(probe=ports.probe_endpoint, kv_events=ports.events_endpoint, kv_replay=ports.replay_endpoint)


@contextmanager
def recording(ports: DemoPorts, path: Path, interval_seconds: float = 0.5) -> Iterator[Recorder]:
    """A recorder of the demo engine's metrics, of the probe's frames and of KV events, into a new file at `path`."""
    source = http_source(ports.address)
    about = About(source=source.address, interval_ms=int(interval_seconds * 1000), title=DEMO_TITLE)
    store = Store.create(path, about)
    beside = open_beside(demo_endpoints(ports))
    recorder = Recorder(source, store, interval_seconds=interval_seconds, beside=beside)
    recorder.start()
    try:
        yield recorder
    finally:
        recorder.stop(ended=True)


def begin_load(engine: DemoEngine, name: str, recorder: Recorder | None) -> DemoStatus:
    """The status after the named load began, which is marked in the recording; raises `PlanError` as `run_load` does."""
    status = engine.run_load(name)
    if recorder is not None:
        recorder.mark(f"{LOAD_MARK} {name}: {TITLES[name]}.")
    return status


def _run_load(arguments: argparse.Namespace, engine: DemoEngine, recorder: Recorder | None) -> None:
    if recorder is not None:
        time.sleep(QUIET_SECONDS)
    status = begin_load(engine, arguments.load, recorder)
    _say(
        f"{TITLES[arguments.load]}: {len(status.load.requests) if status.load else 0} requests, {status.requests_path}"
    )
    status = wait_until(engine, lambda status: status.load_state == "done", arguments.seconds)
    done = sum(answer.num_output_tokens is not None for answer in status.answered)
    if recorder is not None:
        time.sleep(QUIET_SECONDS)
    _say(f"{done} of {len(status.answered)} requests were answered.")


def _outcome(status: DemoStatus) -> int:
    """The exit status, with the reason on standard error where the engine is not ready."""
    if status.state == "ready":
        return 0
    sys.stderr.write("\n".join([*status.log_tail, status.text]) + "\n")
    return 2


def _run(arguments: argparse.Namespace, engine: DemoEngine) -> int:
    _say(engine.start(arguments.folder).text)
    status = wait_until(engine, lambda status: status.state == "ready", START_SECONDS + 10.0)
    if status.state != "ready" or status.ports is None:
        return _outcome(status)
    ports = status.ports
    _say(
        f"{status.text}\nKV events {ports.events_endpoint} (replay {ports.replay_endpoint}), probe {ports.probe_endpoint}"
    )
    with recording(ports, arguments.record) if arguments.record else nullcontext() as recorder:
        if arguments.load != "none":
            _run_load(arguments, engine, recorder)
        if arguments.stay:
            _say("Ctrl-C stops the engine.")
            wait_until(engine, lambda _: False, arguments.seconds)
    return _outcome(engine.status())


def main(words: Sequence[str] | None = None) -> int:
    """The exit status: 0, or 2 where the engine is absent or failed."""
    parser = argparse.ArgumentParser(prog="python -m live.engine.demo", description=__doc__)
    parser.add_argument("--load", choices=[*TITLES, "none"], default="tour", help="what is asked (default: tour)")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="keep the log and the requests here")
    parser.add_argument("--record", type=Path, metavar="FILE", help="record metrics and block tables into FILE")
    parser.add_argument("--stay", action="store_true", help="keep the engine after the load until Ctrl-C")
    parser.add_argument(
        "--seconds", type=float, default=3600.0, metavar="N", help="stop after N seconds (default: 3600)"
    )
    arguments = parser.parse_args(words)
    engine = DemoEngine()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        return _run(arguments, engine)
    except KeyboardInterrupt:
        return 0
    except (PlanError, RecordingError) as error:
        sys.stderr.write(error.text + "\n")
        return 2
    finally:
        engine.stop()


if __name__ == "__main__":
    sys.exit(main())
