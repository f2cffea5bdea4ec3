"""The same lines as terminals, collectors and people decorate them, read the same."""

from __future__ import annotations

import json

import pytest

from planner.startup_facts import StartupLog
from planner.startup_log import read_startup_log

AVAILABLE = "(Worker_TP1 pid=7) INFO 09-01 10:00:00 [gpu_worker.py:773] Available KV cache memory: 16.46 GiB"
SIZE = (
    "(EngineCore pid=5) INFO 09-01 10:00:01 [kv_cache_utils.py:1147] GPU KV cache size: 409,600 tokens, "
    "Maximum concurrency for 131,072 tokens per request: 3.12x"
)
READY = "(APIServer pid=1) INFO:     Application startup complete."
LINES = (AVAILABLE, SIZE, READY)


def printed(log: StartupLog, name: str) -> str | None:
    estimate = log.memory(name)
    return None if estimate is None else estimate.formula


def coloured(line: str) -> str:
    return f"\x1b[0;36m{line[:18]}\x1b[0;0m\x1b[32m{line[18:]}\x1b[0m"


DECORATIONS = {
    "plain": lambda line: line,
    "colours": coloured,
    "colours without their escape character": lambda line: coloured(line).replace("\x1b", ""),
    "docker compose": lambda line: f"vllm-1  | {line}",
    "docker's json-file": lambda line: json.dumps(
        {"log": line + "\n", "stream": "stdout", "time": "2026-09-01T10:00:00Z"}
    ),
    "coloured JSON": lambda line: json.dumps({"message": coloured(line)}),
    "JSON in JSON": lambda line: json.dumps({"kubernetes": {"pod": "a"}, "log": json.dumps({"msg": line})}),
    "a cloud's payload": lambda line: json.dumps({"jsonPayload": {"message": line}, "severity": "INFO"}),
    "cut JSON": lambda line: json.dumps({"message": line})[:-1],
    "containerd": lambda line: f"2026-09-01T10:00:00.123456789Z stdout F {line}",
    "kubectl with prefix": lambda line: f"[pod/llama-7d9f-x2/vllm] {line}",
    "journald": lambda line: f"Nov 29 12:00:00 gpu01 vllm[1234]: {line}",
    "Windows": lambda line: line + "\r",
    "quoted": lambda line: f"> > {line}",
    "indented": lambda line: f"\t    {line}",
    "framed": lambda line: f"│ {line:<190}│",
    "after a progress bar": lambda line: f"Loading shards:  50%|█▌ | 1/2 [00:01<00:01]\rLoading shards: 100%\r{line}",
    "glued to another process's line": lambda line: f"(Worker_TP0 pid=6) INFO 09-01 10:00:00 [x.py:1] loaded{line}",
}


@pytest.mark.parametrize("decorate", DECORATIONS.values(), ids=DECORATIONS.keys())
def test_a_decoration_changes_no_fact_and_no_line_number(decorate) -> None:
    log = read_startup_log("\n".join(["first", *map(decorate, LINES)]))

    assert printed(log, "available_kv") == "16.46 GiB"
    assert [rank.rank for rank in log.ranks] == ["TP1"]
    assert (log.kv_cache_tokens, log.max_model_len, log.max_concurrency) == (409600, 131072, 3.12)
    assert log.outcome == "started"
    assert [log.line_of(name).number for name in ("available_kv", "kv_cache_tokens")] == [2, 3]


def test_structured_records_name_their_process() -> None:
    record = {
        "levelname": "INFO",
        "processName": "Worker_TP3",
        "process": 9,
        "message": "Available KV cache memory: 5.0 GiB",
    }

    assert [rank.rank for rank in read_startup_log(json.dumps(record)).ranks] == ["TP3"]


@pytest.mark.parametrize("width", [60, 80, 97, 120])
def test_lines_broken_at_a_width_are_joined(width: int) -> None:
    filler = "(EngineCore pid=5) INFO 09-01 10:00:00 [core.py:1] " + "a long line of words " * 12
    text = "\n".join(line[at : at + width] for line in (filler, *LINES, filler) for at in range(0, len(line), width))

    log = read_startup_log(text)

    assert printed(log, "available_kv") == "16.46 GiB"
    assert (log.kv_cache_tokens, log.max_concurrency) == (409600, 3.12)


def test_a_message_wrapped_between_words_is_read_with_the_lines_below() -> None:
    log = read_startup_log(
        "INFO [worker.py:241] the current vLLM instance can use total_gpu_memory (79.14GiB)\n"
        "        x gpu_memory_utilization (0.90) = 71.22GiB\n"
        "INFO [worker.py:241] model weights take 14.99GiB; non_torch_memory takes 0.12GiB;\n"
        "        PyTorch activation peak memory takes 1.19GiB; the rest of the memory\n"
        "        reserved for KV Cache is 54.93GiB.\n"
    )

    figures = ("card_total", "requested", "weights", "non_torch", "activation_peak", "available_kv")
    assert [printed(log, name) for name in figures] == [
        f"{number} GiB" for number in ("79.14", "71.22", "14.99", "0.12", "1.19", "54.93")
    ]
    assert log.unread == ()


def test_a_number_broken_by_another_writer_is_no_number() -> None:
    log = read_startup_log("INFO [gpu_worker.py:773] Available KV cache memory: 16.\n(Worker_TP0 pid=6) INFO 46 GiB\n")

    assert log.ranks == ()


def test_a_paste_that_lost_its_line_ends_is_read_message_by_message() -> None:
    log = read_startup_log(
        "$ kubectl logs x INFO 06-09 05:30:55 [__init__.py:239] Automatically detected platform cuda. INFO 06-09 05:30:58 "
        "[api_server.py:1043] vLLM API server version 0.8.5 INFO 06-09 05:30:58 [api_server.py:1044] args: Namespace("
        "host='0.0.0.0', port=8000, model='org/M', max_model_len=8192, gpu_memory_utilization=0.85, max_num_seqs=None)"
    )

    assert (log.vllm_version, log.platform, log.model_name) == ("0.8.5", "cuda", "org/M")
    assert (log.max_model_len, log.gpu_memory_utilization, log.max_num_seqs) == (8192, 0.85, None)


def test_ray_folds_equal_lines_and_the_log_says_so() -> None:
    log = read_startup_log(
        "(RayWorkerWrapper pid=4213, ip=10.0.0.2) INFO 04-08 03:49:41 [gpu_model_runner.py:1273] Model loading took 51.1453 GiB "
        "and 67.7 seconds [repeated 3x across cluster]\n"
    )

    assert [rank.rank for rank in log.ranks] == ["pid 4213 at 10.0.0.2"]
    assert [finding.code for finding in log.findings] == ["log-ranks-folded"]


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("(Worker_PP1_TP0 pid=4)", "PP1_TP0"),
        ("(Worker_DP0_TP1_EP1 pid=2)", "DP0_TP1_EP1"),
        ("(VllmWorker rank=3 pid=9)", "rank3"),
        ("(VllmWorker TP1 pid=9)", "TP1"),
        ("(VllmWorkerProcess pid=77)", "pid 77"),
        ("(EngineCore_1 pid=3)", "DP1"),
        ("(EngineCore_DP1 pid=3)", "DP1"),
        ("(EngineCore pid=3)", ""),
        ("(Worker pid=3)", ""),
        ("[rank2]:", "rank2"),
        ("", ""),
    ],
)
def test_a_rank_is_named_as_its_process_is(prefix: str, rank: str) -> None:
    log = read_startup_log(f"{prefix} INFO 09-01 10:00:00 [gpu_worker.py:773] Available KV cache memory: 1.0 GiB")

    assert [one.rank for one in log.ranks] == [rank]


def test_a_page_sources_entities_are_characters() -> None:
    line = "INFO 10-09 07:30:30 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model=&#39;org/M&#39;, max_seq_len=4096"

    log = read_startup_log(line)

    assert (log.model_name, log.max_model_len) == ("org/M", 4096)


@pytest.mark.parametrize("labels", ["", '"{""app"":""vllm""}",'], ids=["lines", "with labels"])
def test_a_table_exported_with_times_behind_its_lines_keeps_the_last_number(labels: str) -> None:
    lines = (
        f"{labels}2025-10-09T07:30:17Z,(APIServer pid=1) INFO 10-09 07:32:03 [loggers.py:147] Engine 000: vllm cache_config_info "
        "with initialization after num_gpu_blocks is: 31225,1760000000000000025\n"
        f'{labels}2025-10-09T07:30:17Z,"INFO 10-09 07:31:39 [kv_cache_utils.py:1087] GPU KV cache size: 499,600 tokens",1760000000000000014\n'
    )

    log = read_startup_log(lines)

    assert (log.num_gpu_blocks, log.kv_cache_tokens, log.block_size) == (31225, 499_600, 16)


@pytest.mark.parametrize(
    ("torn", "fact"),
    [
        ("ocks: 3474, # CPU blocks: 2730", "num_gpu_blocks"),  # the second number is not the first
        ("INFO 04-29 10:00:05 [api_server.py:1043] vLLM API server version 0.", "vllm_version"),
        ("num_gpu_blocks is: 312252025-10-09T07:30:17Z {app=vllm}", "num_gpu_blocks"),
        ("INFO 1-1 [core.py:7] Initializing a V1 LLM engine (v0.9.2) with config: model='org/M-Instruction=None, dtype=torch.half'", "model_name"),
    ],
)  # fmt: skip
def test_what_a_cut_or_a_lost_line_end_tore_is_no_fact(torn: str, fact: str) -> None:
    assert getattr(read_startup_log(torn), fact) is None


def test_an_escaped_line_end_is_no_part_of_a_name() -> None:
    assert (
        read_startup_log("INFO [utils.py:344]   █▄█▀ █     █     █     █  model   Qwen/Qwen3-32B\\n").model_name
        == "Qwen/Qwen3-32B"
    )
    assert read_startup_log("Starting to load model Qwen/Qwen3-8B…\n").model_name == "Qwen/Qwen3-8B"


def test_overridden_blocks_are_the_blocks() -> None:
    text = "INFO 10-02 [kv_cache_utils.py:806] Overriding num_gpu_blocks=5000 with num_gpu_blocks_override=100"

    assert read_startup_log(text).num_gpu_blocks == 100
