"""How fast a day's recording opens and draws, and what a tick costs, printed as figures. Asserts nothing."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from live.downsample import drawn
from live.recording import Recording
from live.recording_schema import CHUNK_TICKS
from live.store import About, Store

NUM_SERIES = 40
DAY_TICKS = 86_400
BROWSERS = 20
START_MS = 1_760_000_000_000


def write_day(path: Path, num_ticks: int = DAY_TICKS, num_series: int = NUM_SERIES) -> list[float]:
    """Write a recording at 1 Hz, half gauges that wander and half counters; the seconds that each tick took."""
    random = np.random.default_rng(7)
    names = [f"model#0/series_{number}" for number in range(num_series)]
    gauges = np.cumsum(random.normal(size=(num_ticks, num_series // 2)), axis=0)
    counters = np.cumsum(random.poisson(30, size=(num_ticks, num_series - num_series // 2)), axis=0)
    numbers = np.concatenate([gauges, counters], axis=1)
    store = Store.create(path, About(source="http://localhost:8000"))
    seconds = []
    for tick in range(num_ticks):
        row = dict(zip(names, numbers[tick].tolist(), strict=True))
        start = time.perf_counter()
        store.append(START_MS + 1000 * tick, row, "{}")
        seconds.append(time.perf_counter() - start)
    store.close()
    return seconds


def open_and_draw_seconds(path: Path) -> float:
    """The seconds from a path to the points of every series over the whole time."""
    start = time.perf_counter()
    recording = Recording.open(path)
    drawn(recording.window(), recording.summary().interval_ms)
    recording.close()
    return time.perf_counter() - start


def browsers_seconds(path: Path) -> float:
    """The seconds that one window of 15 minutes of 12 series costs for each of `BROWSERS` browsers."""
    recording = Recording.open(path)
    names = recording.summary().series[:12]
    start = time.perf_counter()
    for _ in range(BROWSERS):
        drawn(recording.window(names, START_MS + 1000 * (DAY_TICKS - 900)), 1000)
    seconds = time.perf_counter() - start
    recording.close()
    return seconds


def upload_seconds(path: Path) -> float:
    """The seconds that the checks of an uploaded file take."""
    start = time.perf_counter()
    Recording.open_untrusted(path).close()
    return time.perf_counter() - start


def bench_recording() -> None:
    """Print what a tick costs and how long a day takes to open."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.kvscope"
        seconds = write_day(path)
        folds = seconds[CHUNK_TICKS - 1 :: CHUNK_TICKS]
        print(f"  a tick of {NUM_SERIES} series                  {statistics.median(seconds) * 1e3:8.2f} ms")
        print(f"  a tick that folds {CHUNK_TICKS} of them       {statistics.median(folds) * 1e3:8.2f} ms")
        print(f"  slowest tick of the day                {max(seconds) * 1e3:8.2f} ms")
        print(
            f"  a day: {path.stat().st_size / 2**20:.1f} MiB; opened and drawn   {_best(open_and_draw_seconds, path) * 1e3:8.1f} ms"
        )
        print(f"  {BROWSERS} browsers' windows of 12 series     {_best(browsers_seconds, path) * 1e3:8.1f} ms a second")
        print(f"  the day as an upload, checked          {_best(upload_seconds, path) * 1e3:8.1f} ms")


def _best(work: Callable[[Path], float], path: Path) -> float:
    return statistics.median(work(path) for _ in range(5))


if __name__ == "__main__":
    print("recording")
    bench_recording()
