"""Start-up logs of all eras, as real logs print them: per rank, rounded, prefixed, with several starts or a failure."""

import json
import os
from pathlib import Path

import pytest

from planner.startup_log import read_startup_log
from planner.units import GIB

LOGS = Path(__file__).parents[2].parent / "shared" / "groundtruth" / "logs"
MEMORY = {
    "weights_gib_per_gpu": "weights",
    "available_kv_gib_per_gpu": "available_kv",
    "cuda_graph_gib": "cuda_graphs",
    "activation_peak_gib": "activation_peak",
    "non_torch_gib": "non_torch",
}
PLAIN = {
    "tensor_parallel": "tensor_parallel_size",
    "data_parallel": "data_parallel_size",
    "max_model_len": "max_model_len",
    "max_concurrency": "max_concurrency",
    "num_gpu_blocks": "num_gpu_blocks",
    "num_cpu_blocks": "num_cpu_blocks",
    "block_size": "block_size",
    "gpu_memory_utilization": "gpu_memory_utilization",
}


def rows() -> list[dict]:
    index = LOGS / "index.jsonl"
    records = [json.loads(line) for line in index.read_text().splitlines()] if index.exists() else []
    return [record for record in records if "kv_cache_tokens" in record["expected"]]


def gib(log, name: str) -> float | None:
    estimate = log.memory(name)
    return None if estimate is None else round(estimate.best_bytes / GIB, 4)


def test_the_logs_are_there():
    if not rows() and os.environ.get("CI") != "true":
        pytest.skip("the checkout has no shared folder beside it")

    assert rows()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"])
def test_a_real_log_is_read_as_a_person_reads_it(row):
    log = read_startup_log((LOGS / row["file"]).read_text())

    expected = row["expected"]
    assert {name: gib(log, field) for name, field in MEMORY.items()} == {name: expected[name] for name in MEMORY}
    assert {name: getattr(log, field) for name, field in PLAIN.items()} == {name: expected[name] for name in PLAIN}
    assert (log.model_name or "").split("/")[-1] == (expected["model"] or "").split("/")[-1]
    assert log.outcome == {True: "started", None: "unknown"}[expected["started_ok"]]


def test_a_printed_figure_is_an_interval():
    log = read_startup_log("INFO [gpu_worker.py:306] Available KV cache memory: 16.46 GiB\n")

    estimate = log.memory("available_kv")
    assert estimate.low_bytes == round(16.455 * GIB)
    assert estimate.high_bytes == round(16.465 * GIB)
    assert estimate.basis.kind == "read"


def test_the_least_available_of_the_ranks_bounds_and_the_most_weights_count():
    log = read_startup_log(
        "(Worker_PP0_TP0 pid=1) INFO Model loading took 9.5 GiB memory and 3 seconds\n"
        "(Worker_PP1_TP0 pid=2) INFO Model loading took 10.25 GiB memory and 3 seconds\n"
        "(Worker_PP0_TP0 pid=1) INFO Available KV cache memory: 5.5 GiB\n"
        "(Worker_PP1_TP0 pid=2) INFO Available KV cache memory: 4.75 GiB\n"
    )

    assert [rank.rank for rank in log.ranks] == ["PP0_TP0", "PP1_TP0"]
    assert (gib(log, "weights"), gib(log, "available_kv")) == (10.25, 4.75)


def test_v0_prints_its_whole_profile():
    log = read_startup_log(
        "INFO Initializing a V0 LLM engine (v0.7.3) with config: model='org/M', max_seq_len=8192\n"
        "INFO worker.py] Memory profiling takes 3.2 seconds\n"
        "INFO the current vLLM instance can use total_gpu_memory (23.64GiB) x gpu_memory_utilization (0.90) = 21.28GiB\n"
        "INFO model weights take 14.99GiB; non_torch_memory takes 0.06GiB; PyTorch activation peak memory takes 1.19GiB; "
        "the rest of the memory reserved for KV Cache is 5.03GiB.\n"
        "INFO # cuda blocks: 2577, # CPU blocks: 2048\n"
        "INFO Maximum concurrency for 8192 tokens per request: 5.03x\n"
    )

    assert (log.vllm_version, log.model_name, log.gpu_memory_utilization) == ("0.7.3", "org/M", 0.9)
    assert (gib(log, "weights"), gib(log, "non_torch"), gib(log, "activation_peak")) == (14.99, 0.06, 1.19)
    assert (gib(log, "available_kv"), log.num_gpu_blocks, log.num_cpu_blocks, log.block_size) == (5.03, 2577, 2048, 16)


def test_the_newest_versions_print_capacity_in_one_line():
    log = read_startup_log(
        "INFO vLLM API server version 0.33.0\n"
        "INFO Initializing a V1 LLM engine (v0.33.0) with config: model='org/M', tensor_parallel_size=2\n"
        "INFO Estimated CUDA graph memory: 0.52 GiB total\n"
        "INFO Setting attention block size to 1056 tokens to ensure that attention page size is >= mamba page size.\n"
        "INFO GPU KV cache size: 409,600 tokens, Maximum concurrency for 131,072 tokens per request: 3.12x\n"
        "INFO Free memory on device (78.0/79.1 GiB) on startup. Desired GPU memory utilization is (0.92, 72.8 GiB). Actual "
        "usage is 16.1 GiB for consumed memory (weights + non-torch), 1.25 GiB for peak activation, and 0.5 GiB\n"
    )

    assert (log.kv_cache_tokens, log.max_model_len, log.max_concurrency) == (409600, 131072, 3.12)
    assert (log.block_size, log.gpu_memory_utilization, log.tensor_parallel_size) == (1056, 0.92, 2)
    assert (gib(log, "cuda_graphs_estimate"), gib(log, "activation_peak"), gib(log, "cuda_graphs")) == (
        0.52,
        1.25,
        None,
    )


def test_the_last_of_several_starts_counts():
    one = (
        "INFO Initializing a V1 LLM engine (v0.{}.0) with config: model='m'\nINFO Available KV cache memory: {}.0 GiB\n"
    )
    failed = "ERROR Engine core initialization failed. See root cause above.\n"

    log = read_startup_log(one.format(11, 5) + failed + one.format(12, 6) + "INFO Application startup complete.\n")

    assert (log.vllm_version, gib(log, "available_kv"), log.outcome, log.failure) == ("0.12.0", 6, "started", None)


def test_a_failed_start_keeps_its_reason():
    line = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"

    log = read_startup_log(
        f"\x1b[31m(EngineCore pid=1) ERROR {line}\x1b[0m\nRuntimeError: Engine core initialization failed\n"
    )

    assert log.outcome == "failed"
    assert log.failure.endswith(line)


@pytest.mark.parametrize("text", ["", "\n" * 10, "<html>", "x" * 200_000, "Model loading took many GiB"])
def test_what_is_no_log_says_nothing(text):
    log = read_startup_log(text)

    assert (log.ranks, log.kv_cache_tokens, log.block_size, log.outcome) == ((), None, None, "unknown")


def test_the_block_size_is_unknown_where_two_fit_or_groups_share_the_blocks():
    shared = "INFO GPU KV cache size: 205,696 tokens\nINFO num_gpu_blocks is: 89994\n"
    vague = "INFO # GPU blocks: 1, # CPU blocks: 0\nINFO Maximum concurrency for 900000 tokens per request: 0.00x\n"

    assert read_startup_log(shared).block_size is None
    assert read_startup_log(vague).block_size is None
