from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes.completions_server import completions_server

from live.engine import keeper
from live.engine.demo import DemoEngine, wait_until
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
