"""`python -m live record`, `replay` and `convert`: a recording made, played and turned into tables without a browser."""

from __future__ import annotations

import argparse
import json
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, TypeVar

from live.beside import ENDPOINTS_KEY, BesideEndpoints, BesideSet, open_beside
from live.http_source import http_source
from live.monitor import Keeping
from live.nvml_beside import cards_beside
from live.recorder import Recorder
from live.recording import Gap, Mark, Recording
from live.recording_schema import RecordingError
from live.recording_tables import read_table, write_table
from live.replay import FASTEST, SLOWEST, checked_speed, snapshots
from live.samples import EngineSnapshot
from live.snapshot_json import snapshot_to_json
from live.store import About, Retention, Store
from live.watched import OK
from planner.facts import PlanError
from planner.units import MIB

_Parser = TypeVar("_Parser", bound=argparse.ArgumentParser)
_LOOK_SECONDS = 0.2
_TABLES = {".csv", ".parquet"}
_NUMBERS = re.compile(r"\d+")  # a count of seconds makes no new line
RECORD_COMMANDS = ("record", "replay", "convert")


def add_record_commands(commands: argparse._SubParsersAction[_Parser]) -> None:
    """Adds `record`, `replay` and `convert` to the parser of `python -m live`."""
    record = commands.add_parser("record", help="record a running vLLM until Ctrl-C")
    record.add_argument("url", metavar="URL", help="the server's address, such as http://localhost:8000")
    record.add_argument("--out", type=Path, required=True, metavar="FILE", help="the recording to write")
    record.add_argument("--append", action="store_true", help="go on with FILE where it exists")
    record.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between ticks (default: 1)")
    record.add_argument("--seconds", type=float, metavar="N", help="stop after N seconds (default: at Ctrl-C)")
    record.add_argument("--keep-days", type=float, default=7.0, metavar="N", help="drop what is older (default: 7)")
    record.add_argument("--largest-mib", type=int, default=512, metavar="N", help="drop the oldest (default: 512)")
    record.add_argument("--probe", metavar="tcp://…", help="record the block tables that a probe publishes there")
    record.add_argument("--kv-events", metavar="tcp://…", help="record the cached blocks that KV events tell of there")
    record.add_argument("--replay", metavar="tcp://…", help="where missed KV events are asked for")
    replay = commands.add_parser("replay", help="play a recording, a line a tick")
    replay.add_argument("file", type=Path, metavar="FILE", help="the recording")
    replay.add_argument(
        "--speed", type=float, default=1.0, metavar="N", help=f"{SLOWEST:g} to {FASTEST:g} times as fast (default: 1)"
    )
    replay.add_argument("--no-wait", action="store_true", help="write everything at once")
    replay.add_argument("--json", action="store_true", help="write a JSON record a line")
    convert = commands.add_parser("convert", help="a recording to .csv or .parquet, a table back, or a whole copy")
    convert.add_argument(
        "source", type=Path, metavar="IN", help="a recording, or a .csv or .parquet that was made of one"
    )
    convert.add_argument("--out", type=Path, required=True, metavar="OUT", help="a new .csv, .parquet or .kvscope file")


def run_record_command(arguments: argparse.Namespace, output: TextIO, errors: TextIO) -> int:
    """The exit status of `record`, `replay` or `convert`; raises `PlanError` or `RecordingError` with one sentence."""
    if arguments.command == "record":
        return _record(arguments, errors)
    if arguments.command == "replay":
        with suppress(BrokenPipeError):  # the reader has seen enough
            return _replay(arguments, output)
        return 0
    return _convert(arguments, output)


def _record(arguments: argparse.Namespace, errors: TextIO) -> int:
    if arguments.seconds is not None and not arguments.seconds > 0:
        raise PlanError("seconds", arguments.seconds, "--seconds must be more than 0.")
    if not arguments.keep_days > 0 or arguments.largest_mib < 1:
        raise PlanError("keep_days", arguments.keep_days, "--keep-days and --largest-mib must be more than 0.")
    retention = Retention(seconds=arguments.keep_days * 86_400, largest_bytes=arguments.largest_mib * MIB)
    keeping = Keeping(interval_seconds=arguments.interval, retention=retention)
    source = http_source(arguments.url)
    endpoints = BesideEndpoints(probe=arguments.probe, kv_events=arguments.kv_events, kv_replay=arguments.replay)
    beside = BesideSet(open_beside(endpoints))
    if arguments.append and arguments.out.exists():
        store = Store.resume(arguments.out, retention)
    else:
        about = About(source=source.address, interval_ms=round(keeping.interval_seconds * 1000))
        store = Store.create(arguments.out, about, retention)
    if endpoints:
        store.keep_about(ENDPOINTS_KEY, endpoints.to_text())
    recorder = Recorder(
        source, store, interval_seconds=keeping.interval_seconds, beside=(*cards_beside(source.address), beside)
    )
    with _interrupts() as stop:
        recorder.start()
        _tell(recorder, beside, stop, arguments.seconds, errors)
    num_ticks = recorder.status().num_ticks
    recorder.stop(ended=True)
    errors.write(f"{arguments.out}: {num_ticks} ticks of {source.address}\n")
    return 0


class _Stop:
    """A flag that a signal handler may set: an Event's lock could be held by the very thread that the handler interrupts."""

    is_asked = False

    def ask(self, *_: object) -> None:
        self.is_asked = True

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or soon after being asked."""
        end = time.monotonic() + seconds
        while not self.is_asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(_LOOK_SECONDS, left))


@contextmanager
def _interrupts() -> Iterator[_Stop]:
    """Asked to stop by Ctrl-C and by SIGTERM, while inside."""
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {name: signal.signal(name, stop.ask) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _tell(recorder: Recorder, beside: BesideSet, stop: _Stop, seconds: float | None, errors: TextIO) -> None:
    """Write each change of state until it is time to stop."""
    end = time.monotonic() + seconds if seconds is not None else float("inf")
    said = ""
    while not stop.is_asked and time.monotonic() < end:
        status = recorder.status()
        line = " ".join([status.storage_text or status.text or f"recording {status.address}", *beside.sayings()])
        without_numbers = _NUMBERS.sub("", line)
        if without_numbers != said:
            errors.write(f"{_clock_time(status.time_ms)} {status.state}: {line}\n")
            errors.flush()
            said = without_numbers
        time.sleep(min(_LOOK_SECONDS, max(0.0, end - time.monotonic())))


def _clock_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is to be written at a time: a snapshot, a gap's begin or a mark."""

    time_ms: int
    what: EngineSnapshot | Gap | Mark


def _entries(recording: Recording) -> Iterator[_Entry]:
    """All that happened, in time's order; events are few and wait in a list."""
    events = [_Entry(gap.start_ms, gap) for gap in recording.gaps()]
    events += [_Entry(mark.time_ms, mark) for mark in recording.marks()]
    events.sort(key=lambda entry: entry.time_ms, reverse=True)
    for snapshot in snapshots(recording):
        time_ms = snapshot.time_unix_ns // 1_000_000
        while events and events[-1].time_ms < time_ms:
            yield events.pop()
        yield _Entry(time_ms, snapshot)
    yield from reversed(events)


def _replay(arguments: argparse.Namespace, output: TextIO) -> int:
    speed = checked_speed(arguments.speed)
    with closing(_opened(arguments.file)) as recording, _interrupts() as stop:
        start, first_ms = time.monotonic(), None
        for entry in _entries(recording):
            first_ms = entry.time_ms if first_ms is None else first_ms
            if not arguments.no_wait:
                due = start + (entry.time_ms - first_ms) / 1000 / speed
                stop.wait(max(0.0, due - time.monotonic()))
            if stop.is_asked:
                break
            output.write(_json_line(entry) if arguments.json else _line(entry))
            output.flush()
    return 0


def _opened(path: Path) -> Recording:
    """A recording that may be under way; one that nobody writes is checked as an upload is."""
    is_written = path.with_name(path.name + "-wal").exists()
    return Recording.open(path) if is_written else Recording.open_untrusted(path, largest_bytes=2**62)


def _json_line(entry: _Entry) -> str:
    record: dict[str, object] = {"time_ms": entry.time_ms}
    if isinstance(entry.what, EngineSnapshot):
        record |= {"state": OK, "source": entry.what.source} | snapshot_to_json(entry.what)
    elif isinstance(entry.what, Gap):
        record |= {"state": entry.what.state, "text": entry.what.text, "end_ms": entry.what.end_ms}
    else:
        record |= {"event": entry.what.kind, "text": entry.what.text}
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def _line(entry: _Entry) -> str:
    moment = _clock_time(entry.time_ms)
    if isinstance(entry.what, Gap):
        seconds = (entry.what.end_ms - entry.what.start_ms) / 1000
        return f"{moment} no samples for {seconds:,.1f} s ({entry.what.state}): {entry.what.text}\n"
    if isinstance(entry.what, Mark):
        return f"{moment} {entry.what.kind}: {entry.what.text}\n"
    return "".join(
        f"{moment} {engine.identity.model_name or '?'} {engine.identity.engine or ''}"
        f"  KV {_percent(engine.kv_usage_fraction)}  running {_count(engine.num_requests_running)}"
        f"  waiting {_count(engine.num_requests_waiting)}  preemptions {_count(engine.num_preemptions)}\n"
        for engine in entry.what.engines
    )


def _percent(fraction: float | None) -> str:
    return "not exported" if fraction is None else f"{100 * fraction:.1f} %"


def _count(value: float | None) -> str:
    return "not exported" if value is None else f"{value:,.0f}"


def _convert(arguments: argparse.Namespace, output: TextIO) -> int:
    source, out = arguments.source, arguments.out
    if out.exists():
        raise RecordingError("exists", f"{out} exists; choose another name.")
    is_table = source.suffix.lower() in _TABLES
    if out.suffix.lower() not in ({".kvscope"} if is_table else {*_TABLES, ".kvscope"}):
        text = (
            f"{source.name} cannot become {out.name}: a recording becomes .csv, .parquet or .kvscope, a .csv or .parquet "
            "becomes .kvscope."
        )
        raise PlanError("out", str(out), text)
    try:
        output.write(f"{out}: {_converted(source, out)}\n")
    except OSError as error:
        raise RecordingError("disk", f"{source} cannot be made {out} ({error.strerror}); check both paths.") from None
    return 0


def _converted(source: Path, out: Path) -> str:
    if source.suffix.lower() in _TABLES:
        with closing(read_table(source, out)) as made:
            return f"{made.summary().num_ticks} ticks"
    with closing(_opened(source)) as recording:
        if out.suffix.lower() == ".kvscope":
            recording.save_copy(out)
            return f"{recording.summary().num_ticks} ticks"
        return f"{write_table(recording, out)} rows"
