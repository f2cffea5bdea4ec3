from __future__ import annotations

import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from fakes.completions_server import completions_server
from fakes.vllm_stand_in import DIES, stand_in_environment

from live.engine import keeper
from live.engine.demo import DemoEngine, main, wait_until
from live.engine.demo_process import DemoPorts, DemoSettings, command, environment
from live.engine.load import DEMO_CONFIG, TITLES, drive, named_load, predict
from live.engine.tiny_model import num_parameters, write_tiny_model
from planner.facts import PlanError
from planner.workload_files import read_requests, write_requests

PORTS = DemoPorts(http=1, events=2, replay=3, probe=4)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_gone(pid: int, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_alive(pid)


# a command with a child of its own, which says the child's id and then waits
PARENT = "import subprocess, sys; c = subprocess.Popen(['sleep', '60']); print(c.pid, flush=True); c.wait()"


def kept(*words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-I", keeper.__file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_the_model_folder_holds_what_its_header_says(tmp_path):
    folder = write_tiny_model(tmp_path / "model")
    content = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])

    assert (
        max(entry["data_offsets"][1] for entry in header.values()) == len(content) - 8 - length == 2 * num_parameters()
    )
    assert 2_000_000 < num_parameters() < 3_000_000


def test_equal_seeds_write_equal_models(tmp_path):
    first, second = (write_tiny_model(tmp_path / name) / "model.safetensors" for name in "ab")

    assert first.read_bytes() == second.read_bytes()


def test_each_byte_has_a_token_of_its_own(tmp_path):
    tokenizer = json.loads((write_tiny_model(tmp_path) / "tokenizer.json").read_text(encoding="utf-8"))

    assert sorted(tokenizer["model"]["vocab"].values()) == list(range(256))
    assert tokenizer["model"]["vocab"]["A"] == 65


@pytest.mark.parametrize("name", TITLES)
def test_a_load_is_repeatable_fits_the_engine_and_comes_back_from_its_file(name):
    load = named_load(name)
    stream = io.StringIO()
    write_requests(load.requests, stream)
    stream.seek(0)

    assert named_load(name) == load
    assert read_requests(stream) == load.requests
    assert max(r.num_prompt_tokens + r.num_output_tokens for r in load.requests) <= DEMO_CONFIG.max_model_len


def test_the_burst_preempts_and_the_calm_does_not():
    summaries = {name: predict(named_load(name), 0.01).summary for name in ("calm", "burst")}

    assert (summaries["calm"].num_preemptions, summaries["burst"].num_preemptions > 0) == (0, True)
    assert summaries["burst"].peak_used_blocks == DEMO_CONFIG.num_usable_blocks


def test_shared_prefixes_hit():
    summary = predict(named_load("shared-prefix"), 0.01).summary

    assert summary.hit_tokens > 10_000


def test_an_unknown_load_lists_the_known_ones():
    with pytest.raises(PlanError, match="calm, shared-prefix, burst, tour"):
        named_load("storm")


def drive_apart(*arguments, **options):
    """`drive` in a thread of its own: browser tests leave a running event loop in this one."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(drive, *arguments, **options).result(timeout=120)


def test_a_load_is_sent_as_it_stands_and_failures_are_told():
    load = named_load("burst")
    with completions_server(fails="burst-3") as (address, bodies):
        answered = {answer.request_id: answer for answer in drive_apart(load, address, model="m")}

    sent = {body["request_id"]: body for body in bodies}
    assert sent["burst-0"]["prompt"] == list(load.requests[0].prompt_token_ids or ())
    assert (sent["burst-0"]["max_tokens"], sent["burst-0"]["ignore_eos"]) == (load.requests[0].num_output_tokens, True)
    assert answered["burst-0"].num_output_tokens == load.requests[0].num_output_tokens
    assert (answered["burst-3"].num_output_tokens, "503" in answered["burst-3"].text) == (None, True)


def test_a_stopped_load_sends_nothing():
    with completions_server() as (address, bodies):
        drive_apart(named_load("calm"), address, model="m", should_stop=lambda: True)

    assert bodies == []


def test_the_engine_listens_on_this_host_only():
    words = command(Path("python"), Path("model"), PORTS, DemoSettings())
    events = json.loads(words[words.index("--kv-events-config") + 1])

    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert (events["endpoint"], events["replay_endpoint"]) == ("tcp://[::ffff:127.0.0.1]:2", "tcp://127.0.0.1:3")
    assert words[words.index("--num-gpu-blocks-override") + 1] == "256"


def test_the_engine_gets_no_secret_and_no_setting_of_anothers():
    given = environment(
        PORTS, DemoSettings(), {"HF_TOKEN": "x", "VLLM_API_KEY": "y", "PYTHONPATH": "z", "PATH": "/bin"}
    )

    assert (given["PATH"], given["HF_HUB_OFFLINE"]) == ("/bin", "1")
    assert not {"HF_TOKEN", "VLLM_API_KEY"} & given.keys()


def test_an_absent_environment_is_a_state_of_the_demo(tmp_path, monkeypatch):
    monkeypatch.setenv("KVSCOPE_ENGINE", str(tmp_path / "none"))
    engine = DemoEngine()

    status = engine.start()

    assert (status.state, "make engine" in status.text) == ("absent", True)
    with pytest.raises(PlanError, match="not ready"):
        engine.run_load("calm")


@pytest.fixture
def broken_engine(tmp_path, monkeypatch):
    """An environment whose Python says one line and ends."""
    folder = tmp_path / "engine"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text("#!/bin/sh\necho 'RuntimeError: no space' >&2\nexit 3\n", encoding="utf-8")
    python.chmod(0o755)
    (folder / ".ready").touch()
    monkeypatch.setenv("KVSCOPE_ENGINE", str(folder))


@pytest.mark.usefixtures("broken_engine")
def test_an_engine_that_fails_shows_its_last_lines_and_can_be_started_again():
    engine = DemoEngine()
    engine.start()

    status = wait_until(engine, lambda status: status.state != "starting", 10.0)

    assert (status.state, "status 3" in status.text) == ("failed", True)
    assert status.log_tail == ("RuntimeError: no space",)
    assert engine.start().state == "starting"
    engine.stop()
    assert engine.status().state == "stopped"


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Sets an environment whose Python plays vLLM's server; `words` are for the player."""

    def environment_of(*words):
        folder = tmp_path / f"engine{''.join(words)}"
        monkeypatch.setenv("KVSCOPE_ENGINE", str(stand_in_environment(folder, *words)))

    environment_of()
    return environment_of


@pytest.fixture
def engine():
    engine = DemoEngine()
    yield engine
    engine.stop()


def ready(engine, folder=None, ports=None):
    engine.start(folder, ports)
    status = wait_until(engine, lambda status: status.state == "ready", 20.0)
    assert status.state == "ready", status
    return status


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(word) for word in listed.split()]


@pytest.mark.usefixtures("stand_in")
def test_an_engine_that_is_killed_while_it_works_is_told_apart_from_one_that_ends(engine):
    ready(engine)
    engine.run_load("calm")
    (server,) = children_of(engine._process._keeper.pid)

    os.kill(server, signal.SIGKILL)
    status = wait_until(engine, lambda status: status.state != "ready", 10.0)

    assert (status.state, status.load_state, status.ports) == ("failed", "none", None)
    assert "ended from outside (signal 9)" in status.text
    assert ready(engine).load is None


@pytest.mark.usefixtures("stand_in")
def test_its_keepers_end_is_its_own(engine):
    ready(engine)
    keeper_pid = engine._process._keeper.pid
    (server,) = children_of(keeper_pid)

    os.kill(keeper_pid, signal.SIGKILL)
    status = wait_until(engine, lambda status: status.state != "ready", 10.0)

    assert (status.state, "signal 9" in status.text) == ("failed", True)
    assert wait_gone(server)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("place", range(4))
def test_a_port_that_another_program_has_is_named_and_nothing_is_started(engine, tmp_path, place):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ports = replace(DemoPorts.free(), **{("http", "events", "replay", "probe")[place]: port})
        status = engine.start(tmp_path / "run", ports)

    assert (status.state, status.text.startswith(f"Port {port} of this host is in use")) == ("failed", True)
    assert not (tmp_path / "run" / "model").exists()
    assert ready(engine, tmp_path / "run").state == "ready"


@pytest.mark.usefixtures("stand_in")
def test_the_ports_of_an_engine_that_a_killed_program_left_behind_are_named(engine, tmp_path):
    ports = DemoPorts.free()
    # its own keeper is gone as well: only the server is left
    left = subprocess.Popen([engine_python(), *command(Path("x"), tmp_path, ports, DemoSettings())[1:]])
    try:
        end = time.monotonic() + 10.0
        while not is_listened(ports.http) and time.monotonic() < end:
            time.sleep(0.05)
        status = engine.start(tmp_path / "run", ports)
        assert (status.state, f"Port {ports.http} " in status.text) == ("failed", True)
        # without ports of its own it takes free ones
        assert ready(engine).ports.http != ports.http
    finally:
        left.kill()
        left.wait()


def engine_python() -> str:
    return str(Path(os.environ["KVSCOPE_ENGINE"]) / "bin" / "python")


def is_listened(port: int) -> bool:
    with socket.socket() as entry:
        return entry.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.usefixtures("stand_in")
def test_a_folder_holds_one_engine_at_a_time(engine, tmp_path):
    ready(engine, tmp_path / "run")
    second = DemoEngine()

    status = second.start(tmp_path / "run")

    assert (status.state, "Another demo engine runs in" in status.text) == ("failed", True)
    engine.stop()
    assert second.start(tmp_path / "run").state == "starting"
    second.stop()


@pytest.mark.usefixtures("stand_in")
def test_a_second_start_of_a_ready_engine_changes_nothing(engine):
    first = ready(engine)

    assert engine.start().ports == first.ports
    assert engine.status().state == "ready"


@pytest.mark.usefixtures("stand_in")
def test_a_folder_that_cannot_be_written_is_said(engine, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")

    status = engine.start(tmp_path / "file" / "run")

    assert (status.state, "folder cannot be written (Not a directory)" in status.text) == ("failed", True)


def test_an_environment_that_was_not_finished_is_not_started(engine, tmp_path, monkeypatch):
    (tmp_path / "half").mkdir()
    monkeypatch.setenv("KVSCOPE_ENGINE", str(tmp_path / "half"))

    status = engine.start()

    assert (status.state, "not complete" in status.text) == ("absent", True)


def test_the_command_says_why_where_the_engine_ends_under_its_load(stand_in, tmp_path, capsys):
    stand_in(DIES)

    assert main_apart(["--load", "burst", "--folder", str(tmp_path / "run")]) == 2
    assert "ended by itself (status 5)" in capsys.readouterr().err


def main_apart(words):
    with ThreadPoolExecutor(max_workers=1) as pool, patch("signal.signal"):  # which only the main thread may call
        return pool.submit(main, words).result(timeout=120)


def test_the_keeper_ends_the_command_and_its_children_when_its_pipe_closes():
    process = kept(sys.executable, "-c", PARENT)
    assert process.stdin is not None
    assert process.stdout is not None
    child = int(process.stdout.readline())

    process.stdin.close()

    assert process.wait(15.0) != 0
    assert wait_gone(child)


def test_the_keeper_outlives_a_killed_parent_only_to_end_the_command():
    # the killed one holds the keeper's pipe, as an app would
    middle = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-I', sys.argv[1], sys.executable, '-c', sys.argv[2]],"
        " stdin=subprocess.PIPE); p.wait()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", middle, keeper.__file__, PARENT], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())

    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    assert wait_gone(child, 15.0)


def test_the_keeper_passes_the_commands_status_on():
    process = kept(sys.executable, "-c", "import sys; sys.exit(7)")

    assert process.wait(15.0) == 7
