"""What the readers of one recorder cost the server: real websocket sessions that tick as browsers do. Prints figures, asserts nothing.

Each reader speaks Streamlit's protocol: it opens /watch and then asks for each fragment as often as the page tells a browser to.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench_browser import free_port, wait_until_up
from fakes.metrics_server import MetricsServer, metrics_server
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from live.monitor import Monitor

ROOT = Path(__file__).parents[1]
NUMBERS = (0, 1, 4, 20)
SECONDS = 20.0
_WARM_SECONDS, _BETWEEN_SECONDS, _LONGEST_WARM_SECONDS = 4.0, 0.7, 60.0
_MODEL = "Qwen/Qwen3-8B"
_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_MOST_KEPT_HASHES, _FEWEST_TICKS = 60, 6
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


# -- the engine -------------------------------------------------------------------------------------------------------


def engine_text(step: int) -> str:
    """What an engine under a load that comes and goes exports at second `step`."""
    running, waiting = 20 + step % 17, step // 5 % 7
    labels = f'{{engine="0",model_name="{_MODEL}"}}'
    config = 'block_size="16",num_gpu_blocks="27000",kv_cache_size_tokens="432000",cache_dtype="auto"'
    gauges = {
        "vllm:kv_cache_usage_perc": 0.4 + 0.02 * (step % 25),
        "vllm:num_requests_running": running,
        "vllm:num_requests_waiting": waiting,
    }
    counters = {
        "vllm:num_preemptions": step // 9,
        "vllm:prefix_cache_queries": 9000 * step,
        "vllm:prefix_cache_hits": 4100 * step,
        "vllm:prompt_tokens": 9100 * step,
        "vllm:generation_tokens": 2300 * step,
    }
    lines = [f"# TYPE {name} gauge\n{name}{labels} {value}\n" for name, value in gauges.items()]
    lines += [f"# TYPE {name} counter\n{name}_total{labels} {value}\n" for name, value in counters.items()]
    lines += [f'# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{engine="0",{config}}} 1.0\n']
    for name, mean in (("vllm:request_prompt_tokens", 900), ("vllm:request_generation_tokens", 230)):
        lines.append(_histogram(name, mean, 10 * step + 10))
    return "".join(lines)


def _histogram(name: str, mean: int, count: int) -> str:
    labels = f'engine="0",model_name="{_MODEL}"'
    rows = [f'{name}_bucket{{{labels},le="{bound}.0"}} {count if bound >= mean else count // 3}\n' for bound in _BOUNDS]
    rows += [f'{name}_bucket{{{labels},le="+Inf"}} {count}\n', f"{name}_count{{{labels}}} {count}\n"]
    return f"# TYPE {name} histogram\n{''.join(rows)}{name}_sum{{{labels}}} {count * mean}\n"


@contextmanager
def busy_engine() -> Iterator[MetricsServer]:
    """An engine whose numbers move each second."""
    done = threading.Event()
    with metrics_server() as engine:
        engine.model = _MODEL

        def move() -> None:
            for step in itertools.count(1):
                engine.text = engine_text(step)
                if done.wait(1.0):
                    return

        thread = threading.Thread(target=move, daemon=True)
        thread.start()
        try:
            yield engine
        finally:
            done.set()
            thread.join()


# -- the server -------------------------------------------------------------------------------------------------------


@contextmanager
def recording_server(engine: str) -> Iterator[tuple[str, int]]:
    """The address and the process of an application that records the engine from its start on."""
    with tempfile.TemporaryDirectory() as folder:
        monitor = Monitor(Path(folder))
        monitor.watch(engine)
        monitor.stop()  # not ended: the application goes on with it
        port = free_port()
        command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"KVSCOPE_RECORDINGS": folder},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until_up(f"http://127.0.0.1:{port}/healthz")
            yield f"127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.wait(timeout=20)


def cpu_seconds(process: int) -> float:
    """The CPU seconds that the process and all its threads have had."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


# -- the readers ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Reader:
    """One session: what it was sent, and how long each asked fragment took."""

    address: str
    num_messages: int = 0
    num_bytes: int = 0
    num_charts: int = 0
    num_failed: int = 0
    seconds_of_ticks: list[float] = field(default_factory=list)
    _asked_at: dict[str, float] = field(default_factory=dict)  # by fragment; "" is the whole page
    _running: list[str] = field(default_factory=list)
    _timers: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _hashes: list[str] = field(default_factory=list)

    def reset(self) -> None:
        """Count from here on."""
        self.num_messages = self.num_bytes = self.num_charts = self.num_failed = 0
        self.seconds_of_ticks.clear()

    def is_behind(self) -> bool:
        """Whether the page has not been drawn yet, or ticks come later than they are asked for."""
        return len(self.seconds_of_ticks) < _FEWEST_TICKS or max(self.seconds_of_ticks[-_FEWEST_TICKS:]) > 1.0

    async def read(self) -> None:
        """Open the page and keep it open."""
        names = [Subprotocol("streamlit"), Subprotocol("none")]
        async with connect(f"ws://{self.address}/_stcore/stream", subprotocols=names, max_size=None) as socket:
            await self._ask(socket)
            try:
                async for content in socket:
                    self._take(socket, content if isinstance(content, bytes) else content.encode())
            finally:
                for timer in self._timers.values():
                    timer.cancel()

    async def _ask(self, socket: ClientConnection, fragment: str = "") -> None:
        message = BackMsg()
        asked = message.rerun_script
        asked.page_name, asked.fragment_id, asked.is_auto_rerun = "watch", fragment, bool(fragment)
        asked.cached_message_hashes.extend(self._hashes)
        asked.context_info.locale = "en-US"
        self._asked_at.setdefault(fragment, time.perf_counter())
        await socket.send(message.SerializeToString())

    def _take(self, socket: ClientConnection, content: bytes) -> None:
        message = ForwardMsg()
        message.ParseFromString(content)
        self.num_messages += 1
        self.num_bytes += len(content)
        if message.metadata.cacheable:
            self._hashes = [*self._hashes, message.hash][-_MOST_KEPT_HASHES:]
        kind = message.WhichOneof("type")
        if kind == "auto_rerun":
            self._repeat(socket, message.auto_rerun.fragment_id, message.auto_rerun.interval)
        elif kind == "delta":
            element = message.delta.new_element
            self.num_charts += element.WhichOneof("type") == "plotly_chart"
            self.num_failed += element.WhichOneof("type") == "exception"
        elif kind == "new_session":
            self._running = list(message.metadata.run.fragment_ids) or [""]
        elif kind == "script_finished":
            done = (self._asked_at.pop(fragment, None) for fragment in self._running)
            self.seconds_of_ticks += [time.perf_counter() - asked for asked in done if asked is not None]

    def _repeat(self, socket: ClientConnection, fragment: str, seconds: float) -> None:
        async def tick() -> None:
            while True:
                await asyncio.sleep(seconds)
                await self._ask(socket, fragment)

        held = self._timers.pop(fragment, None)
        if held is not None:
            held.cancel()
        self._timers[fragment] = asyncio.create_task(tick())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What some readers cost over some seconds."""

    num_readers: int
    cores: float
    messages_per_second: float  # of one reader
    fewest_messages_per_second: float
    charts_per_second: float
    kilobytes_per_second: float
    ticks_per_second: float
    median_tick_ms: float
    num_failed: int


async def measured(address: str, process: int, num_readers: int, seconds: float = SECONDS) -> Cost:
    """The cost of `num_readers` sessions, once they have all drawn the page."""
    readers = [Reader(address) for _ in range(num_readers)]
    tasks = []
    for reader in readers:  # one after the other, as people come
        tasks.append(asyncio.create_task(reader.read()))
        await asyncio.sleep(_BETWEEN_SECONDS)
    for _ in range(int(_LONGEST_WARM_SECONDS)):
        if not any(reader.is_behind() for reader in readers):
            break
        await asyncio.sleep(1.0)
    await asyncio.sleep(_WARM_SECONDS)
    for reader in readers:
        reader.reset()
    before, start = cpu_seconds(process), time.perf_counter()
    await asyncio.sleep(seconds)
    spent, lasted = cpu_seconds(process) - before, time.perf_counter() - start
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return _cost(readers, spent / lasted, lasted)


def _cost(readers: Sequence[Reader], cores: float, seconds: float) -> Cost:
    number = max(1, len(readers)) * seconds
    ticks = sorted(each for reader in readers for each in reader.seconds_of_ticks)
    return Cost(
        num_readers=len(readers),
        cores=cores,
        messages_per_second=sum(reader.num_messages for reader in readers) / number,
        fewest_messages_per_second=min((reader.num_messages for reader in readers), default=0) / seconds,
        charts_per_second=sum(reader.num_charts for reader in readers) / number,
        kilobytes_per_second=sum(reader.num_bytes for reader in readers) / number / 1000,
        ticks_per_second=len(ticks) / number,
        median_tick_ms=1000 * ticks[len(ticks) // 2] if ticks else 0.0,
        num_failed=sum(reader.num_failed for reader in readers),
    )


def bench_readers(numbers: Sequence[int] = NUMBERS, seconds: float = SECONDS) -> None:
    """Print what each number of readers costs, one after the other on the same server."""
    with busy_engine() as engine, recording_server(engine.url) as (address, process):
        quiet = 0.0
        for number in numbers:
            cost = asyncio.run(measured(address, process, number, seconds))
            quiet = cost.cores if number == 0 else quiet
            each = (cost.cores - quiet) / number if number else 0.0
            print(
                f"  {number:3} readers  {cost.cores:5.2f} cores, {1000 * each:5.1f} ms/s each   of each: "
                f"{cost.ticks_per_second:4.1f} ticks/s in {cost.median_tick_ms:4.0f} ms, {cost.messages_per_second:5.1f} messages/s "
                f"(fewest {cost.fewest_messages_per_second:.1f}), {cost.charts_per_second:.1f} charts/s, "
                f"{cost.kilobytes_per_second:5.1f} kB/s   failed {cost.num_failed}   load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    asked = tuple(int(word) for word in sys.argv[1:]) or NUMBERS
    print("readers of one recorder")
    bench_readers(asked)
