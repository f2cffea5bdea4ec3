"""The calibrations that this host holds: one readable JSON file, written whole or not at all.

KVSCOPE_CALIBRATIONS names it; else it is calibrations.json in the folder of recordings.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from live.monitor import default_recordings_folder
from planner.calibration import CalibratedStart, Calibration
from planner.calibration_file import LARGEST_FILE_BYTES, MOST_STARTS, from_text, to_text
from planner.facts import PlanError

try:
    import fcntl
except ImportError:  # Windows: one process at a time is then the user's affair
    fcntl = None  # type: ignore[assignment]  # absent there

FILE_SETTING = "KVSCOPE_CALIBRATIONS"
FILE_NAME = "calibrations.json"
_threads = threading.Lock()


def calibrations_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Where calibrations are kept."""
    chosen = environment.get(FILE_SETTING)
    return Path(chosen) if chosen else default_recordings_folder(environment) / FILE_NAME


def this_host() -> str:
    """This machine's name as calibrations carry it."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:63].strip("-.")
    return name or "this-host"


class CalibrationStore:
    """The file of calibrations; one calibration a host, card and era."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> tuple[Calibration, ...]:
        """What is held, oldest first; raises `PlanError` for a file that is not ours."""
        try:
            facts = self.path.stat()
            return _read(self.path, facts.st_mtime_ns, facts.st_size)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _unreadable(self.path, error) from None

    def named(self, identity: str) -> Calibration | None:
        """The calibration of that name."""
        return next((each for each in self.all() if each.identity == identity), None)

    def of(self, card: str, era: str, host: str | None = None) -> Calibration | None:
        """The calibration of `card` and `era`: this host's before an imported one."""
        fitting = [each for each in self.all() if each.card == card and each.era == era]
        own = host or this_host()
        return next((each for each in fitting if each.host == own), fitting[-1] if fitting else None)

    def add(self, card: str, era: str, starts: Sequence[CalibratedStart], host: str | None = None) -> Calibration:
        """The calibration with `starts` in it; one that was read before (same file, model and flags) is replaced."""
        own = host or this_host()

        def change(held: tuple[Calibration, ...]) -> tuple[Calibration, ...]:
            before = next((each for each in held if _key(each) == (own, card, era)), None)
            new = {_start_key(start): start for start in (*(before.starts if before else ()), *starts)}
            kept = tuple(new.values())[-MOST_STARTS:]
            made = Calibration(host=own, card=card, era=era, starts=kept)
            return (*(each for each in held if each is not before), made)

        return self._change(change)[-1]

    def remove(self, identity: str) -> None:
        """Forget one calibration."""
        self._change(lambda held: tuple(each for each in held if each.identity != identity))

    def remove_start(self, identity: str, source: str) -> None:
        """Forget one start of a calibration, and the calibration with its last."""

        def without(each: Calibration) -> Calibration:
            starts = tuple(start for start in each.starts if start.source != source)
            return each if each.identity != identity else replace(each, starts=starts)

        self._change(lambda held: tuple(kept for each in held if (kept := without(each)).starts))

    def take(self, content: bytes, name: str) -> tuple[Calibration, ...]:
        """What an exported file brings; it replaces what is held of the same host, card and era."""
        brought = from_text(content, name)
        keys = {_key(each) for each in brought}
        self._change(lambda held: (*(each for each in held if _key(each) not in keys), *brought))
        return brought

    def _change(self, change: Callable[[tuple[Calibration, ...]], tuple[Calibration, ...]]) -> tuple[Calibration, ...]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _writing(self.path):
                changed = change(self.all())
                _write(self.path, to_text(changed))
        except OSError as error:
            raise _unreadable(self.path, error) from None
        return changed


def process_store() -> CalibrationStore:
    """The store of this process's settings."""
    return CalibrationStore(calibrations_file())


def _key(calibration: Calibration) -> tuple[str, str, str]:
    return calibration.host, calibration.card, calibration.era


def _start_key(start: CalibratedStart) -> tuple[str, str, str]:
    return start.source, start.model_id, start.flags


def _unreadable(path: Path, error: OSError) -> PlanError:
    text = f"{path.name} cannot be read or written ({error.strerror}); set {FILE_SETTING} to a file of yours."
    return PlanError("calibrations", path.name, text)


@lru_cache(maxsize=8)
def _read(path: Path, _mtime_ns: int, size: int) -> tuple[Calibration, ...]:
    if size > LARGEST_FILE_BYTES:
        raise PlanError("calibrations", path.name, f"{path.name} is too large to be a file of calibrations.")
    return from_text(path.read_bytes(), path.name)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """One writer at a time, in this process and among processes."""
    with _threads, path.with_name(path.name + ".lock").open("a") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, text: str) -> None:
    if len(text.encode()) > LARGEST_FILE_BYTES:
        raise PlanError("calibrations", path.name, f"{path.name} would be larger than it may be; remove some starts.")
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".calibrations-", delete=False) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)
