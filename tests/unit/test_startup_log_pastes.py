"""Start-up logs as people paste them: broken within words, cut short, of ranks that stay silent; and thousands of equal lines."""

from __future__ import annotations

import time

from planner.startup_log import read_startup_log

ENGINE = "(EngineCore pid=9) INFO 04-07 15:56:59 [core.py:105] Initializing a V1 LLM engine"
POOL = "(Worker_TP{0} pid={0}) INFO 12-15 11:46:22 [gpu_worker.py:298] Available KV cache memory: {1} GiB\n"


def gib(text: str, name: str) -> str | None:
    estimate = read_startup_log(text).memory(name)
    return None if estimate is None else estimate.formula


def test_an_engine_line_broken_before_its_version_is_read_whole() -> None:
    log = read_startup_log(
        f"18: {ENGINE}\n    (v0.19.1rc1.dev71+gdd9342e6b) with config: model='MiniMaxAI/MiniMax-M2.5', ...\n"
        "    dtype=torch.bfloat16, max_seq_len=128000, tensor_parallel_size=4,\n    quantization=fp8, kv_cache_dtype=auto\n"
        "19: INFO 04-07 15:57:00 [x.py:1] tensor_parallel_size=2\n"
    )

    assert (log.vllm_version, log.model_name) == ("0.19.1rc1.dev71+gdd9342e6b", "MiniMaxAI/MiniMax-M2.5")
    assert (log.dtype, log.max_model_len, log.tensor_parallel_size, log.quantization) == ("bfloat16", 128000, 4, "fp8")


def test_an_engine_line_broken_after_config_is_read_whole() -> None:
    log = read_startup_log(f"{ENGINE} (v0.11.0) with config:\n  model='a/b', max_seq_len=4096,\n  enforce_eager=True\n")

    assert (log.model_name, log.max_model_len, log.enforce_eager) == ("a/b", 4096, True)


def test_a_message_broken_within_the_words_that_it_is_known_by_is_read() -> None:
    v0 = "INFO 03-15 20:36:48 worker.py:267] model weights take 83.88GiB; the rest of the memory reserved \n  for KV Cache is 21.43GiB.\n"
    given = (
        "INFO 06-12 15:43:39 [gpu_worker.py:387] Initial free memory 111.93 GiB,\nreserved 8.0 GiB memory for KV Cache as "
        "specified by kv_cache_memory_bytes\nconfig and skipped memory profiling.\n"
    )

    assert (gib(v0, "available_kv"), gib(given, "kv_given"), gib(given, "free_at_start")) == (
        "21.43 GiB",
        "8.0 GiB",
        "111.93 GiB",
    )
    assert read_startup_log(v0).unread == read_startup_log(given).unread == ()


def test_a_single_workers_name_tells_no_size_along_its_axis() -> None:
    alone = read_startup_log(POOL.format(0, 32.11))
    silent = read_startup_log(
        POOL.format(0, 32.11)
        + "(Worker_TP7 pid=7) INFO 05-19 02:02:04 [ssu_dispatch.py:207] Using triton Mamba SSU backend.\n"
    )

    assert alone.tensor_parallel_size is None
    assert silent.tensor_parallel_size == 8


def test_of_figures_that_are_equal_as_printed_the_one_with_the_most_decimals_counts() -> None:
    text = (
        "INFO 07-23 20:47:21 model_runner.py:1099] Loading model weights took 21.6682 GB\n"
        "(VllmWorkerProcess pid=536) INFO 07-23 20:49:31 worker.py:241] model weights take 21.67GiB; non_torch_memory takes 0.36GiB\n"
    )

    assert gib(text, "weights") == "21.6682 GiB"


def test_a_length_is_read_from_the_line_that_announces_or_refuses_it() -> None:
    error = (
        "ValueError: To serve at least one request with the models's max seq len (32768), (4.50 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (4.47 GiB).\n"
    )

    assert read_startup_log("Using max model len 4096\nAvailable KV cache memory: 32.08 GiB\n").max_model_len == 4096
    failed = read_startup_log(error)
    assert (failed.max_model_len, failed.outcome) == (32768, "failed")
    assert failed.line_of("max_model_len") is not None


def test_a_batch_that_was_processed_shows_that_the_engine_started() -> None:
    assert read_startup_log("Processed prompts: 100%|###| 3/3 [00:01<00:00,  2.01it/s]\n").outcome == "started"


def test_an_engine_that_failed_without_a_cause_failed() -> None:
    text = "(EngineCore pid=188) ERROR 04-03 17:36:41 [core.py:1108] EngineCore failed to start.\n"

    assert read_startup_log(text).outcome == "failed"


def test_the_advice_of_0_19_tells_the_utilisation_in_force() -> None:
    text = (
        "INFO [gpu_worker.py:470] In v0.19, CUDA graph memory profiling will be enabled by default. To try it now, set X=1 and increase "
        "--gpu-memory-utilization from 0.8000 to 0.8260 to maintain the same effective KV cache size.\n"
    )

    assert read_startup_log(text).gpu_memory_utilization == 0.8


def test_blocks_of_an_early_v1_give_its_capacity() -> None:
    text = (
        "INFO 02-13 15:01:40 kv_cache_utils.py:407] # GPU blocks: 33660\n"
        "INFO 02-13 15:01:40 kv_cache_utils.py:410] Maximum concurrency for 4096 tokens per request: 131.48x\n"
    )

    log = read_startup_log(text)
    assert (log.engine, log.kv_cache_tokens, log.block_size) == ("v1", 538560, 16)
    assert dict(log.derived)["kv_cache_tokens"] == "33,660 blocks of 16 tokens"


def test_a_log_of_nothing_but_differing_memory_lines_is_read_in_time() -> None:
    text = "".join(POOL.format(number % 8, f"{50 + number / 100:.2f}") for number in range(200_000))
    begin = time.process_time()
    log = read_startup_log(text)

    assert time.process_time() - begin < 2.0
    assert log.tensor_parallel_size == 8
    assert "log-cut" in [finding.code for finding in log.findings]


def test_what_was_left_out_of_one_start_is_read_of_the_next() -> None:
    text = "".join(POOL.format(0, f"{50 + number / 100:.2f}") for number in range(3_000))
    log = read_startup_log(
        f"{ENGINE} (v0.19.0) with config: model='a/b'\n{text}{ENGINE} (v0.19.0) with config: model='a/b'\n{POOL.format(0, 7.5)}"
    )

    assert (log.start_number, log.memory("available_kv").formula) == (2, "7.5 GiB")  # type: ignore[union-attr]
    assert "log-cut" not in [finding.code for finding in log.findings]
