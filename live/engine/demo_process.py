"""One demo engine as a process: its folder, ports, command line and environment, started under a keeper and ended whole."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from live.engine import keeper
from live.engine.load import DEMO_CONFIG
from live.engine.tiny_model import write_tiny_model
from live.probe_frames import ENDPOINT_VARIABLE, RATE_VARIABLE
from live.recording_schema import RecordingError
from live.writer_lock import WriterLock
from planner.facts import PlanError

MODEL_NAME = "kvscope-demo"
LOG_NAME = "engine.log"
_ROOT = Path(__file__).parents[2]
_STOP_SECONDS = keeper.GRACE_SECONDS + 10.0
_LARGEST_TAIL_BYTES = 64 * 1024
_NOISE = re.compile(r"^\s*$|nanobind|^ - (leaked|\.\.\. skipped)|resource_tracker|warnings\.warn")
# settings of a person's own engines, and secrets, are none of the demo's business
_DROPPED_PREFIXES = ("VLLM_", "HF_", "HUGGING_FACE_", "OPENAI_", "PYTHON")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPorts:
    """Free ports of this host."""

    http: int
    events: int
    replay: int
    probe: int

    @classmethod
    def free(cls) -> DemoPorts:
        """Four ports that nobody listens on."""
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(4)]
            for entry in sockets:
                entry.bind(("127.0.0.1", 0))
            http, events, replay, probe = (int(entry.getsockname()[1]) for entry in sockets)
        return cls(http=http, events=events, replay=replay, probe=probe)

    def check_free(self) -> None:
        """Raises `PlanError` with the first port that another program holds: its answers would pass for the demo's."""
        for port in (self.http, self.events, self.replay, self.probe):
            with socket.socket() as entry:
                entry.setsockopt(
                    socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
                )  # a port that was closed a moment ago is free
                try:
                    entry.bind(("127.0.0.1", port))
                except OSError:
                    text = f"Port {port} of this host is in use by another program; stop that one, or take other ports."
                    raise PlanError("port", port, text) from None

    @property
    def address(self) -> str:
        """Where the server answers."""
        return f"http://127.0.0.1:{self.http}"

    @property
    def events_endpoint(self) -> str:
        """Where KV events are read."""
        return f"tcp://127.0.0.1:{self.events}"

    @property
    def replay_endpoint(self) -> str:
        """Where missed KV events are asked for."""
        return f"tcp://127.0.0.1:{self.replay}"

    @property
    def probe_endpoint(self) -> str:
        """Where block tables are read."""
        return f"tcp://127.0.0.1:{self.probe}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What a test may want otherwise than the demo."""

    num_gpu_blocks_override: int | None = DEMO_CONFIG.num_gpu_blocks
    kv_cache_space_gib: int = 1
    probe_hz: float = 5.0
    extra_words: tuple[str, ...] = ()


def command(python: Path, model_folder: Path, ports: DemoPorts, settings: DemoSettings) -> list[str]:
    """The words that start vLLM's server on the CPU; the `vllm` command itself does not run in a CPU environment."""
    # the publisher binds only where the host holds "*" or "::"; this one is IPv4's loopback
    events = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://[::ffff:127.0.0.1]:{ports.events}",
        "replay_endpoint": ports.replay_endpoint,
    }
    override = settings.num_gpu_blocks_override
    words = {
        "--model": str(model_folder),
        "--served-model-name": MODEL_NAME,
        "--host": "127.0.0.1",
        "--port": str(ports.http),
        "--block-size": str(DEMO_CONFIG.block_size),
        "--max-model-len": str(DEMO_CONFIG.max_model_len),
        "--max-num-seqs": str(DEMO_CONFIG.max_num_seqs),
        "--max-num-batched-tokens": str(DEMO_CONFIG.max_num_batched_tokens),
        "--scheduler-cls": "live.engine.probe.ProbeScheduler",
        "--kv-events-config": json.dumps(events),
    } | ({} if override is None else {"--num-gpu-blocks-override": str(override)})
    flags = ["--enforce-eager", *settings.extra_words]
    server = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
    return [*server, *(word for pair in words.items() for word in pair), *flags]


def environment(ports: DemoPorts, settings: DemoSettings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that the engine starts with."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_DROPPED_PREFIXES)}
    return kept | {
        "PYTHONPATH": str(_ROOT),
        "PYTHONUNBUFFERED": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(settings.kv_cache_space_gib),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",  # a model this small runs slower on more
        ENDPOINT_VARIABLE: ports.probe_endpoint,
        RATE_VARIABLE: f"{settings.probe_hz:g}",
    }


def _locked(folder: Path) -> WriterLock:
    """The folder's lock; a killed process leaves none behind. Raises `PlanError` where another engine runs there."""
    try:
        return WriterLock(folder / "engine")
    except RecordingError:
        text = f"Another demo engine runs in {folder}; stop that one, or name another folder."
        raise PlanError("folder", str(folder), text) from None


class DemoProcess:
    """A started engine. `stop` ends it and all its children; so does the end of the process that holds this object.

    Raises `PlanError` where another engine runs in the folder, or another program has one of the ports.
    """

    def __init__(
        self, python: Path, folder: Path, settings: DemoSettings | None = None, ports: DemoPorts | None = None
    ) -> None:
        settings = settings or DemoSettings()
        self.folder = folder
        self.ports = ports or DemoPorts.free()
        self.ports.check_free()
        self.log_path = folder / LOG_NAME
        self._lock: WriterLock | None = _locked(folder)
        try:
            self._keeper = self._started(python, settings)
        except OSError:
            self._release()
            raise

    def _started(self, python: Path, settings: DemoSettings) -> subprocess.Popen[bytes]:
        model_folder = write_tiny_model(self.folder / "model")
        words = [sys.executable, "-I", str(Path(keeper.__file__)), *command(python, model_folder, self.ports, settings)]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own words
                words,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment(self.ports, settings),
                start_new_session=True,  # a Ctrl-C at the terminal reaches us alone, and we stop it
            )

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def exit_status(self) -> int | None:
        """The status it ended with; None while it runs."""
        return self._keeper.poll()

    def stop(self) -> None:
        """End it and wait until it is gone."""
        if self._keeper.stdin is not None:
            with suppress(OSError):
                self._keeper.stdin.close()
        try:
            self._keeper.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        self._release()

    def log_tail(self, num_lines: int = 20) -> tuple[str, ...]:
        """The last lines of its log."""
        try:
            with self.log_path.open("rb") as stream:
                stream.seek(0, os.SEEK_END)
                stream.seek(max(0, stream.tell() - _LARGEST_TAIL_BYTES))
                lines = stream.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ()
        # what extension modules say as they are unloaded would hide why
        told = [line for line in lines if not _NOISE.search(line)]
        return tuple(told[-num_lines:])
