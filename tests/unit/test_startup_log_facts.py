"""What a start's lines mean together: repeats, several starts, failures, contradictions, and what was not understood."""

from __future__ import annotations

import pytest

from planner.startup_facts import StartupLog
from planner.startup_findings import budget_gap_bytes
from planner.startup_log import read_starts, read_startup_log
from planner.startup_release import release_by_lines
from planner.units import GIB

SUMMARY = (
    "INFO 08-21 18:22:06 [gpu_worker.py:789] Free memory on device (94.05/95.01 GiB) on startup. Desired GPU memory utilization is "
    "(0.9, 85.51 GiB). Actual usage is 56.89 GiB for consumed memory (weights + non-torch), 0.76 GiB for peak activation, and 0.32 "
    "GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=29407858586` (27.39 GiB) to fit into "
    "requested memory, or `--kv-cache-memory=38581581312` (35.93 GiB) to fully utilize gpu memory. Current kv cache memory in use "
    "is 27.85 GiB.\n"
)
BYTES_SUMMARY = (
    "INFO 09-23 18:12:39 [gpu_worker.py:391] Free memory on device (78.66/79.19 GiB) on startup. Desired GPU memory utilization is "
    "(0.9, 71.27 GiB). Actual usage is 14.08 GiB for weight, 1.97 GiB for peak activation, 0.07 GiB for non-torch memory, and 0.67 GiB "
    "for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=58333988249` to fit into requested memory, "
    "or `--kv-cache-memory=66273897472` to fully utilize gpu memory. Current kv cache memory in use is 59212694937 bytes.\n"
)


def codes(log: StartupLog) -> list[str]:
    return [finding.code for finding in log.findings]


def test_the_summary_adds_up_and_its_activation_holds_the_graph_estimate() -> None:
    log = read_startup_log("INFO Estimated CUDA graph memory: 0.52 GiB total\n" + SUMMARY)

    rank = log.ranks[0]
    assert abs(budget_gap_bytes(rank, log)) < 0.02 * GIB
    assert log.activation_alone == rank.activation_peak.best_bytes - rank.cuda_graphs_estimate.best_bytes
    assert (rank.suggested_kv_to_fit.formula, rank.suggested_kv_to_fill.formula) == ("27.39 GiB", "35.93 GiB")
    assert log.findings == ()


def test_an_older_summary_prints_bytes() -> None:
    log = read_startup_log(BYTES_SUMMARY)

    assert log.memory("available_kv").best_bytes == 59212694937
    assert log.memory("suggested_kv_to_fit").best_bytes == 58333988249
    assert log.findings == ()


def test_parts_that_do_not_add_up_are_said() -> None:
    log = read_startup_log(SUMMARY.replace("0.76 GiB for peak", "5.76 GiB for peak"))

    assert codes(log) == ["log-budget-open"]
    assert "-4.99 GiB" in log.findings[0].text


def test_weights_of_four_decimals_outweigh_the_summarys_two() -> None:
    log = read_startup_log("INFO Model loading took 14.0764 GiB and 2 seconds\n" + BYTES_SUMMARY)

    assert log.memory("weights").formula == "14.0764 GiB"
    assert log.line_of("weights").number == 1


def test_a_size_that_each_rank_prints_counts_once_and_the_least_bounds() -> None:
    log = read_startup_log(
        "(VllmWorker rank=0 pid=1) INFO [kv_cache_utils.py:634] GPU KV cache size: 100,768 tokens\n"
        "(VllmWorker rank=1 pid=2) INFO [kv_cache_utils.py:634] GPU KV cache size: 100,752 tokens\n"
        "(VllmWorker rank=0 pid=1) INFO [kv_cache_utils.py:637] Maximum concurrency for 65,536 tokens per request: 1.54x\n"
    )

    assert (log.kv_cache_tokens, log.max_concurrency) == (100752, 1.54)
    assert log.line_of("kv_cache_tokens").number == 2


def test_data_parallel_engines_of_one_start_are_one_start() -> None:
    banner = "(EngineCore_DP{0} pid={0}) INFO [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='org/M'\n"
    memory = "(EngineCore_DP{0} pid={0}) INFO [gpu_worker.py:298] Available KV cache memory: {1} GiB\n"
    text = banner.format(0) + memory.format(0, "5.5") + banner.format(1) + memory.format(1, "5.25")

    starts = read_starts(text + "INFO:     Application startup complete.\n" + text)

    assert [len(start.ranks) for start in starts] == [2, 2]
    assert [start.data_parallel_size for start in starts] == [2, 2]
    assert codes(starts[1]) == ["log-several-starts"]
    assert starts[1].memory("available_kv").formula == "5.25 GiB"


def test_a_load_after_an_end_is_another_start() -> None:
    start = (
        "INFO [gpu_model_runner.py:2602] Starting to load model org/M...\n"
        "INFO [gpu_model_runner.py:2653] Model loading took {} GiB and 2 seconds\n"
    )

    starts = read_starts(start.format("1.5") + "INFO:     Application startup complete.\n" + start.format("2.5"))

    assert [one.memory("weights").formula for one in starts] == ["1.5 GiB", "2.5 GiB"]
    assert [one.outcome for one in starts] == ["started", "unknown"]


@pytest.mark.parametrize(
    ("text", "kind", "stated"),
    [
        (
            (
                "ValueError: To serve at least one request with the model's max seq len (131072), (9.5 GiB KV cache is needed, which is "
                "larger than the available KV cache memory (6.91 GiB). Based on the available memory, the estimated maximum model length "
                "is 91520."
            ),
            "length_does_not_fit",
            {"max_model_len": 131072, "estimated_max_model_len": 91520},
        ),
        (
            (
                "ERROR 03-25 21:32:48 engine.py:387] The model's max seq len (131072) is larger than the maximum number of tokens that can "
                "be stored in KV cache (37696). Try increasing"
            ),
            "length_does_not_fit",
            {"max_model_len": 131072, "available_tokens": 37696},
        ),
        (
            (
                "ValueError: Free memory on device cuda:0 (2.6/121.63 GiB) on startup\nis less than desired GPU memory utilization "
                "(0.08, 9.73 GiB)"
            ),
            "too_little_free",
            {"gpu_memory_utilization": 0.08, "free_bytes": int(2.6 * GIB)},
        ),
        ("ValueError: No available memory for the cache blocks. Try increasing", "no_cache_memory", {}),
        (
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 6 has a total capacity of 44.53 GiB of which "
                "448.00 KiB is free. Including non-PyTorch memory, this process has 44.51 GiB memory in use."
            ),
            "out_of_memory",
            {"tried_bytes": 2 * 1024**2, "free_bytes": 448 * 1024, "in_use_bytes": int(44.51 * GIB)},
        ),
        (
            (
                "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; 22.00 GiB "
                "already allocated; 10.00 MiB free; 22.10 GiB reserved in total by PyTorch)"
            ),
            "out_of_memory",
            {"total_bytes": int(23.69 * GIB), "free_bytes": 10 * 1024**2},
        ),
        (
            "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
            "engine_failed",
            {},
        ),
        (
            (
                "(EngineCore pid=2) ERROR 09-25 10:00:00 [core.py:700] ValueError: Bfloat16 is only supported on newer cards\n"
                "RuntimeError: Engine core initialization failed."
            ),
            "other",
            {},
        ),
    ],
)
def test_a_failed_start_tells_its_kind_and_numbers(text: str, kind: str, stated: dict[str, object]) -> None:
    log = read_startup_log(text)

    failed = log.failed_start
    assert (log.outcome, failed.kind, failed.line.number) == ("failed", kind, 1)
    assert {name: getattr(failed.reading, name) for name in stated} == stated
    assert log.unread == ()


def test_the_memory_error_says_more_than_the_engines_own() -> None:
    log = read_startup_log(
        "(EngineCore pid=2) ERROR 09-25 10:00:00 [core.py:700] EngineCore failed to start.\n"
        "(EngineCore pid=2) ERROR 09-25 10:00:00 [core.py:700] ValueError: No available memory for the cache blocks.\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
    )

    assert (log.failed_start.kind, log.failed_start.line.number) == ("no_cache_memory", 2)


@pytest.mark.parametrize(
    "advice",
    [
        "INFO 05-30 16:23:35 model_runner.py:1434] If out-of-memory error occurs during cudagraph capture, consider decreasing it.",
        "INFO 08-19 07:51:12 model_runner.py:1028] If you are running out of memory, consider decreasing `gpu_memory_utilization`.",
        "ERROR: SyntaxError: invalid syntax (2268419272.py, line 1)",
    ],
)
def test_advice_is_no_failure(advice: str) -> None:
    assert read_startup_log(advice).outcome == "unknown"


def test_a_request_that_runs_out_of_memory_later_is_not_the_start() -> None:
    log = read_startup_log(
        "INFO:     Application startup complete.\nCUDA out of memory. Tried to allocate 50.00 MiB.\n"
    )

    assert (log.outcome, log.failed_start) == ("started", None)


def test_a_memory_line_of_a_new_release_is_listed() -> None:
    line = "INFO 09-01 10:00:00 [gpu_worker.py:900] Spare buffers hold 3.5 GiB of device memory"

    log = read_startup_log(f"x\n{line}\n")

    assert [(one.number, one.text) for one in log.unread] == [(2, line)]
    assert codes(log) == ["log-lines-unread"]


@pytest.mark.parametrize("number", ["NaN", "9" * 400, "1.2.3", "1e999", "-", "1,23,4"])
def test_a_broken_number_is_no_fact(number: str) -> None:
    log = read_startup_log(
        f"INFO Available KV cache memory: {number} GiB\nINFO GPU KV cache size: {number} tokens\nINFO # GPU blocks: {number}\n"
    )

    assert (log.ranks, log.kv_cache_tokens, log.num_gpu_blocks) == ((), None, None)


def test_a_negative_pool_is_a_fact() -> None:
    assert read_startup_log("INFO Available KV cache memory: -0.94 GiB").memory("available_kv").best_bytes < 0


def test_a_line_cut_within_a_setting_states_no_part_of_it() -> None:
    log = read_startup_log("INFO [utils.py:253] non-default args: {'max_model_len': 8192, 'model_tag': 'microsoft/Ph")

    assert (log.model_name, log.max_model_len) == (None, 8192)


def test_settings_are_read_from_both_lines() -> None:
    log = read_startup_log(
        "(APIServer pid=1) INFO 09-01 10:00:00 [utils.py:253] non-default args: {'model': 'org/M', 'max_num_seqs': 6, "
        "'gpu_memory_utilization': 0.96, 'max_model_len': 'auto', 'limit_mm_per_prompt': {'image': 2}}\n"
        "(EngineCore pid=5) INFO 09-01 10:00:01 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: model='org/M', "
        "dtype=torch.bfloat16, max_seq_len=98304, quantization=mxfp4, enforce_eager=False, kv_cache_dtype=fp8, device_config=cuda, "
        'enable_prefix_caching=False, compilation_config={"cudagraph_mode": <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, "sizes": [1]}\n'
    )

    assert (log.max_model_len, log.max_num_seqs, log.gpu_memory_utilization) == (98304, 6, 0.96)
    assert (log.dtype, log.quantization, log.kv_cache_dtype, log.platform) == ("bfloat16", "mxfp4", "fp8", "cuda")
    assert (log.enforce_eager, log.enable_prefix_caching, log.cudagraph_mode) == (False, False, "FULL_AND_PIECEWISE")
    assert dict(log.arguments)["limit_mm_per_prompt"] == {"image": 2}


def test_ranks_that_all_print_their_place_tell_the_split() -> None:
    place = "(Worker pid={0}) INFO [parallel_state.py:1715] rank {0} in world size 2 is assigned as DP rank 0, PP rank 0, TP rank {0}\n"

    assert read_startup_log(place.format(0) + place.format(1)).tensor_parallel_size == 2
    assert read_startup_log(place.format(1)).tensor_parallel_size is None


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        ([("available", "gpu_worker.py", 298), ("tokens", "kv_cache_utils.py", 1087)], "0.11.0 by source lines"),
        ([("available", "gpu_worker.py", 466)], "0.22.0 to 0.22.1 by source lines"),
        ([("available", "gpu_worker.py", 467)], "between 0.22.1 and 0.23.0 by source lines"),
        ([("available", "gpu_worker.py", 298), ("tokens", "kv_cache_utils.py", 864)], "0.10.2 by source lines"),
        ([("available", "worker.py", 593)], None),  # another platform's plug-in
        ([("available", "gpu_worker.py", 99999)], None),
        ([], None),
    ],
)
def test_the_release_by_source_lines(printed: list[tuple[str, str, int]], text: str | None) -> None:
    release = release_by_lines(set(printed))

    assert (None if release is None else release.text) == text


def test_two_releases_in_one_start_are_said() -> None:
    log = read_startup_log(
        "INFO vLLM API server version 0.11.0\nINFO Initializing a V1 LLM engine (v0.11.2) with config: model='org/M'\n"
    )

    assert log.vllm_version == "0.11.2"
    assert codes(log) == ["log-two-releases"]


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("INFO [core.py:58] Initializing a V1 LLM engine (v0.8.5) with config: model='m'", "v1"),
        ("INFO llm_engine.py:241] Initializing a V0 LLM engine (v0.8.5) with config: model='m'", "v0"),
        ("INFO core.py:49] Initializing an LLM engine (v0.6.6) with config: model='m'", "v1"),
        ("INFO llm_engine.py:72] Initializing an LLM engine with config: model='m', seed=0)", "v0"),
        ("Initializing an LLM engine (v0.5.4) with config: model='m'", "v0"),
        ("INFO kv_cache_utils.py:395] # GPU blocks: 1381", "v1"),
        ("INFO executor_base.py:112] # cpu blocks: 1170, # CPU blocks: 0", "v0"),
        ("INFO GPU KV cache size: 178,880 tokens", "v1"),
        ("Model loading took 1.0 GiB", None),
    ],
)
def test_the_generation_of_the_engine(line: str, engine: str | None) -> None:
    assert read_startup_log(line).engine == engine


@pytest.mark.parametrize(
    ("text", "basis", "release"),
    [
        ("vLLM Version: 0.8.5.post1\nModel loading took 1.0 GiB", "environment report", "0.8.5.post1"),
        ("INFO Initializing a V1 LLM engine (v0.1.dev8938+g1234567) with config: model='m'", None, None),
        ("INFO Initializing a V1 LLM engine (vmain) with config: model='m'", None, None),
        ("(APIServer pid=1) INFO [utils.py:299] █ █ █ version 0.19.0", "banner", "0.19.0"),
    ],
)
def test_the_release_by_what_states_it(text: str, basis: str | None, release: str | None) -> None:
    read = read_startup_log(text).release

    assert (None if read is None else read.basis, None if read is None else read.text) == (basis, release)


def test_a_log_longer_than_what_is_read_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.startup_log.LARGEST_LOG_BYTES", 60)

    log = read_startup_log("Available KV cache memory: 5.0 GiB\n" + "x" * 100)

    assert (log.memory("available_kv").formula, codes(log)) == ("5.0 GiB", ["log-cut"])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("org/M", "org/M"),
        ("/home/user/models/Qwen/Qwen3-4B", "Qwen/Qwen3-4B"),
        ("/data/models/Qwen3-4B/", "Qwen3-4B"),
        ("/root/.cache/huggingface/hub/models--Qwen--Qwen3-4B/snapshots/abc123", "Qwen/Qwen3-4B"),
        ("./M", "M"),
        ("C:\\\\models\\\\M", "M"),
    ],
)
def test_a_models_path_is_read_to_its_name(path: str, name: str) -> None:
    log = read_startup_log(f"INFO Initializing a V1 LLM engine (v0.11.0) with config: model='{path}', max_seq_len=10\n")

    assert log.model_name == name
    assert (log.model_path is not None) == (name != path)


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ('{"cudagraph_mode":[2,0]}', "FULL_DECODE_ONLY"),
        ('{"cudagraph_mode":0}', "NONE"),
        ("{'cudagraph_mode': 'CUDAGraphMode.PIECEWISE'}", "PIECEWISE"),
        ("{'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, 'sizes': [1, 2", "FULL_AND_PIECEWISE"),
        ('{"cudagraph_mode":[7,7]}', None),
        ('{"level":3}', None),
    ],
)
def test_the_graph_mode_is_read_from_its_number(mode: str, name: str | None) -> None:
    log = read_startup_log(
        f"INFO Initializing a V1 LLM engine (v0.11.0) with config: model='m', compilation_config={mode}"
    )

    assert log.cudagraph_mode == name


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        (
            (
                "INFO worker.py:232] Memory profiling results: total_gpu_memory=23.64GiB initial_memory_usage=0.55GiB peak_torch_memory="
                "16.18GiB memory_usage_post_profile=15.10Gib non_torch_memory=0.06GiB kv_cache_size=5.03GiB gpu_memory_utilization=0.90"
            ),
            {"card_total": "23.64", "non_torch": "0.06", "available_kv": "5.03"},
        ),
        ("INFO Loading model weights took in total 28.46 GiB of device memory", {"weights": "28.46"}),
        (
            "INFO [cpu_worker.py:220] Auto set (4.5/62.1) GiB for KV cache on node 0, with 9.0 GiB",
            {"available_kv": "4.5"},
        ),
        ("INFO Loading weights took 4.01 seconds", {}),
        ("DEBUG worker requested memory: 28.22GiB", {"requested": "28.22"}),
        (
            "DEBUG Initial free memory: 78.7 GiB; Requested memory: 0.920000 (util), 72.86 GiB",
            {"free_at_start": "78.7", "requested": "72.86"},
        ),
        (
            "INFO Initial free memory 31.16 GiB, reserved 4.25 GiB memory for KV Cache as specified by kv_cache_memory_bytes config",
            {"free_at_start": "31.16", "kv_given": "4.25"},
        ),
        ("INFO Encoder graph capturing finished in 3 secs, took 1.20 GiB (4 graphs)", {}),
        ("INFO Total CPU offloaded parameters: 12.5", {"cpu_offloaded": "12.5"}),
    ],
)
def test_the_rarer_lines_state_their_figures(line: str, figures: dict[str, str]) -> None:
    log = read_startup_log(line)

    stated = {name: rank.line_of(name) and getattr(rank, name).formula for rank in log.ranks for name, _ in rank.lines}
    assert figures.items() <= {name: formula.removesuffix(" GiB") for name, formula in stated.items()}.items()
    assert bool(figures) == bool(log.ranks)
