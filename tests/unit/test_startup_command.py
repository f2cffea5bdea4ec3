"""The command that people paste above a log: found, and used only for what the log does not say itself."""

from __future__ import annotations

from time import perf_counter

import pytest

from planner.log_request import request_of_log
from planner.startup_command import CommandWatch
from planner.startup_log import read_starts, read_startup_log

POOL = "INFO 06-01 10:00:09 [gpu_worker.py:255] Available KV cache memory: 10.11 GiB\n"
CONFIG = (
    "(EngineCore_0 pid=5) INFO 06-01 10:00:01 [core.py:70] Initializing a V1 LLM engine (v0.10.0) with config: "
    "model='Qwen/Qwen3-8B', max_seq_len=4096, tensor_parallel_size=2, enforce_eager=False\n"
)


def fields(text: str) -> dict[str, object]:
    return dict(request_of_log(read_startup_log(text)).fields)


def commands(text: str) -> list[tuple[int, str]]:
    watch = CommandWatch()
    assert list(watch.watch(text.split("\n"))) == text.split("\n")
    return [(command.line.number, command.text) for command in watch.commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$ vllm serve org/M-8B --max-model-len 8192 > out.log 2>&1 &", (1, "vllm serve org/M-8B --max-model-len 8192 &")),
        ("```bash\nvllm serve org/M \\\n  -tp 2 \\\n  --dtype half\n```", (2, "vllm serve org/M -tp 2 --dtype half")),
        ("(v) u@h:~$ python3 -m vllm.entrypoints.openai.api_server \\\r\n --model org/M\r\n", (1, "python3 -m vllm.entrypoints.openai.api_server --model org/M")),
        ("> vllm serve org/M\n> --max-model-len 3\n> It fails", (1, "vllm serve org/M --max-model-len 3")),
        ("I ran `vllm serve org/M -tp 2` here", (1, "vllm serve org/M -tp 2")),
        ("vllm-1  | + exec vllm serve $MODEL --port 1", (1, "exec vllm serve $MODEL --port 1")),
        ("docker run --gpus all \\\n -e A=1 \\\n vllm/vllm-openai:v0.8.5 \\\n --model a/b", (1, "docker run --gpus all -e A=1 vllm/vllm-openai:v0.8.5 --model a/b")),
    ],
)  # fmt: skip
def test_a_command_is_found_in_what_stands_around_it(text: str, expected: tuple[int, str]) -> None:
    assert commands(text) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "usage: vllm serve [model_tag] [options]",
        "When I run vllm serve it fails.",
        "docker run -it ubuntu:22.04 bash",
        "INFO 06-01 10:00:09 [api_server.py:5] Deprecated; use `vllm serve org/M` instead",
        '  File "/opt/vllm/entrypoints/openai/api_server.py", line 7, in <module>',
        "<frozen runpy>:128: RuntimeWarning: 'vllm.entrypoints.openai.api_server' found in sys.modules",
    ],
)
def test_what_only_speaks_of_a_command_is_none(text: str) -> None:
    assert commands(text) == []


def test_a_command_fills_what_the_log_does_not_say_with_its_line() -> None:
    log = read_startup_log(
        "export VLLM_USE_V2_MODEL_RUNNER=1\nvllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.85 \\\n  --kv-cache-dtype fp8 "
        '--max-num-seqs 64 --speculative-config \'{"method": "ngram", "num_speculative_tokens": 3}\'\n' + POOL
    )

    assert (log.model_name, log.gpu_memory_utilization, log.max_num_seqs) == ("Qwen/Qwen3-8B", 0.85, 64)
    assert [line.number for name, line in log.lines if name in ("model_name", "max_num_seqs")] == [2, 2]
    request = request_of_log(log)
    assert dict(request.fields)["model_runner"] == "v2"
    assert dict(request.fields)["speculative_config"] == {"method": "ngram", "num_speculative_tokens": 3}
    assert "log-command-differs" not in [finding.code for finding in request.findings]


def test_the_logs_own_lines_win_and_a_difference_is_said() -> None:
    text = "vllm serve Qwen/Qwen3-14B --max-model-len 8192 --enforce-eager -tp 2 --dtype half\n" + CONFIG + POOL

    found = request_of_log(read_startup_log(text))

    own = dict(found.fields)
    assert (own["max_model_len"], own["enforce_eager"], own["model_id"]) == (4096, False, "Qwen/Qwen3-8B")
    assert own["tensor_parallel_size"] == 2
    assert own["dtype"] == "half"
    differing = [finding.field for finding in found.findings if finding.code == "log-command-differs"]
    assert sorted(map(str, differing)) == ["enforce_eager", "max_model_len", "model_id"]


def test_each_start_has_the_command_above_it_and_a_restart_the_same() -> None:
    first, second = "vllm serve Qwen/Qwen3-8B --max-num-seqs 8\n", "vllm serve Qwen/Qwen3-8B --max-num-seqs 16\n"
    end = "INFO:     Application startup complete.\n"

    starts = read_starts(first + CONFIG + POOL + end + CONFIG + POOL + end + second + CONFIG + POOL + end)

    assert [start.max_num_seqs for start in starts] == [8, 8, 16]


def test_a_command_below_a_start_is_not_its_own() -> None:
    assert read_startup_log(CONFIG + POOL + "vllm serve Qwen/Qwen3-8B --max-num-seqs 16\n").max_num_seqs is None


def test_an_images_tag_is_the_release_unless_the_log_says_another() -> None:
    run = "docker run --gpus all vllm/vllm-openai:v0.9.2 --model Qwen/Qwen3-8B\n"

    tagged = read_startup_log(run + "INFO 06-01 10:00:09 Available KV cache memory: 10.11 GiB\n")
    assert tagged.release is not None
    assert (tagged.release.text, tagged.release.basis) == ("0.9.2", "image tag")

    stated = request_of_log(read_startup_log(run + CONFIG))
    assert dict(stated.fields)["vllm_version"] == "0.10.0"
    assert "vllm_version" in [f.field for f in stated.findings if f.code == "log-command-differs"]


def test_a_variable_without_a_command_tells_the_engine() -> None:
    assert read_startup_log("VLLM_USE_V1=0\nModel loading took 4.0 GiB and 1 seconds").engine == "v0"
    assert fields('PS C:\\> $env:VLLM_USE_V2_MODEL_RUNNER = "0"\n' + POOL)["model_runner"] == "v1"


@pytest.mark.parametrize("piece", [" ", " 2> ", ":", "A=b ", ":A=", "/:", ":python"])
def test_a_hostile_line_is_read_about_as_fast_as_it_is_long(piece: str) -> None:
    began = perf_counter()

    many = piece * (18_000 // len(piece)) + ". ."
    for begin in ("vllm ", "vllm serve -x", "export VLLM_A=1", "$env:VLLM_A="):
        list(CommandWatch().watch([begin + many]))

    assert perf_counter() - began < 5  # seconds; a cost that grows with the square is above ten


def test_long_settings_are_not_copied_into_each_of_many_commands() -> None:
    watch = CommandWatch()
    settings = [f"export VLLM_X{number}={'a' * 19_000}" for number in range(60)]

    list(watch.watch([*settings, *["vllm serve a/b"] * 400]))

    assert sum(len(command.text) for command in watch.commands) < 1_000_000
