"""What a blind reading of twenty public start-up logs got wrong: each with the lines that told."""

from __future__ import annotations

from planner.error_lines import read_error
from planner.startup_log import read_starts, read_startup_log

ASKED = "INFO 10-18 09:52:33 [utils.py:233] non-default args: {{'max_model_len': {0}, 'quantization': {1}, 'model': '{2}'}}\n"
FEW_BLOCKS = (
    "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (184).\n"
    "  Each decode sequence requires one Mamba cache block, so CUDA graph\n  capture cannot proceed.\n"
)


def test_arguments_for_another_model_begin_another_start() -> None:
    text = ASKED.format(16384, "'awq'", "a/starling-awq") + ASKED.format(4096, "None", "b/llava")
    first, second = read_starts(text)

    assert (first.model_name, first.quantization) == ("a/starling-awq", "awq")
    assert (second.model_name, second.quantization, second.max_model_len) == ("b/llava", None, 4096)


def test_arguments_repeated_by_a_second_server_are_of_one_start() -> None:
    assert len(read_starts(ASKED.format(4096, "None", "b/llava") * 2)) == 1


def test_an_engine_without_a_version_has_none() -> None:
    log = read_startup_log(
        "INFO 05-27 [core.py:109] Initializing a V1 LLM engine (vx.x.x) with config: model='a/b', dtype=torch.half\n"
    )

    assert (log.vllm_version, log.model_name) == (None, "a/b")


def test_eager_mode_is_read_where_only_a_warning_says_it() -> None:
    warned = "WARNING 05-19 02:38:06 [vllm.py:892] Enforce eager set, disabling torch.compile and CUDAGraphs.\n"
    older = "(EngineCore_0 pid=454) INFO 09-21 21:38:32 [__init__.py:3643] Cudagraph is disabled under eager mode\n"

    assert read_startup_log(warned).enforce_eager is read_startup_log(older).enforce_eager is True
    assert read_startup_log("Available KV cache memory: 2.30 GiB\n").enforce_eager is None


def test_too_few_state_blocks_fail_the_start() -> None:
    log = read_startup_log("Available KV cache memory: 8.82 GiB\n" + FEW_BLOCKS)
    reading = read_error(FEW_BLOCKS)

    assert log.outcome == "failed"
    assert log.failed_start is not None
    assert log.failed_start.kind == "few_state_blocks"
    assert reading is not None
    assert (reading.max_num_seqs, reading.num_blocks) == (256, 184)


def test_the_blocks_of_the_graph_profile_are_not_the_pools() -> None:
    """0.18 to 0.20 estimate graphs with a few blocks and nothing to override."""
    line = (
        "INFO 04-19 11:07:14 [kv_cache_utils.py:829] Overriding num_gpu_blocks={0} with num_gpu_blocks_override=512\n"
    )

    assert read_startup_log(line.format(0)).num_gpu_blocks is None
    assert read_startup_log(line.format(5000)).num_gpu_blocks == 512
