"""How fast start-up logs are read: seconds of 200,000 lines, and as a ratio to splitting and scanning them for one word."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from planner.startup_log import read_startup_log

_NUM_LINES = 200_000
_START = (
    "(Worker_TP0 pid=7) INFO 09-01 10:00:20 [gpu_model_runner.py:5089] Model loading took 7.52 GiB memory and 12.100000 seconds\n"
    "(Worker_TP0 pid=7) INFO 09-01 10:00:40 [gpu_worker.py:773] Available KV cache memory: 56.5 GiB\n"
)
_KINDS = {
    "requests": '(APIServer pid=1) INFO:     192.0.2.1:{} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n',
    "debug": "(EngineCore pid=5) DEBUG 09-01 10:00:50 [v1/core/sched/scheduler.py:346] cmpl-{} is scheduled with 5 tokens.\n",
    "starts": "(Worker_TP0 pid=7) INFO 09-01 10:00:40 [gpu_worker.py:773] Available KV cache memory: 56.5 GiB # {}\n",
}


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _scan(text: str) -> int:
    return sum("GiB" in line for line in text.split("\n"))


def bench_logs() -> None:
    """Prints the seconds and ratios by what most of a log's lines are."""
    for kind, line in _KINDS.items():
        text = _START + "".join(line.format(number) for number in range(_NUM_LINES))
        scan = min(_seconds(partial(_scan, text)) for _ in range(3))
        read = _seconds(partial(read_startup_log, text))
        print(f"  log of 200,000 lines of {kind:12} {read:8.2f} s   {read / scan:6.1f} x one scan for a word")
