"""The memory of this machine's cards recorded beside an engine that runs here, asked for by a thread of its own."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from live.nvml import NvmlState, detect
from live.recorded_cards import CARDS_FRAME, names_to_bytes, series_of
from live.recorder import Beside, Extras

NVML_SECONDS = 5.0
_NAMES_SECONDS = 600.0  # the oldest of a recording are dropped in time, so the names come again


class NvmlBeside:
    """Used and total bytes of each card as series `nvml/<index>/…`, its name as a frame; NVML may take its time, a tick does not."""

    def __init__(self, detect: Callable[[], NvmlState] = detect, interval_seconds: float = NVML_SECONDS) -> None:
        self._detect = detect
        self._interval_seconds = interval_seconds
        self._state: NvmlState | None = None
        self._named: tuple[bytes, float] = (b"", 0.0)  # the names written last, and when
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="nvml", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while True:
            self._state = self._detect()
            if self._state.kind == "library_absent" or self._stop.wait(self._interval_seconds):
                return

    def sample(self) -> Extras:
        """The numbers of the last look; nothing where no card is seen."""
        numbers: dict[str, float] = {}
        gpus = () if self._state is None else self._state.gpus
        for gpu in gpus:
            numbers[series_of(gpu.index, "used_bytes")] = gpu.used_bytes
            numbers[series_of(gpu.index, "total_bytes")] = gpu.total_bytes
            sizes = [each.used_bytes for each in gpu.processes if each.used_bytes is not None]
            if sizes:
                numbers[series_of(gpu.index, "largest_process_bytes")] = max(sizes)
        return Extras(numbers=numbers, frames=self._names(names_to_bytes(gpus)) if gpus else ())

    def _names(self, names: bytes) -> tuple[tuple[str, bytes], ...]:
        """The cards' names where they are new, or were written long ago."""
        written, at = self._named
        if names == written and time.monotonic() - at < _NAMES_SECONDS:
            return ()
        self._named = (names, time.monotonic())
        return ((CARDS_FRAME, names),)

    def close(self) -> None:
        """Ask no more."""
        self._stop.set()
        self._thread.join(2.0)


def is_this_machine(address: str) -> bool:
    """Whether an engine's address is a loopback one, so that this machine's cards may be its own."""
    with suppress(ValueError):
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def cards_beside(address: str) -> tuple[Beside, ...]:
    """This machine's cards, to be recorded beside an engine of this machine."""
    return (NvmlBeside(),) if is_this_machine(address) else ()
